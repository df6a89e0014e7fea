#pragma once

#include <nlohmann/json_fwd.hpp>

#include "epipe/pipeline/pipeline.h"

// One process's part of a step's result, for the client that merges them.
namespace epipe::session {

nlohmann::json to_json(const pipeline::StepResult& result);
// Throws std::invalid_argument.
pipeline::StepResult step_result_from_json(const nlohmann::json& json);
// Throws std::invalid_argument if it does not fit a pipeline with `cuts` cuts and `workers` workers.
void check_fits(const pipeline::StepResult& result, std::size_t cuts, std::size_t workers);
// The result of a step in which nothing was computed.
pipeline::StepResult no_result(std::size_t cuts, std::size_t workers);
// Adds another process's result for the same samples.
void merge(pipeline::StepResult& into, const pipeline::StepResult& other);
// Adds another replica's result for other samples; its workers are appended.
void add_replica(pipeline::StepResult& into, const pipeline::StepResult& replica);

}  // namespace epipe::session
