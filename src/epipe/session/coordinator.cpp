#include "epipe/session/coordinator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>

#include "epipe/session/step_result.h"
#include "epipe/session/timeline.h"

namespace epipe::session {

using pipeline::StepResult;

namespace {

// A peer that answers has its reason by then; the client's own is that the peer went away.
constexpr transport::Timeout kReasonTimeout = std::chrono::seconds(2);
constexpr int kClockQuestions = 3;

bool contains(const std::vector<std::uint64_t>& steps, std::uint64_t step) {
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

std::string newest_first(const std::vector<std::uint64_t>& steps) {
  return fmt::format("{}", fmt::join(steps.rbegin(), steps.rend(), " and "));
}

std::uint64_t first_attempt() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

}  // namespace

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

template <typename Expected, typename Work>
void Coordinator::for_all_replies(const Work& work) {
  for (const auto& peer : peers_) work(*peer, peer->recv<Expected>());
}

template <typename Expected>
void Coordinator::wait_for_all() {
  for (const auto& peer : peers_) peer->recv<Expected>();
}

// A peer that waits for a tensor of ours must hear that none comes before it can answer.
std::uint64_t Coordinator::connect() {
  local_->disconnect();
  close_peers();
  const auto peers = configure_all();
  if (started_ && local_->whole() && can_continue(peers)) {
    finish_commit(peers);
  } else {
    decision_.reset();
    go_back(peers);
  }
  decision_.reset();
  started_ = true;
  open_channels();
  return local_->steps_done();
}

void Coordinator::add_peer(int worker, Peer::Role role) {
  peers_.push_back(std::make_unique<Peer>(worker, role, connector_->name(worker), connector_->command_channel(worker), config_.timeout));
  peers_.back()->send(ConfigureCommand{config_.spec, role == Peer::Role::kLeader ? 0 : worker});
}

std::vector<ConfigureReply> Coordinator::configure_all() {
  std::vector<ConfigureReply> replies;
  if (connector_ == nullptr) return replies;
  for (const int worker : connector_->workers()) add_peer(worker, Peer::Role::kWorker);
  for (const int leader : connector_->leaders()) add_peer(leader, Peer::Role::kLeader);
  for_all_replies<ConfigureReply>([&](Peer&, ConfigureReply reply) { replies.push_back(std::move(reply)); });
  return replies;
}

// Everybody did the coordinator's steps, or all but the last one, which is decided and whose gradients are still there.
bool Coordinator::can_continue(const std::vector<ConfigureReply>& peers) const {
  return std::all_of(peers.begin(), peers.end(), [&](const ConfigureReply& peer) {
    if (!peer.steps_done) return false;
    if (*peer.steps_done == local_->steps_done()) return true;
    return decision_ && decision_->step == *peer.steps_done && peer.pending == decision_->step &&
           local_->steps_done() == decision_->step + 1;
  });
}

void Coordinator::finish_commit(const std::vector<ConfigureReply>& peers) {
  for (std::size_t p = 0; p < peers_.size(); ++p) {
    if (*peers[p].steps_done == local_->steps_done()) continue;
    peers_[p]->send(CommitCommand{decision_->step, decision_->update});
    peers_[p]->recv<CommitReply>();
  }
}

// Whole with all; damaged with one.
CheckpointList Coordinator::common_checkpoints() {
  const auto peers = configure_all();
  CheckpointList list = checkpoints_.verify();
  for (const ConfigureReply& peer : peers) {
    std::erase_if(list.whole, [&](std::uint64_t step) { return !contains(peer.checkpoints.whole, step); });
    list.damaged.insert(list.damaged.end(), peer.checkpoints.damaged.begin(), peer.checkpoints.damaged.end());
  }
  std::sort(list.damaged.begin(), list.damaged.end());
  list.damaged.erase(std::unique(list.damaged.begin(), list.damaged.end()), list.damaged.end());
  return list;
}

void Coordinator::go_back(const std::vector<ConfigureReply>& peers) {
  if (!started_ && !config_.resume) return start_over();
  const CheckpointList own = checkpoints_.verify();
  if (own.whole.empty() && own.damaged.empty()) return start_over();
  const auto common = std::find_if(own.whole.rbegin(), own.whole.rend(), [&](std::uint64_t step) {
    return std::all_of(peers.begin(), peers.end(), [&](const ConfigureReply& peer) { return contains(peer.checkpoints.whole, step); });
  });
  const std::string damage = damaged_checkpoints(own, peers);
  if (common != own.whole.rend()) {
    if (!damage.empty()) config_.note(fmt::format("{}; going on from step {}, the newest that all processes have whole", damage, *common));
    return restore(*common);
  }
  // Of two, everybody has the older one.
  const bool first_was_being_written = own.whole.size() == 1 && damage.empty() && !config_.was_over;
  if (!started_ && !first_was_being_written) refuse_to_resume(own, peers);
  config_.note((damage.empty() ? "" : damage + "; ") + "no checkpoint is with all processes: beginning anew");
  start_over();
}

// "damaged checkpoints: of step 20 here, of step 20 and 10 with worker 1"; empty where all are whole.
std::string Coordinator::damaged_checkpoints(const CheckpointList& own, const std::vector<ConfigureReply>& peers) const {
  std::string text;
  const auto add = [&text](const std::vector<std::uint64_t>& steps, const std::string& where) {
    if (!steps.empty()) text += fmt::format("{} of step {} {}", text.empty() ? "damaged checkpoints:" : ",", newest_first(steps), where);
  };
  add(own.damaged, "here");
  for (std::size_t p = 0; p < peers_.size(); ++p) add(peers[p].checkpoints.damaged, "with " + peers_[p]->name());
  return text;
}

void Coordinator::refuse_to_resume(const CheckpointList& own, const std::vector<ConfigureReply>& peers) const {
  const auto listed = [](const std::vector<std::uint64_t>& steps) {
    return steps.empty() ? std::string("none") : fmt::format("of step {}", newest_first(steps));
  };
  std::string text = fmt::format("cannot resume: no checkpoint is with all processes; here: {}", listed(own.whole));
  for (std::size_t p = 0; p < peers_.size(); ++p) {
    text += fmt::format(", {}: {}", peers_[p]->name(), listed(peers[p].checkpoints.whole));
  }
  const std::string damage = damaged_checkpoints(own, peers);
  text += damage.empty() ? " (a server forgets a run that came to its end)" : "; " + damage;
  throw std::runtime_error(text + "; begin anew in another --run-dir");
}

std::size_t Coordinator::layers_of(const Peer& peer) const {
  std::size_t count = 0;
  for (std::size_t layer = 0; layer < local_->layers(); ++layer) count += runs(peer, layer) ? 1 : 0;
  return count;
}

// One of each worker in turn: none of them waits for the layers of all others, and counts as idle.
std::vector<std::size_t> Coordinator::loading_order() const {
  std::vector<std::vector<std::size_t>> of_worker(workers());
  for (std::size_t l = local_->layers(); l > 0; --l) of_worker[static_cast<std::size_t>(local_->worker_of_layer(l - 1))].push_back(l - 1);
  std::vector<std::size_t> order;
  while (order.size() < local_->layers()) {
    for (auto& layers : of_worker) {
      if (layers.empty()) continue;
      order.push_back(layers.back());
      layers.pop_back();
    }
  }
  return order;
}

// Layer by layer: a peer takes one while the next is made, so that few of other processes' layers are here at once.
void Coordinator::start_over() {
  const LayerWeights initial = config_.initial_weights();
  std::vector<std::size_t> left;  // layers that a peer has not been sent
  for (const auto& peer : peers_) left.push_back(layers_of(*peer));
  std::vector<bool> unanswered(peers_.size());
  for (const std::size_t layer : loading_order()) {
    LoadCommand command{layer, false, initial(layer)};
    for (std::size_t p = 0; p < peers_.size(); ++p) {
      if (!runs(*peers_[p], layer)) continue;
      if (unanswered[p]) peers_[p]->recv<LoadReply>();
      unanswered[p] = true;
      command.last = --left[p] == 0;
      peers_[p]->send(command);
    }
    if (local_->runs(layer)) local_->load(layer, command.weights);
  }
  local_->start_over();
  for (std::size_t p = 0; p < peers_.size(); ++p) {
    if (unanswered[p]) peers_[p]->recv<LoadReply>();
  }
}

// One layer of all that this replica runs, for whoever runs it; they come in loading_order().
void Coordinator::load(const LoadCommand& command) {
  if (command.layer >= local_->layers()) throw std::invalid_argument(fmt::format("there is no layer {}", command.layer));
  if (local_->runs(command.layer)) local_->load(command.layer, command.weights);
  const auto order = loading_order();
  const auto after = std::find(order.begin(), order.end(), command.layer) + 1;
  for (const auto& peer : peers_) {
    if (!runs(*peer, command.layer)) continue;
    LoadCommand passed_on = command;
    passed_on.last = std::none_of(after, order.end(), [&](std::size_t later) { return runs(*peer, later); });
    peer->send(passed_on);
    peer->recv<LoadReply>();
  }
  if (command.last) local_->start_over();
}

void Coordinator::restore(std::uint64_t step) {
  for (const auto& peer : peers_) peer->send(RestoreCommand{step});
  local_->restore(checkpoints_.load(step));
  wait_for_all<RestoreReply>();
}

void Coordinator::open_channels() {
  ++attempt_;
  for (const auto& peer : peers_) peer->send(OpenChannelsCommand{attempt_, connector_->addresses()});
  local_->connect([this](int cut, int peer) { return connector_->data_channel(cut, peer, attempt_); }, config_.timeout);
  wait_for_all<OpenChannelsReply>();
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
  const ReplicaStepCommand to_leader{command.id.epoch, command.id.step, command.id.measure_error, command.training};
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
StepResult Coordinator::run_own(const StepCommand& command) {
  try {
    return command.training ? local_->forward_backward(command.batch, command.id, known_ ? &*known_ : nullptr)
                            : local_->evaluate(command.batch, command.id);
  } catch (const ReplicaLost&) {
    explain(std::current_exception(), /*leaders_know=*/true);
  } catch (const std::runtime_error&) {
    explain(std::current_exception(), /*leaders_know=*/false);
  }
}

// Where another replica is to blame, for this process or for a worker, the leaders know more; they answer after the workers. Not where a
// worker is gone: then all that they miss is us.
void Coordinator::explain(const std::exception_ptr& own, bool leaders_know) {
  std::exception_ptr reason = own;
  bool worker_gone = false;
  local_->disconnect();
  for (const auto& peer : peers_) {
    try {
      if (decision_) peer->recv<CommitReply>(kReasonTimeout);
      peer->recv<StepReply>(kReasonTimeout);
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
  if (!decision_) return;
  for_all_replies<CommitReply>([&](Peer&, const CommitReply& reply) { draining_ = draining_ || reply.drain; });
  decision_.reset();
}

void Coordinator::save() {
  confirm_commit();
  for (const auto& peer : peers_) peer->send(SaveCommand{});
  checkpoints_.save(local_->checkpoint());
  wait_for_all<SaveReply>();
}

// A peer decides about values, and about nothing else.
void Coordinator::check_weights(const Peer& peer, std::size_t layer, const NamedTensors& weights) const {
  const NamedTensors expected = config_.expected_weights(layer);
  const auto fits = model::check_fits(weights, expected);
  if (!fits) throw PeerFailed(fmt::format("{}: layer {}: {}", peer.name(), layer, fits.error().message));
  for (const auto& [name, tensor] : weights) {
    if (tensor.scalar_type() == expected.at(name).scalar_type()) continue;
    throw PeerFailed(fmt::format("{}: layer {}: {} is of another type", peer.name(), layer, name));
  }
}

// Other replicas have the same.
void Coordinator::visit_weights(const std::function<void(const NamedTensors& layer)>& visit) {
  confirm_commit();
  for (std::size_t layer = 0; layer < local_->layers(); ++layer) {
    const int worker = local_->worker_of_layer(layer);
    const auto at =
        std::find_if(peers_.begin(), peers_.end(), [&](const auto& peer) { return !peer->leads() && peer->worker() == worker; });
    if (at == peers_.end()) {
      visit(local_->weights(layer));
    } else {
      (*at)->send(WeightsCommand{layer});
      const WeightsReply reply = (*at)->recv<WeightsReply>();
      check_weights(**at, layer, reply.weights);
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
    if (decision_) tolerant([&] { peer->recv<CommitReply>(); });
  }
  decision_.reset();
  for (const auto& peer : peers_) tolerant([&] { peer->send(Sent{}); });
  for (const auto& peer : peers_) tolerant([&] { peer->recv<typename Sent::Answer>(); });
}

template void Coordinator::send_to_all_and_wait<EndCommand>();
template void Coordinator::send_to_all_and_wait<LeaveCommand>();

}  // namespace epipe::session
