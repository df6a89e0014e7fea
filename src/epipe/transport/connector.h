#pragma once

#include <map>
#include <memory>
#include <string>

#include "epipe/transport/network_config.h"
#include "epipe/transport/refused.h"

namespace epipe::transport {

// One connection to a listener. Links outlive it. Reconnecting is up to the caller: open another link.
class Connector {
 public:
  // Does not connect yet. Throws std::invalid_argument: plaintext to another machine, a certificate that does not parse, ...
  explicit Connector(ConnectConfig config);
  ~Connector();

  // Opens a link on its own stream; the listener sees `about` (lower-case names, short printable values), e.g. the session and the
  // channel. Throws Refused with the listener's reason, or ConnectionLost if it was not reached within the connect timeout. Any thread.
  std::unique_ptr<Link> open(const std::map<std::string, std::string>& about);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace epipe::transport
