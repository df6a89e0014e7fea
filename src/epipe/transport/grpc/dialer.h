#pragma once

#include <map>
#include <memory>
#include <string>

#include "epipe/transport/grpc/config.h"
#include "epipe/transport/grpc/refused.h"

namespace epipe::transport {

// One connection to a listener. Links outlive it. Their reconnecting is the caller's: open another one.
class Dialer {
 public:
  // Connects nothing yet. Throws std::invalid_argument: plaintext to another machine, a certificate that does not parse, ...
  explicit Dialer(DialConfig config);
  ~Dialer();

  // A link of its own stream; the listener's side sees `about` (names in lower case, short printable values), e.g. the session and the
  // channel. Throws Refused with the listener's reason, or Lost when it was not reached within the connect timeout. Any thread.
  std::unique_ptr<Link> open(const std::map<std::string, std::string>& about);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace epipe::transport
