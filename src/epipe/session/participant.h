#pragma once

#include <functional>

#include "epipe/session/messages.h"
#include "epipe/transport/link.h"

namespace epipe::session {

// A process of a run that the coordinator commands.
class Participant {
 public:
  virtual ~Participant() = default;
  // Executes a command; never throws. Returns an ErrorReply on failure.
  virtual Reply handle(const Command& command) = 0;
  virtual bool ended() const = 0;
};

// Returns the result of `work`, or an ErrorReply with its exception.
Reply reply_of(const std::function<Reply()>& work);

// Handles commands until the run has ended. Throws ConnectionLost when the coordinator is lost, TimedOut after `idle` without a command,
// or Closed.
void handle_commands(transport::Link& coordinator, Participant& participant, transport::Timeout idle);

}  // namespace epipe::session
