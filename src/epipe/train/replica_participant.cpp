#include "epipe/train/replica_participant.h"

#include <fmt/format.h>

#include <stdexcept>

#include "epipe/base/clock.h"
#include "epipe/train/step_json.h"

namespace epipe::train {

using nlohmann::json;
using pipeline::StepResult;

ReplicaParticipant::ReplicaParticipant(const Registry& registry, const TrainConfig& config, PeerConnector& connector,
                                       std::unique_ptr<transport::Group> replicas)
    : registry_(registry), config_(config), connector_(connector), replicas_(std::move(replicas)) {}

// The other replicas must not wait for one that failed.
Message ReplicaParticipant::handle(const Message& command) {
  Message answer = answer_of([&] { return handle_checked(command); });
  if (answer.kind == "failed" && run_) run_->local().leave_replicas();
  return answer;
}

Message ReplicaParticipant::handle_checked(const Message& command) {
  if (command.kind == "plan") return plan(field_of<json>(command, "plan"));
  Coordinator& coordinator = run().coordinator();
  if (command.kind == "step") return step(command);
  if (command.kind == "load") {
    run_->begin_with(command.tensors);
    begin();
    return {"loaded"};
  }
  if (command.kind == "restore") {
    coordinator.restore(field_of<std::uint64_t>(command, "step"));
    begin();
    return {"restored"};
  }
  if (command.kind == "connect") {
    coordinator.open_channels();
    return {"connected"};
  }
  if (command.kind == "commit") {
    coordinator.commit(field_of<std::uint64_t>(command, "step"), update_of(command));
    return {"committed"};
  }
  if (command.kind == "save") {
    coordinator.save();
    return {"saved"};
  }
  ended_ = command.kind == "end" || command.kind == "leave";
  if (!ended_) throw std::invalid_argument(fmt::format("unknown command {}", model::in_quotes(command.kind)));
  command.kind == "end" ? coordinator.end() : coordinator.leave();
  return {command.kind == "end" ? "ended" : "left"};
}

Run& ReplicaParticipant::run() {
  if (!run_) throw std::logic_error("no plan was given yet");
  return *run_;
}

Message ReplicaParticipant::plan(const json& theirs) {
  if (run_) throw std::logic_error("there is a plan already; a cluster does not connect again");
  if (config_.cuts.empty() && theirs.contains("cuts")) {  // rank 0 chose them
    for (const auto cut : theirs.at("cuts").get<std::vector<std::size_t>>()) config_.cuts.push_back(fmt::to_string(cut));
  }
  run_ = std::make_unique<Run>(registry_, config_, nullptr, &connector_, std::move(replicas_));
  const std::string different = differences(to_json(run_->plan()), theirs);
  if (!different.empty()) throw std::invalid_argument("rank 0 has another configuration: " + different);
  const CheckpointList checkpoints = run_->coordinator().common_checkpoints();
  return {"planned", {{"checkpoints", checkpoints.whole}, {"damaged", checkpoints.damaged}}};
}

void ReplicaParticipant::begin() { training_ = run_->training_batches(run_->local().steps_done()); }

Message ReplicaParticipant::step(const Message& command) {
  const StepResult result = field_of<bool>(command, "training") ? train(command) : evaluate(command);
  Message answer{"stepped", {{"result", to_json(result)}}};
  if (result.predictions.defined()) answer.tensors = {{"predictions", result.predictions}, {"targets", result.targets}};
  return answer;
}

StepResult ReplicaParticipant::train(const Message& command) {
  if (!training_) throw std::logic_error("no weights were given yet");
  const auto step = field_of<std::uint64_t>(command, "step");
  const Stopwatch watch;
  const data::LoadedBatch loaded = training_->next();
  const double data_seconds = watch.seconds();
  if (loaded.step != step) throw std::logic_error(fmt::format("expected step {}, got {}", loaded.step, step));
  StepResult result = run_->forward_backward(loaded, field_of<bool>(command, "measure_error"));
  result.workers[0].data = data_seconds;
  return result;
}

StepResult ReplicaParticipant::evaluate(const Message& command) {
  if (!validation_ || validated_ == run_->validation_steps()) {
    validation_ = run_->validation_batches();
    validated_ = 0;
  }
  ++validated_;
  const data::LoadedBatch loaded = validation_->next();
  if (loaded.batch.size() == 0) return no_result(run_->plan().cuts.size(), static_cast<std::size_t>(run_->workers()));
  return run_->evaluate(loaded, field_of<std::uint64_t>(command, "epoch"), field_of<std::uint64_t>(command, "step"));
}

}  // namespace epipe::train
