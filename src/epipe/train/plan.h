#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "epipe/data/data_spec.h"
#include "epipe/pipeline/pipeline.h"
#include "epipe/train/config.h"

namespace epipe::train {

// What all processes of a run must have in common: the shared settings, and what the client makes of its own: the data's shape, cuts as
// layer indices, a codec for every cut and direction. It goes from the client to the others as text, and into checkpoints; `client` stays
// with the client.
struct Plan : SharedSettings {
  data::DataSpec data;
  std::uint64_t seed = 0;                   // of dropout: worker_seed() of the client's
  std::vector<std::size_t> cuts;            // layer indices
  std::vector<pipeline::CutCodecs> codecs;  // by cut
  std::vector<std::size_t> frozen;          // layer indices, of those that --freeze names
  std::size_t first_trained = 0;            // layer index: those before it are not trained and get no gradient
  bool loss_scaling = false;
  int delay = 0;                              // steps that gradients are applied late
  int in_flight = 0;                          // see schedule/generate.h
  schedule::Costs costs{};                    // what the schedule is ordered for; no stages: equal ones
  std::map<std::string, std::string> client;  // what only the client uses and a resumed run must have again, by setting
};

// What all workers of a run draw their random numbers from. The client's seed, which decides first weights and the order of the data,
// cannot be computed back from it.
std::uint64_t worker_seed(std::uint64_t client_seed);

// What leaves the client.
nlohmann::json to_json(const Plan& plan);
// What a checkpoint here must agree with: the same, and what only the client uses where this is the client.
nlohmann::json checkpoint_fingerprint(const Plan& plan);
// Trusts nothing. Throws std::invalid_argument that names the field.
Plan plan_from_json(const nlohmann::json& json);

// Whether a checkpoint with this fingerprint belongs to the run. Throws std::invalid_argument that names what differs, in flags, and what
// a resumed run may change.
void require_same_run(const Plan& plan, const std::string& fingerprint);

// "--batch: 32 here, 64 there; --codec: ..."; empty where they agree.
std::string differences(const nlohmann::json& here, const nlohmann::json& there);

// The stage that has a layer.
int stage_of_layer(const Plan& plan, std::size_t layer);

// The pipeline of the plan, for workers that are all here and on the CPU.
pipeline::PipelineConfig pipeline_config(const Plan& plan);

}  // namespace epipe::train
