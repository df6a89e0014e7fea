#include "epipe/train/team.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>

#include "epipe/base/queue.h"
#include "epipe/train/step_json.h"
#include "epipe/train/timeline.h"

namespace epipe::train {

using pipeline::StepResult;

// Where a process stands.
struct Team::Standing {
  std::optional<std::uint64_t> steps_done;  // nothing: it has no memory of the run
  std::optional<std::uint64_t> pending;     // gradients that wait for their commit
  std::vector<std::uint64_t> checkpoints;
};

namespace {

// A peer that answers has its reason by then; the client's own is that the peer went away.
constexpr transport::Patience kReasonPatience = std::chrono::seconds(2);
constexpr int kClockQuestions = 3;

bool contains(const std::vector<std::uint64_t>& steps, std::uint64_t step) {
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

std::uint64_t first_attempt() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

}  // namespace

Team::Team(const Plan& plan, Share& share, Reach* reach, TeamConfig config, InitialModel initial)
    : plan_(plan),
      share_(share),
      reach_(reach),
      config_(std::move(config)),
      initial_(std::move(initial)),
      checkpoints_(config_.checkpoints),
      attempt_(first_attempt()) {}

Team::~Team() { close_peers(); }

void Team::close_peers() {
  for (const auto& peer : peers_) peer->close();
  peers_.clear();
}

template <typename Work>
void Team::for_all_answers(const std::string& kind, const Work& work) {
  for (const auto& peer : peers_) work(*peer, peer->answer(kind));
}

std::uint64_t Team::connect() {
  close_peers();
  const auto standings = ask_standings();
  if (started_ && can_continue(standings)) {
    finish_commit(standings);
  } else {
    go_back(standings);
  }
  decision_.reset();
  started_ = true;
  open_ways();
  return share_.steps_done();
}

std::vector<Team::Standing> Team::ask_standings() {
  std::vector<Standing> standings;
  if (reach_ == nullptr) return standings;
  for (const int worker : reach_->workers()) {
    peers_.push_back(std::make_unique<Peer>(worker, reach_->name(worker), reach_->command(worker), config_.patience));
    peers_.back()->ask({"plan", {{"plan", config_.shared_plan}, {"worker", worker}}});
  }
  for_all_answers("planned", [&](Peer& peer, const Message& answer) {
    try {
      Standing standing;
      standing.checkpoints = answer.fields.at("checkpoints").get<std::vector<std::uint64_t>>();
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
bool Team::can_continue(const std::vector<Standing>& standings) const {
  return std::all_of(standings.begin(), standings.end(), [&](const Standing& peer) {
    if (!peer.steps_done) return false;
    if (*peer.steps_done == share_.steps_done()) return true;
    return decision_ && decision_->step == *peer.steps_done && peer.pending == decision_->step &&
           share_.steps_done() == decision_->step + 1;
  });
}

void Team::finish_commit(const std::vector<Standing>& standings) {
  for (std::size_t p = 0; p < peers_.size(); ++p) {
    if (*standings[p].steps_done == share_.steps_done()) continue;
    peers_[p]->ask({"commit", {{"step", decision_->step}, {"lr", decision_->lr}, {"scale", decision_->scale}}});
    peers_[p]->answer("committed");
  }
}

void Team::go_back(const std::vector<Standing>& standings) {
  auto own = checkpoints_.steps();
  if (!started_ && !config_.resume) own.clear();
  std::reverse(own.begin(), own.end());
  const auto common = std::find_if(own.begin(), own.end(), [&](std::uint64_t step) {
    return std::all_of(standings.begin(), standings.end(), [&](const Standing& peer) { return contains(peer.checkpoints, step); });
  });
  common == own.end() ? start_over() : restore(*common);
}

void Team::start_over() {
  const model::Model model = initial_();
  for (const auto& peer : peers_) peer->ask({"load", nlohmann::json::object(), weights_of(model, plan_, {peer->worker()})});
  share_.start_over(weights_of(model, plan_, share_.workers()));
  for_all_answers("loaded", [](Peer&, const Message&) {});
}

void Team::restore(std::uint64_t step) {
  for (const auto& peer : peers_) peer->ask({"restore", {{"step", step}}});
  share_.restore(checkpoints_.load(step));
  for_all_answers("restored", [](Peer&, const Message&) {});
}

void Team::open_ways() {
  ++attempt_;
  for (const auto& peer : peers_) peer->ask({"connect", {{"attempt", attempt_}, {"addresses", reach_->addresses()}}});
  share_.connect([this](int cut, int peer) { return reach_->way(cut, peer, attempt_); }, config_.patience);
  for_all_answers("connected", [](Peer&, const Message&) {});
}

StepResult Team::forward_backward(const layer::Batch& batch, const pipeline::StepId& id) {
  return run({batch, id, true, config_.clip > 0});
}

StepResult Team::evaluate(const layer::Batch& batch, const pipeline::StepId& id) { return run({batch, id, false, false}); }

StepResult Team::run(const StepHead& head) {
  const int last = plan_.place.back();
  for (const auto& peer : peers_) peer->ask(step_message(head, peer->worker() == last));
  StepResult result = run_own(head);
  norms_.clear();
  if (head.norms) norms_ = share_.squared_gradient_norms();
  confirm_commit();
  for_all_answers("stepped", [&](Peer& peer, const Message& answer) {
    try {
      merge(result, step_result_from_json(answer.fields.at("result"), plan_.cuts.size(), result.workers.size()));
      if (const auto found = answer.tensors.find("predictions"); found != answer.tensors.end()) result.predictions = found->second;
      if (head.norms) norms_.merge(answer.fields.at("norms").get<std::map<std::string, double>>());
    } catch (const std::exception& error) {
      throw PeerFailed(fmt::format("{}: its answer stepped is damaged: {}", peer.name(), error.what()));
    }
  });
  return result;
}

// When a peer fails, what the client sees first is that tensors no longer come; the peer knows why.
StepResult Team::run_own(const StepHead& head) {
  try {
    return head.training ? share_.forward_backward(head.batch, head.id) : share_.evaluate(head.batch, head.id);
  } catch (const std::runtime_error&) {
    const auto own = std::current_exception();
    share_.disconnect();
    for (const auto& peer : peers_) {
      try {
        if (decision_) peer->answer("committed", kReasonPatience);
        peer->answer("stepped", kReasonPatience);
      } catch (const PeerFailed&) {
        throw;
      } catch (const std::exception&) {
        // Lost as well, or stepped: no better reason than our own.
      }
    }
    std::rethrow_exception(own);
  }
}

// Squared norms parameter by parameter in float64, summed in model order: the same for every placement.
double Team::clip_scale(const std::map<std::string, double>& norms) const {
  double total = 0;
  for (const std::string& name : config_.parameter_order) {
    if (const auto found = norms.find(name); found != norms.end()) total += found->second;
  }
  return std::min(1.0, config_.clip / (std::sqrt(total) + 1e-6));
}

void Team::commit(std::uint64_t step, double lr) {
  decision_ = {step, lr, config_.clip > 0 ? clip_scale(norms_) : 1};
  std::exception_ptr lost;
  for (const auto& peer : peers_) {
    try {
      peer->ask({"commit", {{"step", step}, {"lr", lr}, {"scale", decision_->scale}}});
    } catch (const transport::Lost&) {
      lost = std::current_exception();  // it learns of the decision when it is back
    }
  }
  share_.commit(step, lr, decision_->scale);
  if (lost) std::rethrow_exception(lost);
}

void Team::confirm_commit() {
  if (!decision_) return;
  for_all_answers("committed", [&](Peer&, const Message& answer) { draining_ = draining_ || answer.fields.value("drain", false); });
  decision_.reset();
}

void Team::save() {
  confirm_commit();
  for (const auto& peer : peers_) peer->ask({"save"});
  checkpoints_.save(share_.checkpoint());
  for_all_answers("saved", [](Peer&, const Message&) {});
}

NamedTensors Team::weights() {
  confirm_commit();
  for (const auto& peer : peers_) peer->ask({"weights"});
  NamedTensors all = share_.weights();
  for_all_answers("weights", [&](Peer&, const Message& answer) { all.insert(answer.tensors.begin(), answer.tensors.end()); });
  return all;
}

// What to add to the peer's clock for ours. Of some questions the one with the fastest answer tells best: it lies in its middle.
double Team::clock_offset(Peer& peer, const Tracer& own) {
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

std::vector<Tracer::Event> Team::timelines(const Tracer& own) {
  std::vector<Tracer::Event> all;
  try {
    confirm_commit();
    for (const auto& peer : peers_) {
      const double offset = clock_offset(*peer, own);
      peer->ask({"timeline"});
      const Message answer = peer->answer("timeline");
      auto events = timeline_from_json(answer.fields.value("events", nlohmann::json()), peer->worker(), plan_.cuts.size(), offset);
      std::move(events.begin(), events.end(), std::back_inserter(all));
    }
  } catch (const transport::Lost&) {  // the timeline is for people to look at: not worth a replay
  } catch (const transport::TimedOut&) {
  }
  return all;
}

// A peer that is lost now keeps its checkpoints until its operator removes them; the run has all it needs.
void Team::say_goodbye(const std::string& command, const std::string& kind) {
  try {
    confirm_commit();
    for (const auto& peer : peers_) peer->ask({command});
    for_all_answers(kind, [](Peer&, const Message&) {});
  } catch (const transport::Lost&) {
  } catch (const transport::TimedOut&) {
  }
}

}  // namespace epipe::train
