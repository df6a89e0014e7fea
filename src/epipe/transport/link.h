#pragma once

#include "epipe/base/bytes.h"

namespace epipe::transport {

// One direction of one cut, from one worker to another. Frames arrive whole, once and in order. One thread sends, one receives.
class Link {
 public:
  virtual ~Link() = default;
  // Waits while the link is full. Throws Closed when it was closed here, std::runtime_error with the reason when the peer is lost.
  virtual void send(Bytes frame) = 0;
  virtual Bytes recv() = 0;
  // Ends every wait at once, here and at the peer. Any thread may call it, more than once.
  virtual void close() = 0;
};

}  // namespace epipe::transport
