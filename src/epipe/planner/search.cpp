#include "epipe/planner/search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <queue>
#include <set>
#include <stdexcept>
#include <tuple>

#include "epipe/planner/bound.h"
#include "epipe/planner/possible.h"
#include "epipe/schedule/generate.h"

namespace epipe::planner {
namespace {

using schedule::Direction;

Error impossible(std::string text) { return {ErrorCode::kBadSchedule, std::move(text)}; }

bool splits_backward(const std::string& name) { return schedule::find_generator(name).value().splits_backward; }

// What is missing where nothing fits.
struct Shortage {
  std::string worker;
  double needs = kUnlimited;
  double has = 0;
  double missing() const { return needs - has; }
};

struct Candidate {
  double bound = 0;
  std::uint64_t order = 0;  // of equal bounds the first one found comes first
  bool open = true;         // its codecs are still to be chosen
  Choice choice{};
};
struct Later {
  bool operator()(const Candidate& a, const Candidate& b) const { return std::tie(a.bound, a.order) > std::tie(b.bound, b.order); }
};

class Search {
 public:
  Search(const Inputs& inputs, const SearchConfig& config)
      : inputs_(inputs),
        config_(config),
        pricer_(inputs),
        place_(inputs.constraints.place.value_or(default_place(inputs))),
        schedules_(possible_schedules(inputs, {place_})),
        splits_(std::any_of(schedules_.begin(), schedules_.end(), splits_backward)) {}

  Result<Proposal> run() {
    EPIPE_TRY(check_request());
    const auto chunks = possible_chunks(inputs_);
    for_cuts([&](const std::vector<std::size_t>& cuts) {
      if (!keeps_layers(cuts)) return;
      ++kept_;
      for (const int m : chunks) add_open(cuts, m);
    });
    while (!queue_.empty() && goes_on()) {
      const Candidate next = queue_.top();
      queue_.pop();
      next.open ? choose_codecs(next) : price(next.choice);
    }
    if (priced_.empty()) return nothing_fits();
    return proposal();
  }

 private:
  Result<void> check_request() const {
    EPIPE_TRY(check(schedule::Placement{place_}));
    const int workers = schedule::Placement{place_}.workers();
    if (static_cast<std::size_t>(workers) > inputs_.workers.size()) {
      return impossible(
          fmt::format("the placement {} names {} workers, but there are {}", fmt::join(place_, ","), workers, inputs_.workers.size()));
    }
    if (schedules_.empty()) {
      return impossible(
          fmt::format("the schedule {} cannot run on the placement {}", inputs_.constraints.schedule.value_or(""), fmt::join(place_, ",")));
    }
    if (place_.size() > inputs_.layers.size()) {
      return impossible(fmt::format("{} has {} layers, but {} stages need one each: {} are missing", inputs_.model, inputs_.layers.size(),
                                    place_.size(), place_.size() - inputs_.layers.size()));
    }
    if (inputs_.constraints.cuts && inputs_.constraints.cuts->size() + 1 != place_.size()) {
      return impossible(fmt::format("{} cuts make {} stages, but the placement {} has {}", inputs_.constraints.cuts->size(),
                                    inputs_.constraints.cuts->size() + 1, fmt::join(place_, ","), place_.size()));
    }
    for (const auto& at : inputs_.constraints.codec_at) {
      if (at.cut + 1 < place_.size()) continue;
      return impossible(fmt::format("a codec is given for cut {}, but the placement {} has {} cuts, from 0", at.cut, fmt::join(place_, ","),
                                    place_.size() - 1));
    }
    EPIPE_TRY(check_end(inputs_.layers.front(), "first", "begins", place_.front()));
    EPIPE_TRY(check_end(inputs_.layers.back(), "last", "ends", place_.back()));
    return {};
  }

  Result<void> check_end(const Layer& layer, const char* which, const char* does, int worker) const {
    if (!layer.with_client || worker == 0) return {};
    return impossible(
        fmt::format("the {} layer, {}, stays with the {}, worker 0, but the placement {} {} on worker {}: expected one such as 0,1,0",
                    which, layer.name, inputs_.workers[0].name, fmt::join(place_, ","), does, worker));
  }

  void for_cuts(const std::function<void(const std::vector<std::size_t>&)>& visit) const {
    if (inputs_.constraints.cuts) return visit(*inputs_.constraints.cuts);
    const std::size_t count = place_.size() - 1;
    const auto where = possible_positions(inputs_, count);
    std::vector<std::size_t> cuts;
    const std::function<void(std::size_t)> choose = [&](std::size_t from) {
      if (cuts.size() == count) return visit(cuts);
      for (std::size_t i = from; i < where.size(); ++i) {
        cuts.push_back(where[i]);
        choose(i + 1);
        cuts.pop_back();
      }
    };
    choose(0);
  }

