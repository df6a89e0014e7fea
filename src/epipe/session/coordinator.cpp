#include "epipe/session/coordinator.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "epipe/base/clock.h"
#include "epipe/session/step_result.h"
#include "epipe/session/timeline.h"

namespace epipe::session {

using pipeline::StepResult;

namespace {

// A peer that answers has its reason by then; the client's own is that the peer went away.
constexpr transport::Timeout kReasonTimeout = std::chrono::seconds(2);
constexpr int kClockQuestions = 3;
constexpr int kRoundTrips = 5;
constexpr int kProbes = 2;           // of a link, each way
constexpr int kProbeRoundTrips = 2;  // with each of them
constexpr double kLeastProbeSeconds = 1e-6;
const std::string kOwnState = "coordinator/";  // before its names in a checkpoint

std::uint64_t first_attempt() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

}  // namespace

// A thread that waits for its turn makes a way look longer, never shorter. So the shortest time of each way counts, and the shortest round
// trip: taken from a single time, one that is too long would make the link look fast.
LinkMeasurement link_rates(std::uint64_t bytes_up, std::uint64_t bytes_down, const std::vector<ProbeTimes>& probes) {
  ProbeTimes least = probes.at(0);
  for (const ProbeTimes& probe : probes) {
    least = {std::min(least.up, probe.up), std::min(least.down, probe.down), std::min(least.round_trip, probe.round_trip)};
  }
  const auto rate = [&](std::uint64_t bytes, double seconds) {
    return static_cast<double>(bytes) / std::max({seconds - least.round_trip, 0.1 * seconds, kLeastProbeSeconds});
  };
  return {rate(bytes_up, least.up), rate(bytes_down, least.down), least.round_trip};
}

Coordinator::Coordinator(std::unique_ptr<LocalTrainer> local, PeerConnector* connector, CoordinatorConfig config)
    : local_(std::move(local)),
      connector_(connector),
      config_(std::move(config)),
      checkpoints_(config_.checkpoints),
      attempt_(first_attempt()) {}

Coordinator::~Coordinator() { close_peers(); }

void Coordinator::close_peers() {
  for (const auto& peer : peers_) peer->close();
  peers_.clear();
}

// Nobody has to agree, and nothing has to be known of the gradients.
bool Coordinator::knows_update() const {
  return peers_.empty() && !local_->has_replicas() && config_.clip == 0 && !local_->pipeline_config().loss_scaling;
}

StepResult Coordinator::forward_backward(const layer::Batch& batch, const pipeline::StepId& id, double lr) {
  known_ = knows_update() ? std::optional(decide(lr)) : std::nullopt;
  pipeline::StepId scaled = id;
  scaled.loss_scale = local_->loss_scale();
  return run({batch, scaled, true, config_.clip > 0});
}

StepResult Coordinator::evaluate(const layer::Batch& batch, const pipeline::StepId& id) { return run({batch, id, false, false}); }

void Coordinator::send_step(const StepCommand& command) {
  const int last = local_->pipeline_config().placement.worker_of.back();
  StepCommand sent = command;
  sent.batch.inputs.clear();
  StepCommand without_targets = sent;
  without_targets.batch.targets = torch::Tensor();
  const ReplicaStepCommand to_leader{command.id.epoch, command.id.step, command.id.measure_error, command.training, command.id.rates};
  for (const auto& peer : peers_) peer->send(peer->leads() ? Command(to_leader) : peer->worker() == last ? sent : without_targets);
}

StepResult Coordinator::run(const StepCommand& command) {
  send_step(command);
  StepResult result = run_own(command);
  result.targets = command.batch.targets;
  norms_.clear();
  if (command.norms && !result.non_finite) norms_ = local_->squared_gradient_norms();
  confirm_commit();
  for_all_replies<StepReply>([&](Peer& peer, StepReply reply) {
    try {
      take_step(result, peer, std::move(reply), command.norms);
    } catch (const std::exception& error) {
      throw PeerFailed(fmt::format("{}: its reply to the step is damaged: {}", peer.name(), error.what()));
    }
  });
  non_finite_ = result.non_finite;
  return result;
}

// Workers answer before leaders: the parts of this replica are together when those of others are appended.
void Coordinator::take_step(StepResult& result, Peer& peer, StepReply reply, bool norms) {
  StepResult& theirs = reply.result;
  check_fits(theirs, cuts(), workers());
  if (peer.leads()) return add_replica(result, theirs);
  const bool has_loss = peer.worker() == local_->pipeline_config().placement.worker_of.back();
  if (!has_loss) theirs.loss = theirs.correct = 0;  // only where the last stage is
  merge(result, theirs);
  if (has_loss && theirs.predictions.defined()) result.predictions = theirs.predictions;
  if (norms && !theirs.non_finite) take_norms(peer, reply.norms);
}

// Of the parameters that the peer has, each once.
void Coordinator::take_norms(const Peer& peer, const std::map<std::string, double>& norms) {
  std::size_t taken = 0;
  for (const Parameter& parameter : config_.parameter_order) {
    const auto found = norms.find(parameter.name);
    if (found == norms.end() || !runs(peer, parameter.layer)) continue;
    if (!std::isfinite(found->second) || found->second < 0) {
      throw std::invalid_argument(fmt::format("the squared norm of {} is {}", parameter.name, found->second));
    }
    norms_.insert(*found);
    ++taken;
  }
  if (taken != norms.size()) throw std::invalid_argument("it has norms of parameters that are not its own");
}

// When a peer fails, what the coordinator sees first is that tensors or gradients no longer come; the peer knows why.
template <typename Expected>
StepResult Coordinator::explained(const std::function<StepResult()>& work) {
  try {
    return work();
  } catch (const ReplicaLost&) {
    explain<Expected>(std::current_exception(), /*leaders_know=*/true);
  } catch (const std::runtime_error&) {
    explain<Expected>(std::current_exception(), /*leaders_know=*/false);
  }
}

StepResult Coordinator::run_own(const StepCommand& command) {
  return explained<StepReply>([&] {
    return command.training ? local_->forward_backward(command.batch, command.id, known_ ? &*known_ : nullptr)
                            : local_->evaluate(command.batch, command.id);
  });
}

// Early backwards are asked for at once: no peer waits for us between the two.
StepResult Coordinator::overlapped_step(const layer::Batch* batch, const pipeline::StepId& id) {
  OverlappedStepCommand command{batch != nullptr, batch != nullptr ? *batch : layer::Batch(), id};
  command.batch.inputs.clear();
  OverlappedStepCommand without_targets = command;
  without_targets.batch.targets = torch::Tensor();
  const int last = local_->pipeline_config().placement.worker_of.back();
  for (const auto& peer : peers_) {
    peer->send(peer->worker() == last ? command : without_targets);
    if (batch != nullptr) peer->send(EarlyBackwardsCommand{});
  }
  StepResult result = explained<OverlappedStepReply>([&] { return local_->overlapped_step(batch, id); });
  confirm_commit();
  for_all_replies<OverlappedStepReply>([&](Peer& peer, OverlappedStepReply reply) {
    try {
      take_step(result, peer, {std::move(reply.result), {}}, /*norms=*/false);
    } catch (const std::exception& error) {
      throw PeerFailed(fmt::format("{}: its reply to the step is damaged: {}", peer.name(), error.what()));
    }
  });
  running_early_ = batch != nullptr;
  return result;
}

// Where another replica is to blame, for this process or for a worker, the leaders know more; they answer after the workers. Not where a
// worker is gone: then all that they miss is us.
template <typename Expected>
void Coordinator::explain(const std::exception_ptr& own, bool leaders_know) {
  std::exception_ptr reason = own;
  bool worker_gone = false;
  local_->disconnect();
  for (const auto& peer : peers_) {
    try {
      if (running_early_) peer->recv<EarlyBackwardsReply>(kReasonTimeout);
      if (decision_) peer->recv<CommitReply>(kReasonTimeout);
      if (peer->leads() && std::is_same_v<Expected, AuditReply>) continue;  // it was told nothing
      peer->recv<Expected>(kReasonTimeout);
    } catch (const PeerFailed&) {
      throw;
    } catch (const ReplicaLost&) {
      if (!std::exchange(leaders_know, true) && !worker_gone) reason = std::current_exception();
    } catch (const transport::ConnectionLost&) {
      if (leaders_know && peer->leads()) throw;
      worker_gone = worker_gone || !peer->leads();
    } catch (const std::exception&) {
      // Lost as well, or stepped: no better reason than our own.
    }
  }
  std::rethrow_exception(reason);
}

// Squared norms parameter by parameter in float64, summed in model order: the same for every placement.
double Coordinator::clip_scale(double loss_scale) const {
  double total = 0;
  for (const Parameter& parameter : config_.parameter_order) {
    if (const auto found = norms_.find(parameter.name); found != norms_.end()) total += found->second;
  }
  return std::min(1.0, config_.clip / (std::sqrt(total) / loss_scale + 1e-6));
}

Update Coordinator::decide(double lr) const {
  const double loss_scale = local_->loss_scale();
  if (local_->pipeline_config().loss_scaling && non_finite_) return {lr, 1, true};
  return {lr, (config_.clip > 0 ? clip_scale(loss_scale) : 1) / loss_scale, false};
}

void Coordinator::commit(std::uint64_t step, const Update& update) {
  decision_ = {step, update};
  std::exception_ptr lost;
  for (const auto& peer : peers_) {
    try {
      peer->send(CommitCommand{step, update});
    } catch (const transport::ConnectionLost&) {
      lost = std::current_exception();  // it learns of the decision when it is back
    }
  }
  local_->commit(step, update);
  if (lost) std::rethrow_exception(lost);
  if (local_->loss_scale() < LossScaler::kLeast) {
    throw std::runtime_error(
        fmt::format("the loss or its gradients are not finite at any loss scale; step {} was the last one tried; "
                    "use a smaller --lr, or --precision bf16",
                    step));
  }
}

void Coordinator::confirm_commit() {
  if (std::exchange(running_early_, false)) wait_for_all<EarlyBackwardsReply>();
  if (!decision_) return;
  for_all_replies<CommitReply>([&](Peer&, const CommitReply& reply) { draining_ = draining_ || reply.drain; });
  decision_.reset();
}

void Coordinator::save() {
  confirm_commit();
  for (const auto& peer : peers_) peer->send(SaveCommand{});
  Checkpoint checkpoint = local_->checkpoint();
  if (config_.own_state != nullptr) {
    for (auto& [name, tensor] : config_.own_state->state()) checkpoint.optimizer[kOwnState + name] = tensor;
  }
  checkpoints_.save(checkpoint);
  wait_for_all<SaveReply>();
}

// A peer decides about values, and about nothing else.
void Coordinator::check_weights(const Peer& peer, std::size_t layer, const NamedTensors& weights, bool trained_only) const {
  NamedTensors expected = config_.expected_weights(layer);
  if (trained_only) std::erase_if(expected, [](const auto& item) { return !item.second.requires_grad(); });
  const auto fits = model::check_fits(weights, expected);
  if (!fits) throw PeerFailed(fmt::format("{}: layer {}: {}", peer.name(), layer, fits.error().message));
  for (const auto& [name, tensor] : weights) {
    if (tensor.scalar_type() == expected.at(name).scalar_type()) continue;
    throw PeerFailed(fmt::format("{}: layer {}: {} is of another type", peer.name(), layer, name));
  }
}

// Other replicas have the same.
void Coordinator::visit_weights(const std::function<void(const NamedTensors& layer)>& visit, bool trained_only) {
  confirm_commit();
  for (std::size_t layer = 0; layer < local_->layers(); ++layer) {
    const int worker = local_->worker_of_layer(layer);
    const auto at =
        std::find_if(peers_.begin(), peers_.end(), [&](const auto& peer) { return !peer->leads() && peer->worker() == worker; });
    if (at == peers_.end()) {
      visit(local_->weights(layer, trained_only));
    } else {
      (*at)->send(WeightsCommand{layer, trained_only});
      const WeightsReply reply = (*at)->recv<WeightsReply>();
      check_weights(**at, layer, reply.weights, trained_only);
      visit(reply.weights);
    }
  }
}

// What to add to the peer's clock for ours. Of some questions the one with the fastest answer tells best: it lies in its middle.
double Coordinator::clock_offset(Peer& peer, const Tracer& own) {
  double fastest = std::numeric_limits<double>::infinity();
  double offset = 0;
  for (int i = 0; i < kClockQuestions; ++i) {
    const double asked = own.now();
    peer.send(ClockCommand{});
    const ClockReply reply = peer.recv<ClockReply>();
    const double answered = own.now();
    if (answered - asked >= fastest) continue;
    fastest = answered - asked;
    offset = (asked + answered) / 2 - reply.now;
  }
  return offset;
}

double Coordinator::round_trip(Peer& peer, int questions) {
  double fastest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < questions; ++i) {
    const Stopwatch watch;
    peer.send(ClockCommand{});
    peer.recv<ClockReply>();
    fastest = std::min(fastest, watch.seconds());
  }
  return fastest;
}

