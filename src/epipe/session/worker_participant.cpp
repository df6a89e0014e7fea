#include "epipe/session/worker_participant.h"

#include <fmt/format.h>

#include <stdexcept>

#include "epipe/base/file.h"
#include "epipe/session/timeline.h"

namespace epipe::session {
namespace {

constexpr std::string_view kCheckpointsShown = "checkpoints";

}  // namespace

WorkerParticipant::WorkerParticipant(ParticipantConfig config)
    : config_(std::move(config)), tracer_(kParticipantEvents), checkpoints_(config_.checkpoints, config_.checkpoint_bytes) {}
WorkerParticipant::~WorkerParticipant() = default;

Reply WorkerParticipant::handle(const Command& command) {
  Reply reply = reply_of([&] { return std::visit([this](const auto& one) { return on(one); }, command); });
  if (auto* const error = std::get_if<ErrorReply>(&reply); error != nullptr && config_.log) hide_folder(*error);
  return reply;
}

// Where this process keeps its files is for its operator alone.
void WorkerParticipant::hide_folder(ErrorReply& reply) const {
  std::string& error = reply.error;
  if (config_.checkpoints.empty() || error.find(config_.checkpoints) == std::string::npos) return;
  config_.log(error);
  for (auto at = error.find(config_.checkpoints); at != std::string::npos; at = error.find(config_.checkpoints, at)) {
    error.replace(at, config_.checkpoints.size(), kCheckpointsShown);
    at += kCheckpointsShown.size();
  }
  error += "; the log there says where";
}

LocalTrainer& WorkerParticipant::local() {
  if (!local_) throw std::logic_error("the run was not configured yet");
  return *local_;
}

LocalTrainer& WorkerParticipant::begun_run() {
  LocalTrainer& trainer = local();
  if (fresh_) throw std::logic_error("no weights were given yet, or not all of them");
  return trainer;
}

Reply WorkerParticipant::on(const ConfigureCommand& command) {
  if (local_) {
    if (command.worker != worker_) throw std::invalid_argument(fmt::format("this is worker {}, not {}", worker_, command.worker));
    const std::string different = config_.differences(spec_, command.spec);
    if (!different.empty()) throw std::invalid_argument("this session is of another run: " + different);
    local_->disconnect();
  } else {
    local_ = config_.make_trainer(command.spec, command.worker, tracer_);
    spec_ = command.spec;
    worker_ = command.worker;
    fresh_ = true;
  }
  ConfigureReply reply;
  reply.checkpoints = checkpoints_.verify();
  if (!fresh_) reply.steps_done = local_->steps_done();
  if (!fresh_) reply.pending = local_->pending_step();
  return reply;
}

Reply WorkerParticipant::on(const LoadCommand& command) {
  fresh_ = true;
  local().load(command.layer, command.weights);
  if (!command.last) return LoadReply{};
  local().start_over();
  fresh_ = false;
  return LoadReply{};
}

Reply WorkerParticipant::on(const RestoreCommand& command) {
  LocalTrainer& trainer = local();
  const Checkpoint checkpoint = checkpoints_.load(command.step);
  fresh_ = true;  // until all of it is restored
  trainer.restore(checkpoint);
  fresh_ = false;
  return RestoreReply{};
}

Reply WorkerParticipant::on(const OpenChannelsCommand& command) {
  LocalTrainer& begun = begun_run();
  const auto channel = [&](int cut, int peer) {
    const auto index = static_cast<std::size_t>(peer) - 1;  // worker 0 is the coordinator's, which has no address
    const bool named = peer > 0 && index < command.addresses.size();
    return config_.open_channel({cut, worker_, peer, named ? command.addresses[index] : "", command.attempt});
  };
  begun.connect(channel, config_.timeout);
  return OpenChannelsReply{};
}

void WorkerParticipant::check_step(const pipeline::StepId& id, int most) {
  const auto& pipeline = local().pipeline_config();
  if (id.chunks > most) {
    throw std::invalid_argument(fmt::format("a step of {} micro-batches, but the run has {}", id.chunks, most));
  }
  if (!id.rates.empty() && id.rates.size() != pipeline.cuts.size()) {
    throw std::invalid_argument(fmt::format("a step with rates of {} cuts, but the run has {}", id.rates.size(), pipeline.cuts.size()));
  }
}

LocalTrainer& WorkerParticipant::connected_run() {
  if (!local().connected()) throw transport::ConnectionLost("the data channels to the other processes are not open");
  return local();
}

Reply WorkerParticipant::on(const OverlappedStepCommand& command) {
  check_step(command.id, local().pipeline_config().chunks);
  OverlappedStepReply reply;
  reply.result = connected_run().overlapped_step(command.forwards ? &command.batch : nullptr, command.id);
  return reply;
}

Reply WorkerParticipant::on(const EarlyBackwardsCommand&) {
  connected_run().early_backwards();
  return EarlyBackwardsReply{};
}

Reply WorkerParticipant::on(const StepCommand& command) {
  check_step(command.id, local().pipeline_config().chunks);
  connected_run();
  StepReply reply;
  reply.result = command.training ? local().forward_backward(command.batch, command.id) : local().evaluate(command.batch, command.id);
  reply.result.targets = torch::Tensor();  // the coordinator has them
  if (command.training && command.norms && !reply.result.non_finite) reply.norms = local().squared_gradient_norms();
  return reply;
}

Reply WorkerParticipant::on(const ReplicaStepCommand&) { throw std::invalid_argument("this process leads no replica"); }

Reply WorkerParticipant::on(const CommitCommand& command) {
  begun_run().commit(command.step, command.update);
  return CommitReply{config_.drain != nullptr && *config_.drain};
}

Reply WorkerParticipant::on(const SaveCommand&) {
  checkpoints_.save(begun_run().checkpoint());
  return SaveReply{};
}

Reply WorkerParticipant::on(const WeightsCommand& command) { return WeightsReply{begun_run().weights(command.layer, command.trained)}; }

Reply WorkerParticipant::on(const ClockCommand&) { return ClockReply{tracer_.now()}; }

Reply WorkerParticipant::on(const TimelineCommand&) { return TimelineReply{timeline_json(tracer_)}; }

Reply WorkerParticipant::on(const EndCommand&) {
  if (!config_.keep_checkpoints) {
    for (const std::string& path : {config_.checkpoints, config_.activations}) {
      if (path.empty()) continue;
      if (const auto removed = remove_tree(path); !removed) throw std::runtime_error(removed.error().message);
    }
  }
  ended_ = true;
  return EndReply{};
}

Reply WorkerParticipant::on(const LeaveCommand&) {
  ended_ = true;
  return LeaveReply{};
}

// The coordinator waits for a tensor: when none will come, it must hear that its channels are closed.
void WorkerParticipant::run_action(const std::function<void(LocalTrainer&)>& action) {
  if (!begun_run().connected()) throw transport::ConnectionLost("the data channels to the other processes are not open");
  try {
    action(*local_);
  } catch (...) {
    local_->disconnect();
    throw;
  }
}

Reply WorkerParticipant::on(const ForwardCommand& command) {
  run_action([&](LocalTrainer& local) {
    if (command.begins) local.begin_step();
    local.forward(command.micro_batch, command.samples, command.step, command.training);
  });
  return ForwardReply{};
}

Reply WorkerParticipant::on(const BackwardCommand& command) {
  run_action([&](LocalTrainer& local) { local.backward(command.micro_batch, command.step); });
  return BackwardReply{};
}

Reply WorkerParticipant::on(const AuditCommand& command) {
  check_step(command.id, most_at_once(local().pipeline_config()));
  AuditReply reply;
  run_action([&](LocalTrainer& local) { reply.result = local.audit(command.batch, command.id, command.part); });
  reply.result.step.targets = torch::Tensor();  // the coordinator has them
  return reply;
}

Reply WorkerParticipant::on(const LinkProbeCommand& command) { return LinkProbeReply{probe_bytes(command.reply_bytes)}; }

void WorkerParticipant::disconnect() {
  if (local_) local_->disconnect();
}

}  // namespace epipe::session
