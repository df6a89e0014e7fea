#pragma once

#include <functional>

#include "epipe/session/messages.h"
#include "epipe/transport/link.h"

namespace epipe::session {

// A process of a run that the coordinator commands.
class Participant {
 public:
  virtual ~Participant() = default;
  // Carries a command out; never throws. What cannot be carried out is an ErrorReply.
  virtual Reply handle(const Command& command) = 0;
  virtual bool ended() const = 0;
};

// What `work` returns, or an ErrorReply with what it throws.
Reply reply_of(const std::function<Reply()>& work);

// Handles what arrives until the run has ended. Throws ConnectionLost when the coordinator is, TimedOut after `idle` without a command,
// Closed.
void handle_commands(transport::Link& coordinator, Participant& participant, transport::Timeout idle);

}  // namespace epipe::session
