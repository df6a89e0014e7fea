#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "epipe/transport/grpc/endpoint.h"

namespace epipe::transport {

// Accepts the TCP connections of a listener, in place of gRPC: gRPC 1.51 stops accepting for good when a process runs out of file
// descriptors, and has no limit on connections. This one closes connections above the limits at once, reports them, and goes on.
class Acceptor {
 public:
  struct Limits {
    int connections = 0;    // open at once
    int per_address = 0;    // from one host
    Timeout acknowledge{};  // for a peer to acknowledge what it is sent
  };
  struct Handlers {
    std::function<void(int fd)> accepted;  // takes ownership of the descriptor
    std::function<void(const std::string& peer, const std::string& reason)> refused;
  };

  // Opens sockets of its own unless some are handed over. Throws std::runtime_error if the address is taken or not on this machine, or if
  // what is handed over does not listen there.
  Acceptor(const Address& address, const std::vector<int>& handed_over, Limits limits, Handlers handlers);
  ~Acceptor();  // stop()
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  int port() const { return port_; }
  void start();
  void stop();
  // Whether it still accepts; false when the operating system took its sockets away.
  bool alive() const { return alive_; }

 private:
  struct Open {
    int fd = -1;       // gRPC owns and closes it
    ino_t socket = 0;  // its inode when accepted; if it differs now, the socket was closed
    std::string host;
  };

  void open_sockets(const Address& address);
  void run();
  void accept_all(int listening);
  void take(int fd, const std::string& host, const std::string& peer);
  void forget_closed();
  void shed(int listening);

  const Limits limits_;
  const Handlers handlers_;
  const bool own_sockets_;
  std::vector<int> listening_;
  int port_ = 0;
  int wake_ = -1;   // an eventfd: stop
  int spare_ = -1;  // released briefly when descriptors run out, to accept and close waiting connections
  std::vector<Open> open_;
  std::atomic<bool> alive_ = true;
  std::thread thread_;
};

}  // namespace epipe::transport
