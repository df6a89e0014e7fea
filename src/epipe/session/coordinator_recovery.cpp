// How a coordinator brings all processes to the same step: at the start, and after a loss.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "epipe/session/coordinator.h"

namespace epipe::session {
namespace {

bool contains(const std::vector<std::uint64_t>& steps, std::uint64_t step) {
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

std::string newest_first(const std::vector<std::uint64_t>& steps) {
  return fmt::format("{}", fmt::join(steps.rbegin(), steps.rend(), " and "));
}

}  // namespace

// A peer that waits for a tensor of ours must hear that none comes before it can answer.
std::uint64_t Coordinator::connect() {
  local_->disconnect();
  close_peers();
  running_early_ = false;
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
  set_own_state(nullptr);
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
  const Checkpoint checkpoint = checkpoints_.load(step);
  local_->restore(checkpoint);
  set_own_state(&checkpoint);
  wait_for_all<RestoreReply>();
}

void Coordinator::open_channels() {
  ++attempt_;
  for (const auto& peer : peers_) peer->send(OpenChannelsCommand{attempt_, connector_->addresses()});
  local_->connect([this](int cut, int peer) { return connector_->data_channel(cut, peer, attempt_); }, config_.timeout);
  wait_for_all<OpenChannelsReply>();
}

}  // namespace epipe::session
