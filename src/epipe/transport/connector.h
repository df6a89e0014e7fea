#pragma once

#include <map>
#include <memory>
#include <string>

#include "epipe/transport/network_config.h"
#include "epipe/transport/refused.h"

namespace epipe::transport {

// One connection to a listener. Links outlive it. Their reconnecting is the caller's: open another one.
class Connector {
 public:
  // Connects nothing yet. Throws std::invalid_argument: plaintext to another machine, a certificate that does not parse, ...
  explicit Connector(ConnectConfig config);
  ~Connector();

  // A link of its own stream; the listener's side sees `about` (names in lower case, short printable values), e.g. the session and the
  // channel. Throws Refused with the listener's reason, or ConnectionLost when it was not reached within the connect timeout. Any thread.
  std::unique_ptr<Link> open(const std::map<std::string, std::string>& about);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace epipe::transport
