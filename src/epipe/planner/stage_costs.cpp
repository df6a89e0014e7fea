#include "epipe/planner/stage_costs.h"

#include <algorithm>

namespace epipe::planner {
namespace {

constexpr double kWeightBytes = 4;
// Bi and Bw together take this much more than B (schedule/zb_h1.cpp).
constexpr double kSplitOverhead = 1.03;

template <typename Of>
void sum_up(std::vector<double>& upto, const std::vector<Layer>& layers, const Of& of) {
  for (const Layer& layer : layers) upto.push_back(upto.back() + of(layer));
}

// A micro-batch that goes from worker to worker goes up, and down on its way back to worker 0 or to the one before.
bool goes_up(int from, int to) { return to > from; }

}  // namespace

LayerSums::Times LayerSums::times_of(const std::vector<Seconds>& seconds) {
  Times times{{0}, {0}};
  for (const Seconds& s : seconds) {
    times.fixed.push_back(times.fixed.back() + s.fixed);
    times.per_sample.push_back(times.per_sample.back() + s.per_sample);
  }
  return times;
}

Seconds LayerSums::between(const Times& times, std::size_t begin, std::size_t end) {
  return {times.fixed[end] - times.fixed[begin], times.per_sample[end] - times.per_sample[begin]};
}

LayerSums::LayerSums(const Inputs& inputs) : inputs_(inputs) {
  for (const Worker& worker : inputs.workers) {
    forward_.push_back(times_of(worker.forward));
    backward_.push_back(times_of(worker.backward));
  }
  sum_up(weights_, inputs.layers, [](const Layer& layer) { return layer.parameters; });
  sum_up(trained_, inputs.layers, [](const Layer& layer) { return layer.trained; });
  sum_up(kept_, inputs.layers, [](const Layer& layer) { return layer.kept_bytes; });
  sum_up(with_client_, inputs.layers, [](const Layer& layer) { return layer.with_client ? 1.0 : 0.0; });
}

Seconds LayerSums::forward(std::size_t worker, std::size_t begin, std::size_t end) const { return between(forward_[worker], begin, end); }

// Layers in front of the first trained one have no backward.
Seconds LayerSums::backward(std::size_t worker, std::size_t begin, std::size_t end) const {
  if (end <= inputs_.first_trained) return {};
  Seconds seconds = between(backward_[worker], std::max(begin, inputs_.first_trained), end);
  if (!inputs_.recompute) return seconds;
  const Seconds again = forward(worker, begin, end);
  return {seconds.fixed + again.fixed, seconds.per_sample + again.per_sample};
}

double LayerSums::weight_bytes(std::size_t begin, std::size_t end) const {
  return kWeightBytes * (weights_[end] - weights_[begin]) + inputs_.state_bytes * trained(begin, end);
}

double LayerSums::kept_bytes(std::size_t begin, std::size_t end) const {
  if (end <= inputs_.first_trained) return 0;
  if (!inputs_.recompute) return kept_[end] - kept_[std::max(begin, inputs_.first_trained)];
  return begin == 0 ? 0 : 4 * inputs_.layers[begin - 1].values + inputs_.layers[begin - 1].other_bytes;
}

Range layers_of(const Choice& choice, std::size_t stage, std::size_t layers) {
  return {stage == 0 ? 0 : choice.cuts[stage - 1], stage < choice.cuts.size() ? choice.cuts[stage] : layers};
}

Crossing crossing(const Inputs& inputs, std::size_t layer, double samples, std::size_t codec, int from, int to) {
  if (from == to) return {};
  const Layer& leaves = inputs.layers[layer];
  const CodecCosts& costs = inputs.codecs[codec];
  const double values = leaves.values * samples;
  Crossing result;
  result.up = goes_up(from, to);
  result.bytes = values * costs.bits / 8 + costs.frame_bytes + leaves.other_bytes * samples;
  result.transfer = result.bytes / (result.up ? inputs.link.up : inputs.link.down);
  result.carry = result.bytes * inputs.link.carry;
  result.encode = (values * costs.encode + costs.frame_seconds) / inputs.workers[static_cast<std::size_t>(from)].codec_speed;
  result.decode = (values * costs.decode + costs.frame_seconds) / inputs.workers[static_cast<std::size_t>(to)].codec_speed;
  return result;
}

StageCosts stage_costs(const Inputs& inputs, const LayerSums& sums, const Choice& choice) {
  StageCosts costs;
  costs.place = choice.place;
  costs.samples = inputs.batch / choice.chunks;
  for (std::size_t j = 0; j < choice.place.size(); ++j) {
    const auto worker = static_cast<std::size_t>(choice.place[j]);
    const Range range = layers_of(choice, j, inputs.layers.size());
    costs.forward.push_back(sums.forward(worker, range.begin, range.end).of(costs.samples));
    costs.backward.push_back(sums.backward(worker, range.begin, range.end).of(costs.samples));
  }
  for (std::size_t cut = 0; cut < choice.cuts.size(); ++cut) {
    const std::size_t layer = choice.cuts[cut] - 1;
    const int from = choice.place[cut];
    const int to = choice.place[cut + 1];
    const bool trained_before = inputs.first_trained < choice.cuts[cut];
    costs.crossing_forward.push_back(crossing(inputs, layer, costs.samples, choice.codecs[cut].forward, from, to));
    costs.crossing_backward.push_back(trained_before ? crossing(inputs, layer, costs.samples, choice.codecs[cut].backward, to, from)
                                                     : Crossing{});
  }
  return costs;
}

schedule::Costs order_costs(const Inputs& inputs, const StageCosts& costs) {
  schedule::Costs result = simulator_costs(costs, /*splits_backward=*/false);
  const auto besides = [](const Crossing& c) { return c.encode + c.decode + 2 * c.carry; };
  for (std::size_t cut = 0; cut < costs.crossing_forward.size(); ++cut) {
    const double way = costs.place[cut] != costs.place[cut + 1] ? inputs.link.delay : 0;
    result.delay.push_back(way + std::max(besides(costs.crossing_forward[cut]), besides(costs.crossing_backward[cut])));
  }
  return rounded(std::move(result));
}

schedule::Costs simulator_costs(const StageCosts& costs, bool splits_backward) {
  schedule::Costs result;
  result.forward = costs.forward;
  result.backward = costs.backward;
  for (const Crossing& c : costs.crossing_forward) result.transfer_forward.push_back(c.transfer);
  for (const Crossing& c : costs.crossing_backward) result.transfer_backward.push_back(c.transfer);
  if (!splits_backward) return result;
  for (const double seconds : costs.backward) result.backward_input.push_back(seconds * kSplitOverhead / 2);
  result.backward_weights = result.backward_input;
  return result;
}

schedule::Resources simulator_resources(const Inputs& inputs, const StageCosts& costs) {
  schedule::Resources result;
  for (const Crossing& c : costs.crossing_forward) {
    result.encode.forward.push_back(c.encode);
    result.decode.forward.push_back(c.decode);
    result.carry.forward.push_back(c.carry);
  }
  for (const Crossing& c : costs.crossing_backward) {
    result.encode.backward.push_back(c.encode);
    result.decode.backward.push_back(c.decode);
    result.carry.backward.push_back(c.carry);
  }
  result.latency = inputs.link.delay;
  const int workers = schedule::Placement{costs.place}.workers();
  for (int w = 0; w < workers; ++w) result.machine_of.push_back(inputs.workers[static_cast<std::size_t>(w)].machine);
  result.cores = inputs.cores;
  return result;
}

}  // namespace epipe::planner
