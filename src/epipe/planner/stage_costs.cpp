#include "epipe/planner/stage_costs.h"

#include <algorithm>

namespace epipe::planner {
namespace {

using schedule::Direction;

constexpr double kWeightBytes = 4;
// Bi and Bw together take this much more than B (schedule/zb_h1.cpp).
constexpr double kSplitOverhead = 1.03;

template <typename Of>
void sum_up(std::vector<double>& upto, const std::vector<Layer>& layers, const Of& of) {
  for (const Layer& layer : layers) upto.push_back(upto.back() + of(layer));
}

std::vector<std::vector<double>> times_of(const std::vector<std::vector<double>>& seconds, std::size_t sizes) {
  std::vector<std::vector<double>> upto(sizes, {0});
  for (std::size_t size = 0; size < sizes; ++size) {
    for (const auto& layer : seconds) upto[size].push_back(upto[size].back() + layer[size]);
  }
  return upto;
}

// A micro-batch that goes from worker to worker goes up, and down on its way back to worker 0 or to the one before.
bool goes_up(int from, int to) { return to > from; }

// The first micro-batch has nothing to add to; its part is spread over all.
double accumulation(const Worker& worker, const LayerSums& sums, const Range& range, int chunks) {
  return worker.accumulate * sums.trained(range.begin, range.end) * (chunks - 1) / chunks;
}

}  // namespace

double at_size(const std::vector<double>& sizes, double samples, const std::function<double(std::size_t)>& seconds) {
  if (sizes.size() == 1) return sizes[0] > 0 ? seconds(0) * samples / sizes[0] : seconds(0);
  std::size_t high = 1;
  while (high + 1 < sizes.size() && sizes[high] < samples) ++high;
  const double low = seconds(high - 1);
  const double share = (samples - sizes[high - 1]) / (sizes[high] - sizes[high - 1]);
  return std::max(0.0, low + share * (seconds(high) - low));
}

double LayerSums::between(const Times& times, const std::vector<double>& sizes, std::size_t begin, std::size_t end, double samples) {
  return at_size(sizes, samples, [&](std::size_t size) { return times[size][end] - times[size][begin]; });
}

LayerSums::LayerSums(const Inputs& inputs) : inputs_(inputs) {
  for (const Worker& worker : inputs.workers) {
    forward_.push_back(times_of(worker.forward, worker.sizes.size()));
    backward_.push_back(times_of(worker.backward, worker.sizes.size()));
  }
  sum_up(weights_, inputs.layers, [](const Layer& layer) { return layer.parameters; });
  sum_up(trained_, inputs.layers, [](const Layer& layer) { return layer.trained; });
  sum_up(kept_, inputs.layers, [](const Layer& layer) { return layer.kept_bytes; });
  sum_up(with_client_, inputs.layers, [](const Layer& layer) { return layer.with_client ? 1.0 : 0.0; });
}

double LayerSums::forward(std::size_t worker, std::size_t begin, std::size_t end, double samples) const {
  return between(forward_[worker], inputs_.workers[worker].sizes, begin, end, samples);
}

// Layers in front of the first trained one have no backward.
double LayerSums::backward(std::size_t worker, std::size_t begin, std::size_t end, double samples) const {
  if (end <= inputs_.first_trained) return 0;
  const auto& sizes = inputs_.workers[worker].sizes;
  const double seconds = between(backward_[worker], sizes, std::max(begin, inputs_.first_trained), end, samples);
  return inputs_.recompute ? seconds + forward(worker, begin, end, samples) : seconds;
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

Crossing crossing(const Inputs& inputs, schedule::Direction direction, std::size_t layer, double samples, std::size_t codec, int from,
                  int to) {
  if (from == to) return {};
  const Layer& leaves = inputs.layers[layer];
  const FrameCosts& costs = inputs.codecs[codec].of(direction, layer);
  const double values = leaves.values * samples;
  const auto seconds = [&](const Line& line, int worker) {
    return line.of(values) / inputs.workers[static_cast<std::size_t>(worker)].codec_speed;
  };
  Crossing result;
  result.up = goes_up(from, to);
  result.bytes = costs.bytes.of(values) + leaves.other_bytes * samples;
  result.transfer = result.bytes / (result.up ? inputs.link.up : inputs.link.down);
  const double carry = inputs.link.frame + result.bytes * inputs.link.carry;
  const auto end = [&](int worker) { return worker == 0 ? carry : carry * inputs.link.server_ends; };
  result.carry_out = end(from);
  result.carry_in = end(to);
  result.encode = seconds(costs.encode, from);
  result.decode = seconds(costs.decode, to);
  return result;
}

StageCosts stage_costs(const Inputs& inputs, const LayerSums& sums, const Choice& choice) {
  StageCosts costs;
  costs.place = choice.place;
  costs.samples = inputs.batch / choice.chunks;
  for (std::size_t j = 0; j < choice.place.size(); ++j) {
    const auto worker = static_cast<std::size_t>(choice.place[j]);
    const Range range = layers_of(choice, j, inputs.layers.size());
    costs.forward.push_back(sums.forward(worker, range.begin, range.end, costs.samples));
    costs.backward.push_back(sums.backward(worker, range.begin, range.end, costs.samples) +
                             accumulation(inputs.workers[worker], sums, range, choice.chunks));
  }
  for (std::size_t cut = 0; cut < choice.cuts.size(); ++cut) {
    const std::size_t layer = choice.cuts[cut] - 1;
    const int from = choice.place[cut];
    const int to = choice.place[cut + 1];
    const bool trained_before = inputs.first_trained < choice.cuts[cut];
    costs.crossing_forward.push_back(crossing(inputs, Direction::kForward, layer, costs.samples, choice.codecs[cut].forward, from, to));
    costs.crossing_backward.push_back(
        trained_before ? crossing(inputs, Direction::kBackward, layer, costs.samples, choice.codecs[cut].backward, to, from) : Crossing{});
  }
  return costs;
}

schedule::Costs order_costs(const Inputs& inputs, const StageCosts& costs) {
  schedule::Costs result = simulator_costs(costs, /*splits_backward=*/false);
  const auto besides = [](const Crossing& c) { return c.encode + c.decode + c.carry_out + c.carry_in; };
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
    result.carry_out.forward.push_back(c.carry_out);
    result.carry_in.forward.push_back(c.carry_in);
  }
  for (const Crossing& c : costs.crossing_backward) {
    result.encode.backward.push_back(c.encode);
    result.decode.backward.push_back(c.decode);
    result.carry_out.backward.push_back(c.carry_out);
    result.carry_in.backward.push_back(c.carry_in);
  }
  result.latency = inputs.link.delay;
  const int workers = schedule::Placement{costs.place}.workers();
  for (int w = 0; w < workers; ++w) result.machine_of.push_back(inputs.workers[static_cast<std::size_t>(w)].machine);
  result.cores = inputs.cores;
  return result;
}

}  // namespace epipe::planner
