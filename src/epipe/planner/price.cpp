#include "epipe/planner/price.h"

#include <algorithm>
#include <functional>
#include <stdexcept>

#include "epipe/schedule/generate.h"
#include "epipe/schedule/simulate.h"

namespace epipe::planner {
namespace {

template <typename T>
T value_of(Result<T> result) {
  if (!result) throw std::invalid_argument(result.error().message);
  return std::move(result).value();
}

bool splits(const schedule::Schedule& schedule) {
  return std::find(schedule.split.begin(), schedule.split.end(), true) != schedule.split.end();
}

void add_bytes(Price& price, const StageCosts& costs, int chunks) {
  for (const auto* crossings : {&costs.crossing_forward, &costs.crossing_backward}) {
    for (const Crossing& c : *crossings) (c.up ? price.bytes_up : price.bytes_down) += chunks * c.bytes;
  }
}

void make_free(Worker& worker) {
  for (auto* const all : {&worker.forward, &worker.backward}) {
    for (auto& seconds : *all) std::fill(seconds.begin(), seconds.end(), 0.0);
  }
  worker.accumulate = worker.update = 0;
}

void make_free(CodecCosts& codec) {
  for (auto* const all : {&codec.forward, &codec.backward}) {
    for (FrameCosts& frame : *all) frame.encode = frame.decode = {};
  }
}

}  // namespace

Result<schedule::Schedule> make_schedule(const Choice& choice) {
  const auto generator = schedule::find_generator(choice.schedule);
  if (!generator) return generator.error();
  const auto equal = [&] { return schedule::slot_costs(static_cast<int>(choice.place.size()), generator.value().splits_backward); };
  return schedule::generate(choice.schedule, {choice.place}, choice.chunks, choice.costs.forward.empty() ? equal() : choice.costs,
                            choice.in_flight);
}

Pricer::Pricer(const Inputs& inputs) : inputs_(inputs), sums_(inputs) {}

const schedule::Schedule& Pricer::schedule_of(const Choice& choice) {
  const auto key = std::tuple(choice.schedule, choice.place, choice.chunks, choice.in_flight);
  const auto found = schedules_.find(key);
  if (found != schedules_.end()) return found->second;
  Choice equal = choice;
  equal.costs = {};
  return schedules_.emplace(key, value_of(make_schedule(equal))).first->second;
}

// Seconds of the optimizer, by worker.
std::vector<double> Pricer::updates(const Choice& choice) const {
  std::vector<double> seconds(inputs_.workers.size(), 0);
  for (std::size_t j = 0; j < choice.place.size(); ++j) {
    const auto worker = static_cast<std::size_t>(choice.place[j]);
    const Range range = layers_of(choice, j, inputs_.layers.size());
    seconds[worker] += inputs_.workers[worker].update * sums_.trained(range.begin, range.end);
  }
  return seconds;
}

// Worker 0 updates before its next forward; another one does so while the first micro-batch of the next step is on its way.
double Pricer::update_seconds(const Choice& choice, const StageCosts& costs) const {
  const auto seconds = updates(choice);
  double later = 0;
  double way = costs.forward[0];
  for (std::size_t j = 1; j < choice.place.size(); ++j) {
    const Crossing& c = costs.crossing_forward[j - 1];
    way += c.encode + c.transfer + c.decode + (choice.place[j] != choice.place[j - 1] ? inputs_.link.delay : 0);
    if (choice.place[j] != 0) later = std::max(later, seconds[static_cast<std::size_t>(choice.place[j])] - seconds[0] - way);
    way += costs.forward[j];
  }
  return seconds[0] + later;
}

double Pricer::load_seconds() const {
  const double cores = inputs_.cores[static_cast<std::size_t>(inputs_.workers[0].machine)];
  return inputs_.load_seconds * inputs_.batch / cores;
}

std::vector<double> Pricer::memory(const Choice& choice, const std::vector<int>& live) const {
  std::vector<double> bytes;
  for (const Worker& worker : inputs_.workers) bytes.push_back(worker.base);
  const double samples = inputs_.batch / choice.chunks;
  for (std::size_t j = 0; j < choice.place.size(); ++j) {
    const Range range = layers_of(choice, j, inputs_.layers.size());
    bytes[static_cast<std::size_t>(choice.place[j])] +=
        sums_.weight_bytes(range.begin, range.end) + live[j] * samples * sums_.kept_bytes(range.begin, range.end);
  }
  return bytes;
}

Price Pricer::price(const Choice& choice) {
  const StageCosts costs = stage_costs(inputs_, sums_, choice);
  return price(choice, costs, choice.costs.forward.empty() ? schedule_of(choice) : value_of(make_schedule(choice)));
}

Priced Pricer::best_order(Choice choice) {
  const StageCosts costs = stage_costs(inputs_, sums_, choice);
  choice.costs = {};
  const schedule::Schedule& equal = schedule_of(choice);
  Priced best{choice, price(choice, costs, equal)};
  choice.costs = order_costs(inputs_, costs);
  const schedule::Schedule own = value_of(make_schedule(choice));
  if (own.per_worker == equal.per_worker) return best;
  Price cost = price(choice, costs, own);
  if (cost.seconds < best.price.seconds) best = {std::move(choice), std::move(cost)};
  return best;
}

Price Pricer::price(const Choice& choice, const StageCosts& costs, const schedule::Schedule& order) const {
  const auto timeline = value_of(simulate(order, simulator_costs(costs, splits(order)), simulator_resources(inputs_, costs)));
  Price price;
  price.seconds = std::max(inputs_.step_seconds + timeline.makespan + update_seconds(choice, costs), load_seconds());
  price.samples_per_s = price.seconds > 0 ? inputs_.batch / price.seconds : kUnlimited;
  add_bytes(price, costs, choice.chunks);
  price.memory = memory(choice, timeline.peak_live_of_stage);
  return price;
}

std::vector<Binding> bindings(const Inputs& inputs, const Choice& choice) {
  const double seconds = Pricer(inputs).price(choice).seconds;
  std::vector<Binding> all;
  const auto add = [&](const std::string& resource, const std::function<void(Inputs&)>& make_it_free) {
    Inputs free = inputs;
    make_it_free(free);
    all.push_back({resource, seconds > 0 ? std::max(0.0, 1 - Pricer(free).price(choice).seconds / seconds) : 0});
  };
  for (std::size_t w = 0; w < inputs.workers.size(); ++w) add(inputs.workers[w].name, [w](Inputs& free) { make_free(free.workers[w]); });
  add("up", [](Inputs& free) { free.link.up = kUnlimited; });
  add("down", [](Inputs& free) { free.link.down = kUnlimited; });
  add("latency", [](Inputs& free) { free.link.delay = 0; });
  add("codec", [](Inputs& free) {
    for (CodecCosts& codec : free.codecs) make_free(codec);
  });
  add("data", [](Inputs& free) { free.load_seconds = 0; });
  std::stable_sort(all.begin(), all.end(), [](const Binding& a, const Binding& b) { return a.gain > b.gain; });
  return all;
}

}  // namespace epipe::planner
