#include "epipe/session/participant.h"

#include <c10/util/Exception.h>

#include <new>

#include "epipe/base/queue.h"
#include "epipe/session/reducer.h"

namespace epipe::session {

Reply reply_of(const std::function<Reply()>& work) {
  try {
    return work();
  } catch (const ReplicaLost& error) {
    return ErrorReply{error.what(), true, true};
  } catch (const transport::ConnectionLost& error) {
    return ErrorReply{error.what(), true};
  } catch (const transport::TimedOut& error) {
    return ErrorReply{error.what(), true};
  } catch (const Closed&) {
    return ErrorReply{"the data channel to another process was closed", true};
  } catch (const std::bad_alloc&) {
    return ErrorReply{"there is not enough memory for this command; --session-memory of the server limits it"};
  } catch (const c10::Error& error) {
    return ErrorReply{error.what_without_backtrace()};
  } catch (const std::exception& error) {
    return ErrorReply{error.what()};
  }
}

void handle_commands(transport::Link& coordinator, Participant& participant, transport::Timeout idle) {
  while (!participant.ended()) {
    const auto command = read_command(coordinator.recv(idle));
    const Reply reply = command ? participant.handle(command.value()) : Reply(ErrorReply{command.error().text()});
    try {
      coordinator.send(to_bytes(reply));
    } catch (const transport::ConnectionLost&) {
      if (!participant.ended()) throw;  // after the last answer the coordinator may leave at once
    }
  }
}

}  // namespace epipe::session