std::vector<double> Coordinator::round_trips() {
  confirm_commit();
  std::vector<double> fastest(workers(), 0);
  for (const auto& peer : peers_) {
    if (peer->leads()) continue;
    fastest.at(static_cast<std::size_t>(peer->worker())) = round_trip(*peer, kRoundTrips);
  }
  return fastest;
}

LinkMeasurement Coordinator::probe_link(std::uint64_t bytes_up, std::uint64_t bytes_down) {
  confirm_commit();
  Peer& peer = *peers_.at(0);
  const auto seconds_of = [&](std::uint64_t up, std::uint64_t down) {
    const LinkProbeCommand command{probe_bytes(up), down};
    const Stopwatch watch;
    peer.send(command);
    const LinkProbeReply reply = peer.recv<LinkProbeReply>();
    const double seconds = watch.seconds();
    const std::uint64_t got = reply.bytes.defined() ? reply.bytes.nbytes() : 0;
    if (got != down) throw PeerFailed(fmt::format("{}: expected {} bytes in reply to a probe of the link, got {}", peer.name(), down, got));
    return seconds;
  };
  std::vector<ProbeTimes> probes;
  for (int i = 0; i < kProbes; ++i) {
    probes.push_back({seconds_of(bytes_up, 0), seconds_of(0, bytes_down), round_trip(peer, kProbeRoundTrips)});
  }
  return link_rates(bytes_up, bytes_down, probes);
}

