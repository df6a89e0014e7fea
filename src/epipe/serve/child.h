#pragma once

#include <sys/types.h>

#include <string>

#include "epipe/serve/session.h"

namespace epipe::serve {

// The process of a session: this program again, with the command "session" and its configuration on stdin, where no other user sees
// the ticket. It ends when this process does, however that ends.
//
// Throws std::runtime_error when it does not start. Call it from a thread that lives as long as the server: the operating system
// ties the child's life to that thread.
pid_t start_session(const SessionConfig& config);

// The configuration that start_session wrote to this process. Throws std::runtime_error.
SessionConfig read_session_config();
// Bytes of this process that the limit on a session's memory counts.
std::uint64_t held_bytes();
// The other half of start_session: limits on the process, and its end when the server ends.
void become_session(const SessionLimits& limits);

}  // namespace epipe::serve
