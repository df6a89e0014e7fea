#pragma once

#include "epipe/transport/link.h"

namespace epipe::transport {

enum class Refusal {
  kUnauthenticated,  // no token or certificate that the listener accepts
  kUntrusted,        // TLS failed: another CA, another name, or no TLS at all on the other side; reported by the connector
  kVersion,          // the peer has another protocol version
  kFull,             // no room at the moment: try again later
  kNotFound,         // no such session or channel
  kEnded,            // the listener's operator has ended what was requested
  kOther,
};

// The listener did not accept the link, or the connector did not accept the listener; what() has the reason.
class Refused : public ConnectionLost {
 public:
  Refused(Refusal why, const std::string& text) : ConnectionLost(text), why_(why) {}
  Refusal why() const { return why_; }

 private:
  Refusal why_;
};

// Whether retrying would give the same answer.
inline bool is_final(const Refused& refused) {
  return refused.why() == Refusal::kUnauthenticated || refused.why() == Refusal::kVersion || refused.why() == Refusal::kEnded;
}

}  // namespace epipe::transport
