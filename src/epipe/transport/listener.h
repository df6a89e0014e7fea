#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "epipe/transport/network_config.h"
#include "epipe/transport/refused.h"

namespace epipe::transport {

class ServerStream;

// A link that somebody asks for, with the right token or certificate. Not answering is refusing.
class Incoming {
 public:
  explicit Incoming(std::shared_ptr<ServerStream> stream);
  ~Incoming();
  Incoming(Incoming&&) noexcept;
  Incoming& operator=(Incoming&&) = delete;

  const std::map<std::string, std::string>& metadata() const;
  const std::string& peer() const;              // "ipv4:127.0.0.1:54321", for logs
  const std::string& certificate_name() const;  // the common name in the client's verified certificate; empty without one
  const std::string& credential() const;        // that certificate itself; empty for those who showed a token, or nothing
  const std::string& token_name() const;        // of the named token that was shown; empty for all others
  // One of these, once.
  std::unique_ptr<Link> accept();
  void refuse(Refusal why, const std::string& text);

 private:
  std::shared_ptr<ServerStream> stream_;  // shared with gRPC, whose threads call it until the stream is over
};

// Accepts links at an address, and answers the gRPC health service there.
class Listener {
 public:
  // Called by one thread of the listener, one after the other; may take its time.
  using OnIncoming = std::function<void(Incoming)>;

  // Throws std::invalid_argument (plaintext on an address others reach, no way to authenticate, a certificate that does not parse) or
  // std::runtime_error (the address is taken).
  Listener(ListenConfig config, OnIncoming on_incoming);
  ~Listener();  // shutdown()

  int port() const;  // 0 for Unix sockets
  // Whether it still listens; false when the operating system took its socket away.
  bool alive() const;
  // What the health service says: false while the server drains. True at first.
  void set_serving(bool serving);
  // Certificate, clients' CA and tokens of this configuration from now on, for whoever connects; connections that exist stay. Throws
  // std::invalid_argument, and leaves everything as it was, where they make no sense.
  void renew(const ListenConfig& config);
  // No new links; those that exist are closed, and lost at their peers after `grace`. Idempotent.
  void shutdown(Timeout grace = std::chrono::seconds(1));

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace epipe::transport
