#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "epipe/serve/session.h"

// A session as a process: this program again, with the command "session" and its configuration on stdin, where no other user can see the
// ticket. It ends when the server does, in whatever way. The server enforces limits that a session cannot be trusted with, see sessions.h.
namespace epipe::serve {

// Throws std::runtime_error if it does not start. Call it from a thread that lives as long as the server: the operating system ties the
// child's life to that thread. `output`: its stdout; -1: the server's own.
pid_t start_session(const SessionConfig& config, int output = -1);
// Bytes a session holds before it has a model, measured by starting one that reports them and ends. Throws std::runtime_error.
std::uint64_t bytes_of_new_session(const SessionLimits& limits);

// The other half of start_session, in the new process: reads the configuration, allocates permanent buffers of operators, then sets the
// memory limit. Throws std::runtime_error.
SessionConfig become_session();

// The bytes of a process that count towards a session's memory limit; 0 if it is gone.
std::uint64_t held_bytes(pid_t pid);
// The CPU time of a process, over all its threads; 0 if it is gone.
double cpu_seconds(pid_t pid);

}  // namespace epipe::serve
