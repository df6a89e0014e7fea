#pragma once

#include <functional>
#include <vector>

#include "epipe/planner/choice.h"
#include "epipe/schedule/resources.h"

namespace epipe::planner {

// Seconds for so many samples, of those at these sizes: on the line through the two nearest; of a single size in proportion.
double at_size(const std::vector<double>& sizes, double samples, const std::function<double(std::size_t size)>& seconds);

// Sums over consecutive layers, each in constant time.
class LayerSums {
 public:
  explicit LayerSums(const Inputs& inputs);  // which outlives this

  // Seconds of an action with these layers and so many samples.
  double forward(std::size_t worker, std::size_t begin, std::size_t end, double samples) const;
  double backward(std::size_t worker, std::size_t begin, std::size_t end, double samples) const;
  double weight_bytes(std::size_t begin, std::size_t end) const;  // with gradients and optimizer
  double trained(std::size_t begin, std::size_t end) const { return trained_[end] - trained_[begin]; }
  double kept_bytes(std::size_t begin, std::size_t end) const;  // of one sample of a live micro-batch
  bool with_client(std::size_t begin, std::size_t end) const { return with_client_[end] > with_client_[begin]; }

 private:
  using Upto = std::vector<double>;  // of the first i layers
  using Times = std::vector<Upto>;       // by size of a micro-batch
  static double between(const Times& times, const std::vector<double>& sizes, std::size_t begin, std::size_t end, double samples);

  const Inputs& inputs_;
  std::vector<Times> forward_;  // by worker
  std::vector<Times> backward_;
  Upto weights_ = {0};
  Upto trained_ = {0};
  Upto kept_ = {0};
  Upto with_client_ = {0};
};

// Where a tensor crosses a cut in one direction.
struct Crossing {
  double bytes = 0;  // of a frame
  double encode = 0;
  double transfer = 0;
  double carry_out = 0;
  double carry_in = 0;
  double decode = 0;
  bool up = true;  // on the way away from worker 0
};

// A choice in seconds of a micro-batch.
struct StageCosts {
  std::vector<int> place;
  double samples = 0;           // of a micro-batch
  std::vector<double> forward;  // by stage
  std::vector<double> backward;
  std::vector<Crossing> crossing_forward;  // by cut; all 0 where it stays on a worker
  std::vector<Crossing> crossing_backward;

  const Crossing& crossing(schedule::Direction direction, std::size_t cut) const {
    return (direction == schedule::Direction::kForward ? crossing_forward : crossing_backward)[cut];
  }
};

// The layers of stage j.
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
};
Range layers_of(const Choice& choice, std::size_t stage, std::size_t layers);

StageCosts stage_costs(const Inputs& inputs, const LayerSums& sums, const Choice& choice);

// What one direction of a cut costs with a codec: frames of `samples` samples of what leaves this layer, from one worker to another.
Crossing crossing(const Inputs& inputs, schedule::Direction direction, std::size_t layer, double samples, std::size_t codec, int from,
                  int to);

// For the order of the actions, to three digits: what codecs and cores take of a frame's way counts as delay.
schedule::Costs order_costs(const Inputs& inputs, const StageCosts& costs);

// For the simulator.
schedule::Costs simulator_costs(const StageCosts& costs, bool splits_backward);
schedule::Resources simulator_resources(const Inputs& inputs, const StageCosts& costs);

}  // namespace epipe::planner
