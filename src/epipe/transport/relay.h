#pragma once

#include <functional>
#include <memory>
#include <string>

#include "epipe/transport/link.h"

namespace epipe::transport {

// Closes a link and tells the peer why: its end throws ConnectionLost, with the reason if this is the listener's end of a gRPC link.
void close_because(Link& link, const std::string& reason);

// Forwards both ways between two links until one of them ends, then closes the other for the same reason. Between two gRPC links it
// forwards the pieces of a message as they arrive, and holds at most a few per direction while the receiving side is slow.
class Relay {
 public:
  struct Observer {
    std::function<void(const std::string& reason)> on_end{};         // once; must not destroy the relay
    std::function<void(bool from_a, std::size_t bytes)> on_piece{};  // a piece or a whole message, before it is forwarded
  };
  // The relay's threads call the observer.
  Relay(std::unique_ptr<Link> a, std::unique_ptr<Link> b, Observer observer);
  ~Relay();  // closes both and joins

  void close(const std::string& reason);  // any thread
  bool ended() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace epipe::transport
