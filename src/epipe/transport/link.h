#pragma once

#include <chrono>
#include <stdexcept>

#include "epipe/base/bytes.h"

namespace epipe::transport {

using Timeout = std::chrono::milliseconds;
inline constexpr Timeout kNoTimeout = Timeout::max();

// The peer, or the connection to it, is gone; what() says which and why.
class ConnectionLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Nothing arrived in time. The link is still usable.
class TimedOut : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// One end of a two-way connection to a peer. Messages (frames, or commands) arrive whole, once and in order. One thread sends and one
// receives, possibly at the same time.
class Link {
 public:
  virtual ~Link() = default;
  // Waits while the link is full. Throws Closed if it was closed here, ConnectionLost if the peer is gone or takes nothing for too long.
  virtual void send(Bytes message) = 0;
  // The next message. Throws Closed, ConnectionLost, or TimedOut if none arrived within `timeout`.
  virtual Bytes recv(Timeout timeout) = 0;
  // Ends all waits at once, here and at the peer. Any thread may call it, more than once.
  virtual void close() = 0;
};

}  // namespace epipe::transport
