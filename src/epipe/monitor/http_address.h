#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>

namespace epipe::monitor {

struct HttpAddress {
  std::string text;  // as given
  std::string host;  // its host, without brackets
  sockaddr_storage socket_address{};
  socklen_t socket_address_bytes = 0;
  std::string numeric_host{};  // "127.0.0.1", "[::1]"
  bool loopback = false;       // reachable only from this machine
};

// Throws std::invalid_argument: expected HOST:PORT, got ...
HttpAddress parse_http_address(const std::string& text);

// Whether a request's Host header really names this loopback server: an address, localhost, or the configured host. Any other name may be
// a DNS name that somebody else pointed here.
bool may_be_asked_as(std::string_view host_header, const HttpAddress& address);

}  // namespace epipe::monitor
