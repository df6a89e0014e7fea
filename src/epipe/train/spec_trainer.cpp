#include "epipe/train/spec_trainer.h"

#include <fmt/format.h>

#include <stdexcept>

#include "epipe/train/adaptation.h"
#include "epipe/train/local_setup.h"
#include "epipe/train/plan.h"

namespace epipe::train {
namespace {

std::unique_ptr<session::LocalTrainer> make_trainer(SpecTrainerConfig& config, const nlohmann::json& spec, int worker, Tracer& tracer) {
  const Plan plan = plan_from_json(spec);
  const int count = schedule::Placement{plan.place}.workers();
  if (worker < 0 || worker >= count) throw std::invalid_argument(fmt::format("there is no worker {} in the plan", worker));
  if (config.admit) config.admit(spec, worker);
  LocalWorkers own;
  own.workers = {worker};
  own.devices.assign(static_cast<std::size_t>(count), config.device);
  own.tracer = &tracer;
  own.codec_threads = config.codec_threads;
  own.graphs = config.graphs;
  own.loss = config.loss;
  own.bucket_bytes = config.bucket_bytes;
  if (plan.reuse_activations && !config.activations.empty() && plan.place.size() > 1 && worker == plan.place[1]) {
    own.reused_frames = std::make_shared<boundary::FrameStore>(config.activations, config.activation_bytes);
  }
  const auto architecture = [&] { return make_architecture(*config.registry, plan.model, plan.data, 0, adaptation_of(plan)); };
  const Resolved run = resolve(plan, architecture(), architecture);
  if (config.has_replicas && !config.replicas) throw std::logic_error("this rank was configured before, and failed");
  own.replicas = std::move(config.replicas);
  return make_local_trainer(run, std::move(own));
}

}  // namespace

void make_trainers_from_specs(session::ParticipantConfig& participant, SpecTrainerConfig config) {
  config.has_replicas = config.replicas != nullptr;
  const auto kept = std::make_shared<SpecTrainerConfig>(std::move(config));  // shared with copies of the function
  participant.make_trainer = [kept](const nlohmann::json& spec, int worker, Tracer& tracer) {
    return make_trainer(*kept, spec, worker, tracer);
  };
  participant.differences = differences;
}

}  // namespace epipe::train
