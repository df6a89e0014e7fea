#pragma once

#include <memory>
#include <string>
#include <vector>

#include "epipe/model/architecture.h"
#include "epipe/session/local_trainer.h"
#include "epipe/train/plan.h"

namespace epipe::train {

// "cuda" means the device of this rank: the ranks of a machine have different devices if there are enough.
torch::Device device_of(const std::string& name, int local_rank);

// The workers of one process and their resources.
struct LocalWorkers {
  std::vector<int> workers;                      // empty: all workers of the plan
  std::vector<torch::Device> devices;            // by worker of the plan; empty: the CPU
  Tracer* tracer = nullptr;                      // outlives the trainer; null: no timeline
  std::int64_t input_edge = 0;                   // see pipeline/pipeline.h
  int codec_threads = 1;                         // the same
  bool graphs = true;                            // the same
  pipeline::Loss loss{};                         // if the last stage is here; null: by the plan's data, see loss.h
  pipeline::TensorObserver observer{};           // sees the tensors that cross the cuts; may be null
  std::unique_ptr<transport::Group> replicas{};  // the only local worker, in all replicas; null: one replica
  std::size_t bucket_bytes = std::size_t{4} << 20;
  std::string reuse_key{};                                // see pipeline::ReuseConfig
  std::shared_ptr<boundary::FrameStore> reused_frames{};  // the same; shared with the trainer
};

// A resolved plan: the architecture with learned codecs as layers, and the matching plan.
struct Resolved {
  model::Architecture architecture;
  Plan plan;
};
// `look`: makes a separate architecture of the same model, for a forward that must not touch the first; empty: it may.
Resolved resolve(const Plan& plan, const model::Architecture& architecture, const std::function<model::Architecture()>& look = {});

// Builds only the layers of these workers, uninitialized.
std::unique_ptr<session::LocalTrainer> make_local_trainer(const Resolved& run, LocalWorkers own);

}  // namespace epipe::train
