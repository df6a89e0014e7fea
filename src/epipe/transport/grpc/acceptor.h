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
// descriptors, and has no limit on connections. This one closes what is above the limits at once, says so, and goes on.
class Acceptor {
 public:
  struct Limits {
    int connections = 0;    // open at once
    int per_address = 0;    // of one host
    Timeout acknowledge{};  // of a peer that is sent something
  };
  struct Handlers {
    std::function<void(int fd)> accepted;  // takes the descriptor, and closes it some day
    std::function<void(const std::string& peer, const std::string& reason)> refused;
  };

  // Throws std::runtime_error when the address is taken or not of this machine.
  Acceptor(const Address& address, Limits limits, Handlers handlers);
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
    int fd = -1;       // ours no longer: gRPC closes it
    ino_t socket = 0;  // what it was when it was accepted; another one: it was closed since
    std::string host;
  };

  void run();
  void accept_all(int listening);
  void take(int fd, const std::string& host, const std::string& peer);
  void forget_closed();
  void shed(int listening);

  const Limits limits_;
  const Handlers handlers_;
  std::vector<int> listening_;
  int port_ = 0;
  int wake_ = -1;   // an event: stop
  int spare_ = -1;  // given up for a moment when descriptors run out, to close who waits
  std::vector<Open> open_;
  std::atomic<bool> alive_ = true;
  std::thread thread_;
};

}  // namespace epipe::transport