std::vector<Tracer::Event> Coordinator::timelines(const Tracer& own) {
  std::vector<Tracer::Event> all;
  try {
    confirm_commit();
    for (const auto& peer : peers_) {
      if (peer->leads()) continue;  // another replica, which looks like this one
      const double offset = clock_offset(*peer, own);
      peer->send(TimelineCommand{});
      const TimelineReply reply = peer->recv<TimelineReply>();
      auto events = timeline_from_json(reply.events, peer->worker(), cuts(), offset);
      std::move(events.begin(), events.end(), std::back_inserter(all));
    }
  } catch (const transport::ConnectionLost&) {  // the timeline is for people to look at: not worth a replay
  } catch (const transport::TimedOut&) {
    close_peers();  // a late answer would be taken for that to the next command
  }
  return all;
}

// A peer that is lost now keeps its checkpoints until its operator removes them; the run has all it needs.
// A peer that is lost keeps nobody else from hearing it, and from being waited for.
template <typename Sent>
void Coordinator::send_to_all_and_wait() {
  const auto tolerant = [this](const std::function<void()>& work) {
    try {
      work();
    } catch (const transport::ConnectionLost&) {
    } catch (const transport::TimedOut&) {
    } catch (const PeerFailed& failed) {
      config_.note(failed.what());
    }
  };
  for (const auto& peer : peers_) {
    if (running_early_) tolerant([&] { peer->recv<EarlyBackwardsReply>(); });
    if (decision_) tolerant([&] { peer->recv<CommitReply>(); });
  }
  running_early_ = false;
  decision_.reset();
  for (const auto& peer : peers_) tolerant([&] { peer->send(Sent{}); });
  for (const auto& peer : peers_) tolerant([&] { peer->recv<typename Sent::Answer>(); });
}

// Null: a run begins.
void Coordinator::set_own_state(const Checkpoint* checkpoint) {
  if (config_.own_state == nullptr) return;
  NamedTensors own;
  if (checkpoint != nullptr) {
    for (const auto& [name, tensor] : checkpoint->optimizer) {
      if (name.starts_with(kOwnState)) own[name.substr(kOwnState.size())] = tensor;
    }
  }
  config_.own_state->set_state(own);
}

template void Coordinator::explain<AuditReply>(const std::exception_ptr& own, bool leaders_know);
template void Coordinator::send_to_all_and_wait<EndCommand>();
template void Coordinator::send_to_all_and_wait<LeaveCommand>();

}  // namespace epipe::session
