#include "epipe/serve/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace epipe::serve {
namespace {

using nlohmann::json;

std::string to_text(const SessionConfig& c) {
  json identity;
  if (c.dial.identity) identity = {c.dial.identity->certificate_pem, c.dial.identity->key_pem};
  return json{{"socket", c.socket},
              {"state_dir", c.state_dir},
              {"name", c.name},
              {"ticket", c.ticket},
              {"device", c.device},
              {"peers", c.peers},
              {"limits",
               {c.limits.memory_bytes, c.limits.seconds, c.limits.idle_seconds, c.limits.in_flight, c.limits.threads, c.limits.timeout,
                c.limits.message_bytes}},
              {"dial", {{"insecure", c.dial.insecure}, {"ca", c.dial.ca_pem}, {"token", c.dial.token}, {"identity", identity}}}}
      .dump();
}

SessionConfig from_text(const std::string& text) {
  const json j = json::parse(text);
  SessionConfig c;
  c.socket = j.at("socket");
  c.state_dir = j.at("state_dir");
  c.name = j.at("name");
  c.ticket = j.at("ticket");
  c.device = j.at("device");
  c.peers = j.at("peers").get<std::vector<std::string>>();
  const json& limits = j.at("limits");
  c.limits = {limits.at(0), limits.at(1), limits.at(2), limits.at(3), limits.at(4), limits.at(5), limits.at(6)};
  const json& dial = j.at("dial");
  c.dial.insecure = dial.at("insecure");
  c.dial.ca_pem = dial.at("ca");
  c.dial.token = dial.at("token");
  if (const json& identity = dial.at("identity"); !identity.is_null()) c.dial.identity = {identity.at(0), identity.at(1)};
  return c;
}

void write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw std::runtime_error(fmt::format("cannot talk to a new session: {}", std::strerror(errno)));
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void limit(int resource, std::uint64_t value) {
  const rlimit bound{value, value};
  if (::setrlimit(static_cast<__rlimit_resource_t>(resource), &bound) != 0) {
    throw std::runtime_error(fmt::format("cannot set a session's limit: {}", std::strerror(errno)));
  }
}

}  // namespace

pid_t start_session(const SessionConfig& config) {
  const std::string text = to_text(config);
  std::array<int, 2> pipe_ends{};
  if (::pipe2(pipe_ends.data(), O_CLOEXEC) != 0) throw std::runtime_error(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    // Only calls that are safe after fork() in a program with threads.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ::dup2(pipe_ends[0], STDIN_FILENO);
    ::execl("/proc/self/exe", "epipe", "session", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ::close(pipe_ends[0]);
  if (pid < 0) {
    ::close(pipe_ends[1]);
    throw std::runtime_error(fmt::format("cannot start a session: {}", std::strerror(errno)));
  }
  try {
    write_all(pipe_ends[1], text);
  } catch (...) {
    ::close(pipe_ends[1]);
    throw;
  }
  ::close(pipe_ends[1]);
  return pid;
}

SessionConfig read_session_config() {
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  try {
    return from_text(text);
  } catch (const json::exception&) {
    throw std::runtime_error("\"epipe session\" is started by \"epipe serve\", not by hand");
  }
}

// The sixth number of statm: pages of data and stack.
std::uint64_t held_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t pages = 0;
  for (int field = 0; field < 6; ++field) statm >> pages;
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

void become_session(const SessionLimits& limits) {
  ::setsid();             // Ctrl-C is for the server, which tells its sessions
  limit(RLIMIT_CORE, 0);  // a core file would hold the client's weights
  if (limits.memory_bytes > 0) limit(RLIMIT_DATA, limits.memory_bytes);
  if (limits.seconds > 0) ::alarm(static_cast<unsigned>(limits.seconds) + 1);
}

}  // namespace epipe::serve
