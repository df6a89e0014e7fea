#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "epipe/serve/session.h"

// A session as a process: this program again, with the command "session" and its configuration on stdin, where no other user sees the
// ticket. It ends when the server does, however that ends. Limits that a session cannot be trusted with are kept by the server, see
// sessions.h.
namespace epipe::serve {

// Throws std::runtime_error when it does not start. Call it from a thread that lives as long as the server: the operating system ties the
// child's life to that thread. `output`: its stdout; -1: the server's own.
pid_t start_session(const SessionConfig& config, int output = -1);
// Bytes that a session holds before it has a model, by starting one that says so and ends. Throws std::runtime_error.
std::uint64_t bytes_of_new_session(const SessionLimits& limits);

// The other half of start_session, in the new process: reads the configuration, takes the buffers that operators need all the time, then
// the limit on memory. Throws std::runtime_error.
SessionConfig become_session();

// Bytes of a process that the limit on a session's memory counts; 0 when it is gone.
std::uint64_t held_bytes(pid_t pid);
// What a process has had of the CPU, all its threads together; 0 when it is gone.
double cpu_seconds(pid_t pid);

}  // namespace epipe::serve
