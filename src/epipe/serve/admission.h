#pragma once

#include <nlohmann/json_fwd.hpp>

#include "epipe/model/registry.h"
#include "epipe/serve/config.h"

namespace epipe::serve {

// Checks that a session may run this plan's part of `worker`: an architecture that `models` knows by name, within the limits. Throws
// std::invalid_argument that says what is allowed.
void admit(const nlohmann::json& plan, int worker, const SessionLimits& limits, const model::Registry& models);

}  // namespace epipe::serve
