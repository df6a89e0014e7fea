#include "epipe/transport/handed_over.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>

#include "epipe/base/printable.h"

namespace epipe::transport {
namespace {

constexpr int kFirst = 3;
constexpr int kMost = 64;

std::optional<std::string> taken_variable(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  std::string text = value;
  ::unsetenv(name);
  return text;
}

}  // namespace

std::vector<int> take_handed_over_sockets() {
  const auto process = taken_variable("LISTEN_PID");
  const auto text = taken_variable("LISTEN_FDS");
  (void)taken_variable("LISTEN_FDNAMES");
  if (!process || !text || *process != std::to_string(::getpid())) return {};
  int count = 0;
  const auto parsed = std::from_chars(text->data(), text->data() + text->size(), count);
  if (parsed.ec != std::errc() || parsed.ptr != text->data() + text->size() || count < 0 || count > kMost) {
    throw std::runtime_error(fmt::format("LISTEN_FDS: expected a number of sockets of at most {}, got {}", kMost, printable(*text)));
  }
  std::vector<int> sockets;
  for (int fd = kFirst; fd < kFirst + count; ++fd) {
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    sockets.push_back(fd);
  }
  return sockets;
}

}  // namespace epipe::transport
