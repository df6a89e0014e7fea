#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>

namespace epipe::monitor {

struct HttpAddress {
  std::string text;  // as it was given
  std::string host;  // of that, without brackets
  sockaddr_storage socket_address{};
  socklen_t socket_address_bytes = 0;
  std::string numeric_host{};  // "127.0.0.1", "[::1]"
  bool loopback = false;       // nobody outside this machine reaches it
};

// Throws std::invalid_argument: expected HOST:PORT, got ...
HttpAddress parse_http_address(const std::string& text);

// Whether a request's Host header names a server on loopback itself: an address, localhost, or the host it was told to listen on. Any other
// name is one that somebody else may have pointed here.
bool may_be_asked_as(std::string_view host_header, const HttpAddress& address);

}  // namespace epipe::monitor
