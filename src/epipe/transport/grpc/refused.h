#pragma once

#include "epipe/transport/link.h"

namespace epipe::transport {

enum class Refusal {
  kUnauthenticated,  // no token or certificate that the listener accepts
  kVersion,          // a peer of another protocol version
  kFull,             // no room at the moment: try again later
  kNotFound,         // no such session or channel
  kOther,
};

// The listener did not accept the link; what() has its reason.
class Refused : public Lost {
 public:
  Refused(Refusal why, const std::string& text) : Lost(text), why_(why) {}
  Refusal why() const { return why_; }

 private:
  Refusal why_;
};

}  // namespace epipe::transport
