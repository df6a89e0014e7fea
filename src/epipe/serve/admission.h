#pragma once

#include <nlohmann/json_fwd.hpp>

#include "epipe/serve/config.h"

namespace epipe::serve {

// Whether a session may run this plan's part of `worker`: an architecture the server knows by name, within the limits. Throws
// std::invalid_argument that says what is allowed.
void admit(const nlohmann::json& plan, int worker, const SessionLimits& limits);

}  // namespace epipe::serve