  bool keeps_layers(const std::vector<std::size_t>& cuts) const {
    for (std::size_t j = 0; j < place_.size(); ++j) {
      const std::size_t begin = j == 0 ? 0 : cuts[j - 1];
      const std::size_t end = j < cuts.size() ? cuts[j] : inputs_.layers.size();
      if (place_[j] != 0 && pricer_.sums().with_client(begin, end)) return false;
    }
    return true;
  }

  // With the codecs that cost least of each kind: the bound of every choice of codecs.
  void add_open(const std::vector<std::size_t>& cuts, int chunks) {
    Choice choice{cuts, place_, chunks, std::vector<CutCodecs>(cuts.size()), "", 0};
    if (!fits(choice, std::vector<int>(place_.size(), 1))) return;
    StageCosts costs = stage_costs(inputs_, pricer_.sums(), choice);
    for (std::size_t cut = 0; cut < cuts.size(); ++cut) {
      lower(costs.crossing_forward[cut], costs, cuts, cut, Direction::kForward);
      lower(costs.crossing_backward[cut], costs, cuts, cut, Direction::kBackward);
    }
    push(bound(choice, costs), std::move(choice), /*open=*/true);
  }

  void lower(Crossing& crossing_of, const StageCosts& costs, const std::vector<std::size_t>& cuts, std::size_t cut, Direction direction) {
    if (crossing_of.bytes == 0) return;
    const bool forward = direction == Direction::kForward;
    const int from = place_[forward ? cut : cut + 1];
    const int to = place_[forward ? cut + 1 : cut];
    for (const std::size_t codec : possible_codecs(inputs_, cut, direction)) {
      const Crossing other = crossing(inputs_, direction, cuts[cut] - 1, costs.samples, codec, from, to);
      crossing_of.bytes = std::min(crossing_of.bytes, other.bytes);
      crossing_of.transfer = std::min(crossing_of.transfer, other.transfer);
      crossing_of.carry_out = std::min(crossing_of.carry_out, other.carry_out);
      crossing_of.carry_in = std::min(crossing_of.carry_in, other.carry_in);
      crossing_of.encode = std::min(crossing_of.encode, other.encode);
      crossing_of.decode = std::min(crossing_of.decode, other.decode);
    }
  }

  void choose_codecs(const Candidate& open) {
    std::vector<Choice> choices = {open.choice};
    for (std::size_t cut = 0; cut < open.choice.cuts.size(); ++cut) {
      std::vector<Choice> more;
      for (const Choice& choice : choices) {
        for (const std::size_t forward : possible_codecs(inputs_, cut, Direction::kForward)) {
          for (const std::size_t backward : possible_codecs(inputs_, cut, Direction::kBackward)) {
            more.push_back(choice);
            more.back().codecs[cut] = {forward, backward};
          }
        }
      }
      choices = std::move(more);
    }
    for (Choice& choice : choices) {
      const StageCosts costs = stage_costs(inputs_, pricer_.sums(), choice);
      push(bound(choice, costs), std::move(choice), /*open=*/false);
    }
  }

  double bound(const Choice& choice, const StageCosts& costs) const {
    const double step = least_seconds(inputs_, costs, choice.chunks, splits_) + pricer_.client_update(choice) + inputs_.step_seconds;
    return std::max(step, pricer_.load_seconds());
  }

  void push(double bound, Choice choice, bool open) { queue_.push({bound, order_++, open, std::move(choice)}); }

  // Remembers the smallest shortage.
  bool fits(const Choice& choice, const std::vector<int>& live) {
    const auto bytes = pricer_.memory(choice, live);
    Shortage worst{"", 0, 0};
    for (std::size_t w = 0; w < bytes.size(); ++w) {
      const Worker& worker = inputs_.workers[w];
      if (bytes[w] > worker.memory && bytes[w] - worker.memory > worst.missing()) worst = {worker.name, bytes[w], worker.memory};
    }
    if (worst.worker.empty()) return true;
    if (worst.missing() < shortage_.missing()) shortage_ = worst;
    return false;
  }

  void price(Choice choice) {
    for (const std::string& name : schedules_) {
      choice.schedule = name;
      for (const int in_flight : possible_in_flight(inputs_, name, choice.chunks)) {
        choice.in_flight = in_flight;
        ++considered_;
        if (!fits(choice, pricer_.schedule_of(choice).live_limit)) continue;
        ++simulated_;
        priced_.push_back(pricer_.best_order(choice));
        fastest_ = std::min(fastest_, priced_.back().price.seconds);
      }
    }
  }

