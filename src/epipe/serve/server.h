#pragma once

#include <atomic>
#include <functional>

#include "epipe/serve/config.h"

namespace epipe::serve {

// Holds middle stages for clients, each session in its own process, until `stop` is set: then no new session begins, clients are asked to
// save and leave, and the call returns when the sessions have ended or their time for that is up. Passes the port to `on_ready`. Throws
// std::invalid_argument or std::runtime_error if it cannot listen.
void serve(const ServeConfig& config, const std::atomic<bool>& stop, const std::function<void(int port)>& on_ready);

}  // namespace epipe::serve
