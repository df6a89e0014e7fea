#include "epipe/serve/child.h"

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include "epipe/base/clock.h"

namespace epipe::serve {
namespace {

using nlohmann::json;

constexpr double kSaySeconds = 60;  // LibTorch takes a second to load, more on a busy machine

std::string to_text(const SessionConfig& c) {
  json identity;
  if (c.dial.identity) identity = {c.dial.identity->certificate_pem, c.dial.identity->key_pem};
  return json{{"purpose", static_cast<int>(c.purpose)},
              {"socket", c.socket},
              {"state_dir", c.state_dir},
              {"state_bytes", c.state_bytes},
              {"reuse_bytes", c.reuse_bytes},
              {"name", c.name},
              {"ticket", c.ticket},
              {"nice", c.nice},
              {"device", c.device},
              {"scripts", c.scripts},
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
  c.purpose = static_cast<SessionConfig::Purpose>(j.at("purpose").get<int>());
  c.socket = j.at("socket");
  c.state_dir = j.at("state_dir");
  c.state_bytes = j.at("state_bytes");
  c.reuse_bytes = j.at("reuse_bytes");
  c.name = j.at("name");
  c.ticket = j.at("ticket");
  c.nice = j.at("nice");
  c.device = j.at("device");
  c.scripts = j.at("scripts").get<model::ScriptFiles>();
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

// One end is for the child, the other one for the server.
struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
    read = ends[0];
    write = ends[1];
  }
  ~Pipe() {
    close(read);
    close(write);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  static void close(int& end) {
    if (end >= 0) ::close(std::exchange(end, -1));
  }

  int read = -1;
  int write = -1;
};

// `output`: where its stdout goes, or -1.
pid_t start(const SessionConfig& config, int output) {
  const std::string text = to_text(config);
  Pipe input;
  // A child that does not read must not block the server.
  const int room = ::fcntl(input.write, F_SETPIPE_SZ, static_cast<int>(std::max<std::size_t>(text.size(), 65536)));
  if (room < static_cast<int>(text.size())) throw std::runtime_error("cannot start a session: its configuration is too long for a pipe");
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    // Only calls that are safe after fork() in a program with threads.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ::dup2(input.read, STDIN_FILENO);
    if (output >= 0) ::dup2(output, STDOUT_FILENO);
    ::execl("/proc/self/exe", "epipe", "session", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  if (pid < 0) throw std::runtime_error(fmt::format("cannot start a session: {}", std::strerror(errno)));
  try {
    write_all(input.write, text);
  } catch (...) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    throw;
  }
  return pid;
}

// Reads until the other end closes, for at most `seconds`.
std::string read_within(int file, double seconds) {
  std::string text;
  for (const Stopwatch watch; watch.seconds() < seconds;) {
    pollfd ready{file, POLLIN, 0};
    if (::poll(&ready, 1, 100) <= 0) continue;
    std::array<char, 256> buffer;
    const ssize_t got = ::read(file, buffer.data(), buffer.size());
    if (got <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return {};
}

void limit(__rlimit_resource resource, std::uint64_t value) {
  const rlimit bound{value, value};
  if (::setrlimit(resource, &bound) != 0) {
    throw std::runtime_error(fmt::format("cannot set a session's limit: {}", std::strerror(errno)));
  }
}

// Later threads inherit it. If the kernel groups processes by setsid() (autogroup), the group's level is what counts.
void lower_priority(int levels) {
  if (levels <= 0) return;
  const int now = ::getpriority(PRIO_PROCESS, 0);
  (void)::setpriority(PRIO_PROCESS, 0, std::min(19, now + levels));
  std::ofstream("/proc/self/autogroup") << std::min(19, now + levels);
}

// OpenBLAS allocates a buffer of more than 100 MB per thread when a product first needs it, and retries for ever if that fails. Here it
// gets them before the limit is set.
void warm_up_blas(const SessionLimits& limits) {
  const int threads = std::min(limits.threads, static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  at::set_num_threads(threads);
  const auto square = torch::ones({512, 512});
  (void)torch::mm(square, square);
}

}  // namespace

pid_t start_session(const SessionConfig& config, int output) { return start(config, output); }

std::uint64_t bytes_of_new_session(const SessionLimits& limits) {
  SessionConfig config;
  config.purpose = SessionConfig::Purpose::kSayItsSize;
  config.limits = limits;
  config.limits.memory_bytes = 0;
  Pipe output;
  const pid_t pid = start(config, output.write);
  Pipe::close(output.write);
  const std::string text = read_within(output.read, kSaySeconds);
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  std::uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (error != std::errc() || bytes == 0) throw std::runtime_error("a first session did not start; is the program still where it was?");
  return bytes;
}

SessionConfig become_session() {
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  SessionConfig config;
  try {
    config = from_text(text);
  } catch (const json::exception&) {
    throw std::runtime_error("\"epipe session\" is started by \"epipe serve\", not by hand");
  }
  ::setsid();  // Ctrl-C goes to the server, which tells its sessions
  lower_priority(config.nice);
  limit(RLIMIT_CORE, 0);  // a core file would hold the client's weights
  if (config.purpose != SessionConfig::Purpose::kMeasureLink) warm_up_blas(config.limits);
  if (config.limits.memory_bytes > 0) limit(RLIMIT_DATA, config.limits.memory_bytes);
  return config;
}

// Fields 14 and 15 of stat, counted after the name, which may contain anything but ends with the last parenthesis.
double cpu_seconds(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  double user = 0;
  double system = 0;
  fields >> user >> system;
  return fields ? (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK)) : 0;
}

// The sixth number of statm: pages of data and stack.
std::uint64_t held_bytes(pid_t pid) {
  std::ifstream statm(fmt::format("/proc/{}/statm", pid));
  std::uint64_t pages = 0;
  for (int field = 0; field < 6; ++field) statm >> pages;
  return statm ? pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

}  // namespace epipe::serve
