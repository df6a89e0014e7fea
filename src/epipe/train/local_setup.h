#pragma once

#include <memory>
#include <string>
#include <vector>

#include "epipe/model/architecture.h"
#include "epipe/session/local_trainer.h"
#include "epipe/train/plan.h"

namespace epipe::train {

// "cuda" is the device of this rank: each rank of a machine has another, as far as there are enough.
torch::Device device_of(const std::string& name, int local_rank);

// The workers of one process and what they run on.
struct LocalWorkers {
  std::vector<int> workers;                      // empty: all of the plan
  std::vector<torch::Device> devices;            // by worker of the plan; empty: the CPU
  Tracer* tracer = nullptr;                      // outlives the trainer; null: no timeline
  std::int64_t input_edge = 0;                   // see pipeline/pipeline.h
  int codec_threads = 1;                         // the same
  bool graphs = true;                            // the same
  pipeline::Loss loss{};                         // where the last stage is here; null: by the plan's data, see loss.h
  pipeline::TensorObserver observer{};           // sees what crosses the cuts; null: nobody looks
  std::unique_ptr<transport::Group> replicas{};  // the only worker that is here, in all replicas; null: there is one
  std::size_t bucket_bytes = std::size_t{4} << 20;
  std::string reuse_key{};                                // see pipeline::ReuseConfig
  std::shared_ptr<boundary::FrameStore> reused_frames{};  // the same; shared with the trainer
};

// What a plan names, put together: the architecture with learned codecs as layers, and the plan that goes with it.
struct Resolved {
  model::Architecture architecture;
  Plan plan;
};
// `look`: makes another architecture of the same, for a forward that must leave the first alone; empty: it need not.
Resolved resolve(const Plan& plan, const model::Architecture& architecture, const std::function<model::Architecture()>& look = {});

// Builds the layers of these workers, and no others; they have no first values yet.
std::unique_ptr<session::LocalTrainer> make_local_trainer(const Resolved& run, LocalWorkers own);

}  // namespace epipe::train
