#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "epipe/planner/stage_costs.h"

namespace epipe::planner {

// As a pipeline makes it from the flags.
Result<schedule::Schedule> make_schedule(const Choice& choice);

// What a choice costs, by the simulator. Not for several threads.
class Pricer {
 public:
  explicit Pricer(const Inputs& inputs);  // valid, and outlives this

  const LayerSums& sums() const { return sums_; }
  // Ordered for equal costs.
  const schedule::Schedule& schedule_of(const Choice& choice);
  Price price(const Choice& choice);
  // Ordered for equal costs or for its own, whichever takes less time.
  Priced best_order(Choice choice);

  // Seconds of worker 0's optimizer: no step does without.
  double client_update(const Choice& choice) const { return updates(choice)[0]; }
  // No step takes less: the data must have been loaded.
  double load_seconds() const;
  // Of each worker, where a stage holds so many micro-batches.
  std::vector<double> memory(const Choice& choice, const std::vector<int>& live) const;

 private:
  Price price(const Choice& choice, const StageCosts& costs, const schedule::Schedule& order) const;
  std::vector<double> updates(const Choice& choice) const;
  double update_seconds(const Choice& choice, const StageCosts& costs) const;

  const Inputs& inputs_;
  LayerSums sums_;
  std::map<std::tuple<std::string, std::vector<int>, int, int>, schedule::Schedule> schedules_;
};

// What a step would gain were one thing free: the share of its seconds that would go. Those that bind come first.
struct Binding {
  std::string resource;  // "client", "server", "up", "down", "latency", "codec", "data"
  double gain = 0;
};
std::vector<Binding> bindings(const Inputs& inputs, const Choice& choice);

}  // namespace epipe::planner
