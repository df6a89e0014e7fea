#pragma once

#include <functional>
#include <memory>
#include <string>

#include "epipe/transport/link.h"

namespace epipe::transport {

// Closes a link and tells the peer why: its end throws Lost with the reason, when this is the listener's end of a gRPC link, and without
// it otherwise.
void close_because(Link& link, const std::string& reason);

// Forwards both ways between two links until one of them ends, then closes the other for the same reason. Between two gRPC links the
// pieces of a message go on as they arrive; either way at most a few of them are held while the receiving side is slow.
class Relay {
 public:
  // `on_end` is called once, by a thread of the relay, with the reason; it must not destroy the relay.
  Relay(std::unique_ptr<Link> a, std::unique_ptr<Link> b, std::function<void(const std::string& reason)> on_end);
  ~Relay();  // closes both and joins

  void close(const std::string& reason);  // any thread
  bool ended() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace epipe::transport
