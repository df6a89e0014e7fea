#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

namespace epipe::transport {

// An address in the form socket calls take.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  std::string text() const;  // "127.0.0.1", without the port
};

// Whether the last socket call failed only because it would have blocked.
bool would_block();

// All addresses of a host, given by name or number. Throws std::runtime_error.
std::vector<SocketAddress> resolve(const std::string& host, int port);

// The address of this machine from which `host` is reached: 127.0.0.1 for the machine itself. Throws std::runtime_error.
std::string address_towards(const std::string& host);

}  // namespace epipe::transport
