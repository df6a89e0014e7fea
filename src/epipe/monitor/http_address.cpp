#include "epipe/monitor/http_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace epipe::monitor {
namespace {

struct HostPort {
  std::string host;
  int port = -1;
};

HostPort split(const std::string& text) {
  const auto wrong = [&] { return std::invalid_argument(fmt::format("expected HOST:PORT such as 127.0.0.1:9100, got {}", text)); };
  const auto colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) throw wrong();
  HostPort parts{text.substr(0, colon)};
  const char* const end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data() + colon + 1, end, parts.port);
  if (status != std::errc() || stop != end || parts.port < 0 || parts.port > 65535) throw wrong();
  const bool bracketed = parts.host.front() == '[' && parts.host.back() == ']';
  if (bracketed) parts.host = parts.host.substr(1, parts.host.size() - 2);
  if (parts.host.empty() || (!bracketed && parts.host.find(':') != std::string::npos)) throw wrong();
  return parts;
}

using Resolved = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Resolved resolve(const HostPort& at) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(at.host.c_str(), fmt::to_string(at.port).c_str(), &wanted, &found);
  if (code != 0) throw std::invalid_argument(fmt::format("{} is not the address of a machine: {}", at.host, ::gai_strerror(code)));
  return {found, &::freeaddrinfo};
}

bool is_loopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) return (ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24) == 127;
  return address.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

bool is_number(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> bytes;
  return ::inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 || ::inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

}  // namespace

HttpAddress parse_http_address(const std::string& text) {
  const HostPort parts = split(text);
  const Resolved found = resolve(parts);
  HttpAddress address{.text = text, .host = parts.host};
  std::memcpy(&address.socket_address, found->ai_addr, found->ai_addrlen);
  address.socket_address_bytes = found->ai_addrlen;
  std::array<char, NI_MAXHOST> numeric;
  ::getnameinfo(found->ai_addr, found->ai_addrlen, numeric.data(), numeric.size(), nullptr, 0, NI_NUMERICHOST);
  address.numeric_host = found->ai_family == AF_INET6 ? fmt::format("[{}]", numeric.data()) : numeric.data();
  address.loopback = is_loopback(*found->ai_addr);
  return address;
}

bool may_be_asked_as(std::string_view host_header, const HttpAddress& address) {
  const bool bracketed = host_header.starts_with('[');
  const auto end = std::min(host_header.find(bracketed ? ']' : ':'), host_header.size());
  const std::string host(host_header.substr(bracketed ? 1 : 0, bracketed ? end - 1 : end));
  std::string_view port = host_header.substr(std::min(end + (bracketed ? 1 : 0), host_header.size()));
  if (port.starts_with(':')) port.remove_prefix(1);
  if (port.find_first_not_of("0123456789") != std::string_view::npos) return false;
  return host == "localhost" || host == address.host || is_number(host);
}

}  // namespace epipe::monitor
