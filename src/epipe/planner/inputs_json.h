#pragma once

#include <nlohmann/json_fwd.hpp>

#include "epipe/planner/inputs.h"

namespace epipe::planner {

// The tables of a plan, without its constraints: what `epipe plan --json` prints as "inputs" and `--costs` reads.
nlohmann::ordered_json to_json(const Inputs& inputs);

// Trusts nothing; the error names the field. The result is valid.
Result<Inputs> inputs_from_json(const nlohmann::json& json);

}  // namespace epipe::planner
