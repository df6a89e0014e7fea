#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "epipe/session/worker_participant.h"
#include "epipe/train/registry.h"

namespace epipe::train {

// How a process builds its part of a run that another process coordinates.
struct SpecTrainerConfig {
  const Registry* registry = nullptr;  // outlives the participant
  // Checks the spec for this worker before anything is built from it: throws std::invalid_argument to refuse. May be empty.
  std::function<void(const nlohmann::json& spec, int worker)> admit;
  torch::Device device = torch::kCPU;
  int codec_threads = 1;                            // of each sender and receiver
  bool graphs = true;                               // see pipeline/pipeline.h
  pipeline::Loss loss{};                            // if the last stage is here; null: by the data
  std::unique_ptr<transport::Group> replicas{};     // its worker in all replicas; null: one replica
  bool has_replicas = false;                        // filled in: the first trainer takes the group
  std::size_t bucket_bytes = std::size_t{4} << 20;  // of gradients that replicas sum together
  std::string activations{};                        // file for the activations of --reuse-activations; empty: keeps none
  std::uint64_t activation_bytes = 0;               // size limit of that file
};

// Sets the functions by which a participant makes its trainer and compares specs.
void make_trainers_from_specs(session::ParticipantConfig& participant, SpecTrainerConfig config);

}  // namespace epipe::train