  bool goes_on() const {
    return config_.exhaustive || (queue_.top().bound <= threshold() && simulated_ < static_cast<std::uint64_t>(config_.simulations));
  }
  double threshold() const { return fastest_ * (1 + config_.as_good); }

  int coded(const Choice& choice) const {
    int count = 0;
    for (const CutCodecs& codecs : choice.codecs) {
      for (const std::size_t codec : {codecs.forward, codecs.backward}) count += inputs_.codecs[codec].lossy() ? 1 : 0;
    }
    return count;
  }

  Proposal proposal() {
    std::stable_sort(priced_.begin(), priced_.end(), [](const Priced& a, const Priced& b) { return a.price.seconds < b.price.seconds; });
    const auto rank = [&](const Priced& p) {
      return std::tuple(coded(p.choice), p.choice.chunks, p.choice.in_flight, p.price.bytes_up + p.price.bytes_down, p.price.seconds);
    };
    const auto end = std::find_if(priced_.begin(), priced_.end(), [&](const Priced& p) { return p.price.seconds > threshold(); });
    const auto best = std::min_element(priced_.begin(), end, [&](const Priced& a, const Priced& b) { return rank(a) < rank(b); });
    const bool complete = queue_.empty() || queue_.top().bound > threshold();
    Proposal made{*best, bindings(inputs_, best->choice), {}, considered_, simulated_, complete};
    made.runners_up = runners_up(best->choice);
    return made;
  }

  // Of each other set of cuts the fastest, and of the best one's cuts the fastest with other codecs.
  std::vector<Priced> runners_up(const Choice& best) const {
    std::vector<Priced> others;
    std::set<std::vector<std::size_t>> seen;
    for (const Priced& p : priced_) {
      if (others.size() == config_.runners_up) break;
      const bool same = p.choice.cuts == best.cuts && p.choice.codecs == best.codecs;
      if (!same && seen.insert(p.choice.cuts).second) others.push_back(p);
    }
    return others;
  }

  // Of cuts that are given: the first layer that they put elsewhere than with the client.
  Error cuts_against_keep(const std::vector<std::size_t>& cuts) const {
    std::size_t layer = 0;
    int worker = 0;
    for (std::size_t l = 0; l < inputs_.layers.size() && worker == 0; ++l) {
      layer = l;
      const auto stage = std::upper_bound(cuts.begin(), cuts.end(), l) - cuts.begin();
      if (inputs_.layers[l].with_client) worker = place_[static_cast<std::size_t>(stage)];
    }
    return impossible(
        fmt::format("layer {}, {}, stays with the {}, but the cuts {} give it to worker {}: keep another layer or cut elsewhere", layer,
                    inputs_.layers[layer].name, inputs_.workers[0].name, fmt::join(cuts, ","), worker));
  }

  Error nothing_fits() const {
    if (kept_ == 0 && inputs_.constraints.cuts) return cuts_against_keep(*inputs_.constraints.cuts);
    if (kept_ == 0) {
      return impossible(
          fmt::format("no cuts leave a layer for every stage of {} and keep all layers that stay with the client there; keep fewer layers",
                      fmt::join(place_, ",")));
    }
    return impossible(
        fmt::format("{} fits nowhere: the {} needs at least {:.1f} MB for its smallest part, but has {:.1f} MB; {:.1f} MB "
                    "are missing: give it more, use --recompute or take a smaller --batch",
                    inputs_.model, shortage_.worker, shortage_.needs / 1e6, shortage_.has / 1e6, shortage_.missing() / 1e6));
  }

  const Inputs& inputs_;
  const SearchConfig& config_;
  Pricer pricer_;
  const std::vector<int> place_;
  const std::vector<std::string> schedules_;
  const bool splits_;  // one of them may split backwards
  std::priority_queue<Candidate, std::vector<Candidate>, Later> queue_;
  std::vector<Priced> priced_;
  double fastest_ = kUnlimited;
  Shortage shortage_;
  std::uint64_t order_ = 0;
  std::uint64_t kept_ = 0;
  std::uint64_t considered_ = 0;
  std::uint64_t simulated_ = 0;
};

}  // namespace

Result<Proposal> search(const Inputs& inputs, const SearchConfig& config) {
  EPIPE_TRY(check(inputs));
  return Search(inputs, config).run();
}

}  // namespace epipe::planner
