#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "epipe/transport/network_config.h"
#include "epipe/transport/refused.h"

namespace epipe::transport {

class ServerStream;

// A request for a link, already authenticated by token or certificate. Destroying it unanswered refuses it.
class Incoming {
 public:
  explicit Incoming(std::shared_ptr<ServerStream> stream);
  ~Incoming();
  Incoming(Incoming&&) noexcept;
  Incoming& operator=(Incoming&&) = delete;

  const std::map<std::string, std::string>& metadata() const;
  const std::string& peer() const;              // "ipv4:127.0.0.1:54321", for logs
  const std::string& certificate_name() const;  // the common name in the client's verified certificate; empty without one
  const std::string& credential() const;        // that certificate itself; empty for clients with a token, or without either
  const std::string& token_name() const;        // the name of the client's named token; empty for all others
  bool gone() const;  // the client gave up; whatever is answered now reaches nobody
  // Call one of these, once.
  std::unique_ptr<Link> accept();
  void refuse(Refusal why, const std::string& text);

 private:
  std::shared_ptr<ServerStream> stream_;  // shared with gRPC, whose threads call it until the stream ends
};

// Accepts links at an address, and answers the gRPC health service there.
class Listener {
 public:
  // Called by one thread of the listener, one request after the other; may block.
  using OnIncoming = std::function<void(Incoming)>;

  // Throws std::invalid_argument (plaintext on an address reachable by others, no way to authenticate, a certificate that does not parse)
  // or std::runtime_error (the address is taken).
  Listener(ListenConfig config, OnIncoming on_incoming);
  ~Listener();  // shutdown()

  int port() const;  // 0 for Unix sockets
  // Whether it still listens; false when the operating system took its socket away.
  bool alive() const;
  // Sets what the health service reports: false while the server drains. Initially true.
  void set_serving(bool serving);
  // Uses certificate, clients' CA and tokens of this configuration for new connections; existing ones stay. Throws std::invalid_argument,
  // and changes nothing, if they are invalid.
  void renew(const ListenConfig& config);
  // Accepts no new links; existing ones are closed, and lost at their peers after `grace`. Idempotent.
  void shutdown(Timeout grace = std::chrono::seconds(1));

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace epipe::transport
