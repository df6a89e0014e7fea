#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "epipe/monitor/http_address.h"

namespace epipe::monitor {

// A descriptor that is closed with the object.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int fd() const { return fd_; }
  // Shuts down both directions: all waits on it return.
  void shut() const;
  // Reads up to and including `end`; empty if `end` does not arrive within `seconds` and `most` bytes.
  std::string read_until(std::string_view end, std::size_t most, double seconds) const;
  // False if the other side does not take it within `seconds`.
  bool write(std::string_view text, double seconds) const;
  int port() const;  // of this side

 private:
  int fd_;
};

// Throws std::runtime_error with the reason.
Socket listen_at(const HttpAddress& address);

}  // namespace epipe::monitor
