#pragma once

#include <atomic>
#include <functional>

#include "epipe/serve/config.h"

namespace epipe::serve {

// Holds middle stages for clients, each session in a process of its own, until `stop` is set: then no new session begins, clients are
// asked to save and leave, and the call returns when the sessions have ended or the time for that is over. `on_ready` is told the port.
// Throws std::invalid_argument or std::runtime_error when it cannot listen.
void serve(const ServeConfig& config, const std::atomic<bool>& stop, const std::function<void(int port)>& on_ready);

}  // namespace epipe::serve
