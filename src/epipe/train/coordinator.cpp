#include "epipe/train/coordinator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>

#include "epipe/base/queue.h"
#include "epipe/train/step_json.h"
#include "epipe/train/timeline.h"

namespace epipe::train {

using pipeline::StepResult;

// Where a process stands.
struct Coordinator::Standing {
  std::optional<std::uint64_t> steps_done;  // nothing: it has no memory of the run
  std::optional<std::uint64_t> pending;     // gradients that wait for their commit
  CheckpointList checkpoints;
};

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

Coordinator::Coordinator(const Plan& plan, LocalTrainer& share, PeerConnector* connector, CoordinatorConfig config, InitialModel initial)
    : plan_(plan),
      local_(share),
      connector_(connector),
      config_(std::move(config)),
      initial_(std::move(initial)),
      checkpoints_(config_.checkpoints),
      attempt_(first_attempt()) {}

Coordinator::~Coordinator() { close_peers(); }

void Coordinator::close_peers() {
  for (const auto& peer : peers_) peer->close();
  peers_.clear();
}

template <typename Work>
void Coordinator::for_all_answers(const std::string& kind, const Work& work) {
  for (const auto& peer : peers_) work(*peer, peer->answer(kind));
}

// A peer that waits for a tensor of ours must hear that none comes before it can answer.
std::uint64_t Coordinator::connect() {
  local_.disconnect();
  close_peers();
  const auto standings = ask_standings();
  if (started_ && can_continue(standings)) {
    finish_commit(standings);
  } else {
    go_back(standings);
  }
  decision_.reset();
  started_ = true;
  open_channels();
  return local_.steps_done();
}

void Coordinator::add_peer(int worker, Peer::Role role) {
  peers_.push_back(std::make_unique<Peer>(worker, role, connector_->name(worker), connector_->command_channel(worker), config_.timeout));
  peers_.back()->ask({"plan", {{"plan", config_.shared_plan}, {"worker", role == Peer::Role::kLeader ? 0 : worker}}});
}

std::vector<Coordinator::Standing> Coordinator::ask_standings() {
  std::vector<Standing> standings;
  if (connector_ == nullptr) return standings;
  for (const int worker : connector_->workers()) add_peer(worker, Peer::Role::kWorker);
  for (const int leader : connector_->leaders()) add_peer(leader, Peer::Role::kLeader);
  for_all_answers("planned", [&](Peer& peer, const Message& answer) {
    try {
      Standing standing;
      standing.checkpoints.whole = answer.fields.at("checkpoints").get<std::vector<std::uint64_t>>();
      standing.checkpoints.damaged = answer.fields.value("damaged", std::vector<std::uint64_t>());
      if (answer.fields.contains("steps_done")) standing.steps_done = answer.fields.at("steps_done").get<std::uint64_t>();
      if (answer.fields.contains("pending")) standing.pending = answer.fields.at("pending").get<std::uint64_t>();
      standings.push_back(std::move(standing));
    } catch (const nlohmann::json::exception& error) {
      throw PeerFailed(fmt::format("{}: its answer planned is damaged: {}", peer.name(), error.what()));
    }
  });
  return standings;
}

// Everybody did the client's steps, or all but the last one, which is decided and whose gradients are still there.
bool Coordinator::can_continue(const std::vector<Standing>& standings) const {
  return std::all_of(standings.begin(), standings.end(), [&](const Standing& peer) {
    if (!peer.steps_done) return false;
    if (*peer.steps_done == local_.steps_done()) return true;
    return decision_ && decision_->step == *peer.steps_done && peer.pending == decision_->step &&
           local_.steps_done() == decision_->step + 1;
  });
}

void Coordinator::finish_commit(const std::vector<Standing>& standings) {
  for (std::size_t p = 0; p < peers_.size(); ++p) {
    if (*standings[p].steps_done == local_.steps_done()) continue;
    peers_[p]->ask(commit_message(*decision_));
    peers_[p]->answer("committed");
  }
}

// Whole with all; damaged with one.
CheckpointList Coordinator::common_checkpoints() {
  const auto standings = ask_standings();
  CheckpointList list = checkpoints_.verify();
  for (const Standing& peer : standings) {
    std::erase_if(list.whole, [&](std::uint64_t step) { return !contains(peer.checkpoints.whole, step); });
    list.damaged.insert(list.damaged.end(), peer.checkpoints.damaged.begin(), peer.checkpoints.damaged.end());
  }
  std::sort(list.damaged.begin(), list.damaged.end());
  list.damaged.erase(std::unique(list.damaged.begin(), list.damaged.end()), list.damaged.end());
  return list;
}

void Coordinator::go_back(const std::vector<Standing>& standings) {
  CheckpointList own = checkpoints_.verify();
  if (!started_ && !config_.resume) own = {};
  if (own.whole.empty() && own.damaged.empty()) return start_over();
  const auto common = std::find_if(own.whole.rbegin(), own.whole.rend(), [&](std::uint64_t step) {
    return std::all_of(standings.begin(), standings.end(), [&](const Standing& peer) { return contains(peer.checkpoints.whole, step); });
  });
  const std::string damage = damaged_checkpoints(own, standings);
  if (common != own.whole.rend()) {
    if (!damage.empty()) config_.note(fmt::format("{}; going on from step {}, the newest that all processes have whole", damage, *common));
    return restore(*common);
  }
  // Of two, everybody has the older one.
  const bool first_was_being_written = own.whole.size() == 1 && damage.empty() && !config_.was_over;
  if (!started_ && !first_was_being_written) refuse_to_resume(own, standings);
  config_.note((damage.empty() ? "" : damage + "; ") + "no checkpoint is with all processes: beginning anew");
  start_over();
}

// "damaged checkpoints: of step 20 here, of step 20 and 10 with worker 1"; empty where all are whole.
std::string Coordinator::damaged_checkpoints(const CheckpointList& own, const std::vector<Standing>& standings) const {
  std::string text;
  const auto add = [&text](const std::vector<std::uint64_t>& steps, const std::string& where) {
    if (!steps.empty()) text += fmt::format("{} of step {} {}", text.empty() ? "damaged checkpoints:" : ",", newest_first(steps), where);
  };
  add(own.damaged, "here");
  for (std::size_t p = 0; p < peers_.size(); ++p) add(standings[p].checkpoints.damaged, "with " + peers_[p]->name());
  return text;
}

void Coordinator::refuse_to_resume(const CheckpointList& own, const std::vector<Standing>& standings) const {
  const auto listed = [](const std::vector<std::uint64_t>& steps) {
    return steps.empty() ? std::string("none") : fmt::format("of step {}", newest_first(steps));
  };
  std::string text = fmt::format("cannot resume: no checkpoint is with all processes; here: {}", listed(own.whole));
  for (std::size_t p = 0; p < peers_.size(); ++p) {
    text += fmt::format(", {}: {}", peers_[p]->name(), listed(standings[p].checkpoints.whole));
  }
  const std::string damage = damaged_checkpoints(own, standings);
  text += damage.empty() ? " (a server forgets a run that came to its end)" : "; " + damage;
  throw std::runtime_error(text + "; begin anew in another --run-dir");
}

void Coordinator::start_over() {
  const model::Model model = initial_();
  std::vector<int> all(static_cast<std::size_t>(schedule::Placement{plan_.place}.workers()));
  std::iota(all.begin(), all.end(), 0);
  for (const auto& peer : peers_) {
    peer->ask({"load", nlohmann::json::object(), weights_of(model, plan_, peer->leads() ? all : std::vector<int>{peer->worker()})});
  }
  local_.start_over(weights_of(model, plan_, local_.workers()));
  for_all_answers("loaded", [](Peer&, const Message&) {});
}

void Coordinator::restore(std::uint64_t step) {
  for (const auto& peer : peers_) peer->ask({"restore", {{"step", step}}});
  local_.restore(checkpoints_.load(step));
  for_all_answers("restored", [](Peer&, const Message&) {});
}

void Coordinator::open_channels() {
  ++attempt_;
  for (const auto& peer : peers_) peer->ask({"connect", {{"attempt", attempt_}, {"addresses", connector_->addresses()}}});
  local_.connect([this](int cut, int peer) { return connector_->data_channel(cut, peer, attempt_); }, config_.timeout);
  for_all_answers("connected", [](Peer&, const Message&) {});
}

// Nobody has to agree, and nothing has to be known of the gradients.
bool Coordinator::knows_update() const { return peers_.empty() && !local_.has_replicas() && config_.clip == 0 && !plan_.loss_scaling; }

StepResult Coordinator::forward_backward(const layer::Batch& batch, const pipeline::StepId& id, double lr) {
  known_ = knows_update() ? std::optional(decide(lr)) : std::nullopt;
  pipeline::StepId scaled = id;
  scaled.loss_scale = local_.loss_scale();
  return run({batch, scaled, true, config_.clip > 0});
}

StepResult Coordinator::evaluate(const layer::Batch& batch, const pipeline::StepId& id) { return run({batch, id, false, false}); }

StepResult Coordinator::run(const StepCommand& head) {
  const int last = plan_.place.back();
  for (const auto& peer : peers_) peer->ask(peer->leads() ? leader_step_message(head) : step_message(head, peer->worker() == last));
  StepResult result = run_own(head);
  result.targets = head.batch.targets;
  norms_.clear();
  if (head.norms && !result.non_finite) norms_ = local_.squared_gradient_norms();
  confirm_commit();
  for_all_answers("stepped", [&](Peer& peer, const Message& answer) {
    try {
      take_step(result, peer, answer, head.norms);
    } catch (const std::exception& error) {
      throw PeerFailed(fmt::format("{}: its answer stepped is damaged: {}", peer.name(), error.what()));
    }
  });
  non_finite_ = result.non_finite;
  return result;
}

// Workers answer before leaders: the parts of this replica are together when those of others are appended.
void Coordinator::take_step(StepResult& result, Peer& peer, const Message& answer, bool norms) {
  const auto workers = static_cast<std::size_t>(schedule::Placement{plan_.place}.workers());
  StepResult theirs = step_result_from_json(answer.fields.at("result"), plan_.cuts.size(), workers);
  if (const auto found = answer.tensors.find("predictions"); found != answer.tensors.end()) theirs.predictions = found->second;
  if (const auto found = answer.tensors.find("targets"); found != answer.tensors.end()) theirs.targets = found->second;
  if (peer.leads()) return add_replica(result, theirs);
  merge(result, theirs);
  if (theirs.predictions.defined()) result.predictions = theirs.predictions;
  if (norms && !theirs.non_finite) norms_.merge(answer.fields.at("norms").get<std::map<std::string, double>>());
}

// When a peer fails, what the client sees first is that tensors or gradients no longer come; the peer knows why.
StepResult Coordinator::run_own(const StepCommand& head) {
  try {
    return head.training ? local_.forward_backward(head.batch, head.id, known_ ? &*known_ : nullptr) : local_.evaluate(head.batch, head.id);
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
  local_.disconnect();
  for (const auto& peer : peers_) {
    try {
      if (decision_) peer->answer("committed", kReasonTimeout);
      peer->answer("stepped", kReasonTimeout);
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
  for (const std::string& name : config_.parameter_order) {
    if (const auto found = norms_.find(name); found != norms_.end()) total += found->second;
  }
  return std::min(1.0, config_.clip / (std::sqrt(total) / loss_scale + 1e-6));
}

Update Coordinator::decide(double lr) const {
  const double loss_scale = local_.loss_scale();
  if (plan_.loss_scaling && non_finite_) return {lr, 1, true};
  return {lr, (config_.clip > 0 ? clip_scale(loss_scale) : 1) / loss_scale, false};
}

Message Coordinator::commit_message(const Decision& decision) {
  const auto& [lr, scale, skip] = decision.update;
  return {"commit", {{"step", decision.step}, {"lr", lr}, {"scale", scale}, {"skip", skip}}};
}

void Coordinator::commit(std::uint64_t step, const Update& update) {
  decision_ = {step, update};
  std::exception_ptr lost;
  for (const auto& peer : peers_) {
    try {
      peer->ask(commit_message(*decision_));
    } catch (const transport::ConnectionLost&) {
      lost = std::current_exception();  // it learns of the decision when it is back
    }
  }
  local_.commit(step, update);
  if (lost) std::rethrow_exception(lost);
  if (local_.loss_scale() < LossScaler::kLeast) {
    throw std::runtime_error(
        fmt::format("the loss or its gradients are not finite at any loss scale; step {} was the last one tried; "
                    "use a smaller --lr, or --precision bf16",
                    step));
  }
}

void Coordinator::confirm_commit() {
  if (!decision_) return;
  for_all_answers("committed", [&](Peer&, const Message& answer) { draining_ = draining_ || answer.fields.value("drain", false); });
  decision_.reset();
}

void Coordinator::save() {
  confirm_commit();
  for (const auto& peer : peers_) peer->ask({"save"});
  checkpoints_.save(local_.checkpoint());
  for_all_answers("saved", [](Peer&, const Message&) {});
}

NamedTensors Coordinator::weights() {
  confirm_commit();
  NamedTensors all = local_.weights();
  for (const auto& peer : peers_) {
    if (!peer->leads()) peer->ask({"weights"});  // other replicas have the same
  }
  for (const auto& peer : peers_) {
    if (!peer->leads()) all.merge(peer->answer("weights").tensors);
  }
  return all;
}

// What to add to the peer's clock for ours. Of some questions the one with the fastest answer tells best: it lies in its middle.
double Coordinator::clock_offset(Peer& peer, const Tracer& own) {
  double fastest = std::numeric_limits<double>::infinity();
  double offset = 0;
  for (int i = 0; i < kClockQuestions; ++i) {
    const double asked = own.now();
    peer.ask({"clock"});
    const Message answer = peer.answer("clock");
    const double answered = own.now();
    if (answered - asked >= fastest) continue;
    fastest = answered - asked;
    const auto now = answer.fields.find("now");
    if (now != answer.fields.end() && now->is_number()) offset = (asked + answered) / 2 - now->get<double>();
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
      peer->ask({"timeline"});
      const Message answer = peer->answer("timeline");
      auto events = timeline_from_json(answer.fields.value("events", nlohmann::json()), peer->worker(), plan_.cuts.size(), offset);
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
void Coordinator::say_goodbye(const std::string& command, const std::string& kind) {
  const auto politely = [this](const std::function<void()>& work) {
    try {
      work();
    } catch (const transport::ConnectionLost&) {
    } catch (const transport::TimedOut&) {
    } catch (const PeerFailed& failed) {
      config_.note(failed.what());
    }
  };
  politely([this] { confirm_commit(); });
  for (const auto& peer : peers_) politely([&] { peer->ask({command}); });
  for (const auto& peer : peers_) politely([&] { peer->answer(kind); });
}

}  // namespace epipe::train
