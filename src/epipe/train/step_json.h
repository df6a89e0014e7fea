#pragma once

#include <nlohmann/json_fwd.hpp>

#include "epipe/pipeline/pipeline.h"

// What one process knows of a step, for the client that puts them together.
namespace epipe::train {

nlohmann::json to_json(const pipeline::StepResult& result);
// Throws std::invalid_argument where it does not fit a pipeline with so many cuts and workers.
pipeline::StepResult step_result_from_json(const nlohmann::json& json, std::size_t cuts, std::size_t workers);
// Adds what another process knows.
void merge(pipeline::StepResult& into, const pipeline::StepResult& other);

}  // namespace epipe::train
