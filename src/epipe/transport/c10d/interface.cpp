#include "epipe/transport/c10d/interface.h"

#include <fmt/format.h>
#include <netdb.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace epipe::transport {
namespace {

constexpr int kAnyPort = 9;

// Connecting a datagram socket sends nothing; it only makes the kernel choose a route.
std::string source_address(const SocketAddress& target) {
  const int fd = ::socket(target.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return {};
  SocketAddress own;
  own.size = sizeof(own.storage);
  const bool found =
      ::connect(fd, target.get(), target.size) == 0 && ::getsockname(fd, reinterpret_cast<sockaddr*>(&own.storage), &own.size) == 0;
  ::close(fd);
  return found ? own.text() : std::string();
}

}  // namespace

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

std::string SocketAddress::text() const {
  std::array<char, NI_MAXHOST> name{};
  const bool known = ::getnameinfo(get(), size, name.data(), name.size(), nullptr, 0, NI_NUMERICHOST) == 0;
  return known ? name.data() : std::string();
}

std::vector<SocketAddress> resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), fmt::to_string(port).c_str(), &hints, &found); error != 0) {
    throw std::runtime_error(fmt::format("cannot resolve '{}': {}", host, ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, ::freeaddrinfo);
  std::vector<SocketAddress> all;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    SocketAddress address;
    address.size = one->ai_addrlen;
    std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
    all.push_back(address);
  }
  return all;
}

std::string address_towards(const std::string& host) {
  for (const SocketAddress& target : resolve(host, kAnyPort)) {
    if (const auto address = source_address(target); !address.empty()) return address;
  }
  throw std::runtime_error(fmt::format("no way to '{}'", host));
}

}  // namespace epipe::transport
