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
  // Both directions, now: whoever waits on it returns.
  void shut() const;
  // What has arrived up to and with `end`, within so many seconds and bytes; empty where it did not come to that.
  std::string read_until(std::string_view end, std::size_t most, double seconds) const;
  // False where the other side does not take it within so many seconds.
  bool write(std::string_view text, double seconds) const;
  int port() const;  // of this side

 private:
  int fd_;
};

// Throws std::runtime_error: cannot listen on ..., with the reason.
Socket listen_at(const HttpAddress& address);

}  // namespace epipe::monitor
