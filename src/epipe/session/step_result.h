#pragma once

#include <nlohmann/json_fwd.hpp>

#include "epipe/pipeline/pipeline.h"

// What one process knows of a step, for the client that puts them together.
namespace epipe::session {

nlohmann::json to_json(const pipeline::StepResult& result);
// Throws std::invalid_argument.
pipeline::StepResult step_result_from_json(const nlohmann::json& json);
// Throws std::invalid_argument where it does not fit a pipeline with so many cuts and workers.
void check_fits(const pipeline::StepResult& result, std::size_t cuts, std::size_t workers);
// Of a step in which nothing was computed.
pipeline::StepResult no_result(std::size_t cuts, std::size_t workers);
// Adds what another process knows of the same samples.
void merge(pipeline::StepResult& into, const pipeline::StepResult& other);
// Adds what another replica did with other samples; its workers follow those that are there.
void add_replica(pipeline::StepResult& into, const pipeline::StepResult& replica);

}  // namespace epipe::session
