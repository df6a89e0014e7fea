#pragma once

#include "epipe/transport/link.h"

namespace epipe::transport {

enum class Refusal {
  kUnauthenticated,  // no token or certificate that the listener accepts
  kUntrusted,        // no TLS between the two: another CA, another name, or no TLS at all on the other side; said by the dialer
  kVersion,          // a peer of another protocol version
  kFull,             // no room at the moment: try again later
  kNotFound,         // no such session or channel
  kOther,
};

// The listener did not accept the link, or the dialer not the listener; what() has the reason.
class Refused : public Lost {
 public:
  Refused(Refusal why, const std::string& text) : Lost(text), why_(why) {}
  Refusal why() const { return why_; }

 private:
  Refusal why_;
};

}  // namespace epipe::transport
