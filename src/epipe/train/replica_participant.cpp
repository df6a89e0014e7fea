#include "epipe/train/replica_participant.h"

#include <fmt/format.h>

#include <stdexcept>

#include "epipe/base/clock.h"
#include "epipe/session/step_result.h"

namespace epipe::train {

using namespace session;
using pipeline::StepResult;

namespace {

[[noreturn]] void refuse(std::string_view command) {
  throw std::invalid_argument(fmt::format("the command {} is not for the first worker of a replica", command));
}

}  // namespace

ReplicaParticipant::ReplicaParticipant(const Registry& registry, const TrainConfig& config, PeerConnector& connector,
                                       std::unique_ptr<transport::Group> replicas)
    : registry_(registry), config_(config), connector_(connector), replicas_(std::move(replicas)) {}

// So that the other replicas do not wait for one that failed.
Reply ReplicaParticipant::handle(const Command& command) {
  Reply reply = reply_of([&] { return std::visit([this](const auto& one) { return on(one); }, command); });
  if (std::holds_alternative<ErrorReply>(reply) && run_) run_->coordinator->local().leave_replicas();
  return reply;
}

Coordinator& ReplicaParticipant::coordinator() {
  if (!run_) throw std::logic_error("the run was not configured yet");
  return *run_->coordinator;
}

Reply ReplicaParticipant::on(const ConfigureCommand& command) {
  if (run_) throw std::logic_error("the run is configured already; a cluster does not connect again");
  if (config_.cuts.empty() && command.spec.contains("cuts")) {  // rank 0 chose them
    for (const auto cut : command.spec.at("cuts").get<std::vector<std::size_t>>()) config_.cuts.push_back(fmt::to_string(cut));
  }
  AssembleOptions options;
  options.connector = &connector_;
  options.replicas = std::move(replicas_);
  run_ = assemble(registry_, config_, std::move(options));
  const std::string different = differences(to_json(run_->plan), command.spec);
  if (!different.empty()) throw std::invalid_argument("rank 0 has another configuration: " + different);
  ConfigureReply reply;
  reply.checkpoints = run_->coordinator->common_checkpoints();
  return reply;
}

void ReplicaParticipant::begin() { training_ = run_->batches->training(run_->coordinator->local().steps_done()); }

Reply ReplicaParticipant::on(const LoadCommand& command) {
  coordinator().load(command);
  if (command.last) begin();
  return LoadReply{};
}

Reply ReplicaParticipant::on(const RestoreCommand& command) {
  coordinator().restore(command.step);
  begin();
  return RestoreReply{};
}

Reply ReplicaParticipant::on(const OpenChannelsCommand&) {
  coordinator().open_channels();
  return OpenChannelsReply{};
}

Reply ReplicaParticipant::on(const ReplicaStepCommand& command) {
  coordinator();
  return StepReply{command.training ? train(command) : evaluate(command), {}};
}

StepResult ReplicaParticipant::train(const ReplicaStepCommand& command) {
  if (!training_) throw std::logic_error("no weights were given yet");
  const Stopwatch watch;
  const data::LoadedBatch loaded = training_->next();
  const double data_seconds = watch.seconds();
  if (loaded.step != command.step) throw std::logic_error(fmt::format("expected step {}, got {}", loaded.step, command.step));
  StepResult result = run_->forward_backward(loaded, command.measure_error, &command.rates);
  result.workers[0].data = data_seconds;
  result.predictions = torch::Tensor();
  result.targets = torch::Tensor();
  return result;
}

StepResult ReplicaParticipant::evaluate(const ReplicaStepCommand& command) {
  if (!validation_ || validated_ == run_->batches->validation_steps()) {
    validation_ = run_->batches->validation();
    validated_ = 0;
  }
  ++validated_;
  const data::LoadedBatch loaded = validation_->next();
  if (loaded.batch.size() == 0) return no_result(run_->coordinator->cuts(), run_->coordinator->workers());
  return run_->evaluate(loaded, command.epoch, command.step, &command.rates);
}

Reply ReplicaParticipant::on(const CommitCommand& command) {
  coordinator().commit(command.step, command.update);
  return CommitReply{};
}

Reply ReplicaParticipant::on(const SaveCommand&) {
  coordinator().save();
  return SaveReply{};
}

Reply ReplicaParticipant::on(const EndCommand&) {
  coordinator().end();
  ended_ = true;
  return EndReply{};
}

Reply ReplicaParticipant::on(const LeaveCommand&) {
  coordinator().leave();
  ended_ = true;
  return LeaveReply{};
}

Reply ReplicaParticipant::on(const StepCommand&) { refuse(StepCommand::kName); }
Reply ReplicaParticipant::on(const WeightsCommand&) { refuse(WeightsCommand::kName); }
Reply ReplicaParticipant::on(const ClockCommand&) { refuse(ClockCommand::kName); }
Reply ReplicaParticipant::on(const TimelineCommand&) { refuse(TimelineCommand::kName); }
Reply ReplicaParticipant::on(const ForwardCommand&) { refuse(ForwardCommand::kName); }
Reply ReplicaParticipant::on(const BackwardCommand&) { refuse(BackwardCommand::kName); }
Reply ReplicaParticipant::on(const AuditCommand&) { refuse(AuditCommand::kName); }
Reply ReplicaParticipant::on(const LinkProbeCommand&) { refuse(LinkProbeCommand::kName); }
Reply ReplicaParticipant::on(const OverlappedStepCommand&) { refuse(OverlappedStepCommand::kName); }
Reply ReplicaParticipant::on(const EarlyBackwardsCommand&) { refuse(EarlyBackwardsCommand::kName); }

}  // namespace epipe::train
