#include "epipe/transport/c10d/interface.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <stdexcept>

namespace epipe::transport {
namespace {

// Connecting a datagram socket sends nothing; it asks the kernel for the way.
std::string source_address(const addrinfo& target) {
  const int fd = ::socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return {};
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  auto* const generic = reinterpret_cast<sockaddr*>(&own);
  std::array<char, NI_MAXHOST> text{};
  const bool found = ::connect(fd, target.ai_addr, target.ai_addrlen) == 0 && ::getsockname(fd, generic, &size) == 0 &&
                     ::getnameinfo(generic, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0;
  ::close(fd);
  return found ? text.data() : std::string();
}

}  // namespace

std::string address_towards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), "9", &hints, &found); error != 0) {
    throw std::runtime_error(fmt::format("cannot resolve '{}': {}", host, ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, ::freeaddrinfo);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    if (const auto address = source_address(*one); !address.empty()) return address;
  }
  throw std::runtime_error(fmt::format("no way to '{}'", host));
}

}  // namespace epipe::transport
