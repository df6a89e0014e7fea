#include "epipe/train/local_setup.h"

#include <torch/cuda.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "epipe/model/model.h"
#include "epipe/train/learned_codecs.h"
#include "epipe/train/loss.h"
#include "epipe/train/optimizer.h"

namespace epipe::train {
namespace {

// The workers in other processes.
std::vector<int> others(const Plan& plan, const std::vector<int>& here) {
  std::vector<int> remote;
  if (here.empty()) return remote;
  for (int w = 0; w < schedule::Placement{plan.place}.workers(); ++w) {
    if (std::find(here.begin(), here.end(), w) == here.end()) remote.push_back(w);
  }
  return remote;
}

int worker_of_layer(const Plan& plan, std::size_t layer) { return plan.place.at(static_cast<std::size_t>(stage_of_layer(plan, layer))); }

}  // namespace

torch::Device device_of(const std::string& name, int local_rank) {
  const auto count = static_cast<int>(torch::cuda::device_count());
  return name == "cuda" && count > 0 ? torch::Device(torch::kCUDA, static_cast<torch::DeviceIndex>(local_rank % count))
                                     : torch::Device(name);
}

Resolved resolve(const Plan& plan, const model::Architecture& architecture, const std::function<model::Architecture()>& look) {
  Resolved run{architecture, plan};
  insert_learned_codecs(run.architecture, run.plan, look);
  if (run.architecture.layers.size() != architecture.layers.size()) run.plan.first_trained = 0;  // learned codecs are trained
  return run;
}

std::unique_ptr<session::LocalTrainer> make_local_trainer(const Resolved& run, LocalWorkers own) {
  session::LocalTrainerConfig config;
  config.pipeline = pipeline_config(run.plan);
  config.pipeline.remote.workers = others(run.plan, own.workers);
  config.pipeline.devices = std::move(own.devices);
  config.pipeline.tracer = own.tracer;
  config.pipeline.observer = std::move(own.observer);
  config.pipeline.input_edge = own.input_edge;
  config.pipeline.codec_threads = own.codec_threads;
  config.pipeline.graphs = own.graphs;
  config.pipeline.reuse.key = std::move(own.reuse_key);
  config.pipeline.reuse.frames = std::move(own.reused_frames);
  const auto& remote = config.pipeline.remote;
  config.layers = model::build(run.architecture, [&](std::size_t l) { return !remote.has(worker_of_layer(run.plan, l)); }).layers;
  config.loss = own.loss ? std::move(own.loss) : make_loss(run.plan.data);
  config.make_optimizer = [update = optimizer_config(run.plan)](session::NamedParameters parameters) {
    return std::make_unique<Optimizer>(update, std::move(parameters));
  };
  config.fingerprint = checkpoint_fingerprint(run.plan).dump();
  config.require_same_run = [plan = run.plan](const std::string& fingerprint) { require_same_run(plan, fingerprint); };
  config.replicas = std::move(own.replicas);
  config.bucket_bytes = own.bucket_bytes;
  return std::make_unique<session::LocalTrainer>(std::move(config));
}

}  // namespace epipe::train
