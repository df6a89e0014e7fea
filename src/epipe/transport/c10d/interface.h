#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

namespace epipe::transport {

// An address as the calls of sockets take it.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  std::string text() const;  // "127.0.0.1", without the port
};

// Whether the last call on a socket failed only because it would have had to wait.
bool would_block();

// All addresses of a host, by name or number. Throws std::runtime_error.
std::vector<SocketAddress> resolve(const std::string& host, int port);

// The address of this machine from which `host` is reached: 127.0.0.1 for the machine itself. Throws std::runtime_error.
std::string address_towards(const std::string& host);

}  // namespace epipe::transport
