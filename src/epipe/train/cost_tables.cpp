#include "epipe/train/cost_tables.h"

#include <ATen/Parallel.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>

#include "epipe/base/clock.h"
#include "epipe/base/median.h"
#include "epipe/model/costs.h"
#include "epipe/train/first_samples.h"

namespace epipe::train {
namespace {

using model::LayerTiming;
using planner::Line;

constexpr double kRoundSeconds = 0.6;     // limit for one round of all layers
constexpr double kQuickSeconds = 0.1;     // one that takes less is measured more often
constexpr std::size_t kMostSizes = 6;     // of a micro-batch
constexpr std::int64_t kParameters = 1 << 22;  // of an update, or a sum of gradients: more than caches hold
constexpr double kLayerOverhead = 20e-6;  // seconds of a forward of any size, if only FLOPs are known
constexpr double kKeptOutputs = 3;        // kept memory in units of the outputs, if it was not measured

double value_count(const layer::Tensors& tensors, bool floating) {
  double count = 0;
  for (const auto& tensor : tensors) count += tensor.is_floating_point() == floating ? static_cast<double>(tensor.numel()) : 0;
  return count;
}

double other_bytes(const layer::Tensors& tensors) {
  double bytes = 0;
  for (const auto& tensor : tensors) bytes += tensor.is_floating_point() ? 0 : static_cast<double>(tensor.nbytes());
  return bytes;
}

planner::Layer layer_row(const layer::Layer& layer, const layer::Tensors& in, const layer::Tensors& out) {
  planner::Layer row{layer.name(), layer.flops(in, out)};
  for (const auto& parameter : layer.parameters()) {
    row.parameters += static_cast<double>(parameter.numel());
    row.trained += parameter.requires_grad() ? static_cast<double>(parameter.numel()) : 0;
  }
  row.values = value_count(out, true);
  row.other_bytes = other_bytes(out);
  row.kept_bytes = kKeptOutputs * 4 * row.values;
  return row;
}

// Ascending, each about half of the next one.
std::vector<std::int64_t> measured_sizes(std::int64_t most, std::int64_t least) {
  std::vector<std::int64_t> sizes = {most};
  while (sizes.size() < kMostSizes && sizes.back() / 2 >= std::max<std::int64_t>(least, 1)) sizes.push_back(sizes.back() / 2);
  std::reverse(sizes.begin(), sizes.end());
  return sizes;
}

// Rounds of a product and the operations after it, by `threads` threads together, in a moment. Nothing is allocated: threads that do
// wait for each other there, now and then.
double rounds_per_second(unsigned threads) {
  constexpr double kSeconds = 0.1;
  std::atomic<int> rounds = 0;
  const auto work = [&] {
    const torch::NoGradGuard no_grad;
    at::set_num_threads(1);
    const auto x = torch::ones({256, 256});
    auto y = torch::empty({256, 256});
    const auto round = [&] { torch::mm_out(y, x, x).mul_(0.5).relu_(); };
    round();  // caches
    for (const Stopwatch watch; watch.seconds() < kSeconds; ++rounds) round();
  };
  std::vector<std::thread> running;
  for (unsigned t = 0; t < threads; ++t) running.emplace_back(work);
  for (std::thread& thread : running) thread.join();
  return rounds / kSeconds;
}

// Training on the first samples, as a stage would.
struct Timing {
  const model::Architecture& architecture;
  const TrainConfig& config;
  const Batches& batches;
  torch::Device device;
  pipeline::Loss loss;

  std::vector<LayerTiming> run(std::int64_t samples, int rounds) const {
    FirstSamples first = first_samples(config, batches, samples);
    first.at.training = true;
    const torch::Tensor targets = first.batch.targets.to(device);
    const auto loss_of = [&](const layer::Tensors& outputs) { return loss(outputs, targets).sum; };
    const auto precision = layer::parse_precision(config.precision);
    return model::time_layers(architecture, first.batch.inputs, first.at, {rounds, device, precision, loss_of});
  }
};

// Hardware threads that this process may run on.
unsigned usable_threads() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (::sched_getaffinity(0, sizeof usable, &usable) == 0) return static_cast<unsigned>(CPU_COUNT(&usable));
  return std::thread::hardware_concurrency();
}

double total_seconds(const std::vector<LayerTiming>& timings) {
  return std::accumulate(timings.begin(), timings.end(), 0.0,
                         [](double sum, const LayerTiming& timing) { return sum + timing.forward + timing.backward; });
}

}  // namespace

Line fit_line(const std::vector<Point>& points) {
  double x = 0;
  double y = 0;
  for (const Point& p : points) x += p.x, y += p.y;
  const auto n = static_cast<double>(points.size());
  double xx = 0;
  double xy = 0;
  for (const Point& p : points) xx += (p.x - x / n) * (p.x - x / n), xy += (p.x - x / n) * (p.y - y / n);
  const double slope = xx > 0 ? std::max(0.0, xy / xx) : 0;
  const double fixed = xx > 0 ? (y - slope * x) / n : -1;
  return fixed < 0 ? Line{0, x > 0 ? y / x : 0} : Line{fixed, slope};
}

ModelTable model_table(const model::Architecture& architecture, const TrainConfig& config, const Batches& batches) {
  ModelTable table;
  const FirstSamples first = first_samples(config, batches, 1);
  model::forward_layer_by_layer(architecture, first.batch.inputs, first.at,
                                [&](const layer::Layer& layer, const layer::Tensors& in, const layer::Tensors& out) {
                                  table.layers.push_back(layer_row(layer, in, out));
                                  table.batch_norm = table.batch_norm || layer.batch_totals().numel() > 0;
                                });
  return table;
}

DeviceTable device_table(const Registry& registry, const model::Architecture& architecture, const TrainConfig& config,
                         const Batches& batches, torch::Device device, std::int64_t least) {
  at::set_num_threads(config.threads);
  const Timing timing{architecture, config, batches, device, registry.losses.find(config.loss, batches.spec())};
  const std::size_t layers = architecture.layers.size();
  DeviceTable table{{}, std::vector<std::vector<double>>(layers), std::vector<std::vector<double>>(layers), std::vector<double>(layers)};
  const auto sizes = measured_sizes(std::min(batches.training_data().size(), config.batch), least);
  double expected = total_seconds(timing.run(sizes.front(), 1));  // caches
  for (const std::int64_t size : sizes) {
    if (!table.sizes.empty() && expected * static_cast<double>(size) / table.sizes.back() > kRoundSeconds) break;
    const auto measured = timing.run(size, expected < kQuickSeconds ? 5 : 3);
    expected = total_seconds(measured);
    table.sizes.push_back(static_cast<double>(size));
    for (std::size_t l = 0; l < layers; ++l) {
      table.forward[l].push_back(measured[l].forward);
      table.backward[l].push_back(measured[l].backward);
      table.kept_bytes[l] = static_cast<double>(measured[l].kept_bytes) / static_cast<double>(size);
    }
  }
  return table;
}

DeviceTable estimated_table(const std::vector<planner::Layer>& layers, double flops_per_second) {
  DeviceTable table;
  table.sizes = {0, 1};  // the line through both
  for (const planner::Layer& layer : layers) {
    const double seconds = layer.flops / flops_per_second;
    table.forward.push_back({kLayerOverhead, kLayerOverhead + seconds});
    table.backward.push_back({2 * kLayerOverhead, 2 * (kLayerOverhead + seconds)});
    table.kept_bytes.push_back(layer.kept_bytes);
  }
  return table;
}

double accumulate_seconds() {
  const auto sum = torch::zeros({kParameters});
  const auto gradient = torch::ones({kParameters});
  std::vector<double> seconds;
  for (int round = 0; round < 5; ++round) {
    const Stopwatch watch;
    sum.add_(gradient);
    seconds.push_back(watch.seconds());
  }
  return median(seconds) / static_cast<double>(kParameters);
}

double update_seconds(const OptimizerConfig& config) {
  auto weight = torch::zeros({kParameters}, torch::requires_grad());
  Optimizer optimizer(config, {{"weight", weight}});
  std::vector<double> seconds;
  for (int round = 0; round < 5; ++round) {
    weight.mutable_grad() = torch::ones({kParameters});
    const Stopwatch watch;
    optimizer.step(0.1);
    seconds.push_back(watch.seconds());
  }
  return median(seconds) / static_cast<double>(kParameters);
}

double state_bytes(const OptimizerConfig& config) {
  const bool adam = config.kind != OptimizerConfig::Kind::kSgd;
  return 4 + (adam ? 8 : config.momentum > 0 ? 4 : 0);
}

double measured_cores() {
  constexpr unsigned kMostThreads = 16;
  constexpr int kMoments = 3;  // of which the best counts: in one, another program may have a core, or two threads the same
  const unsigned all = std::clamp(usable_threads(), 1U, kMostThreads);
  if (all == 1) return 1;
  double alone = 0;
  double together = 0;
  for (int moment = 0; moment < kMoments; ++moment) {
    alone = std::max(alone, rounds_per_second(1));
    together = std::max(together, rounds_per_second(all));
  }
  return std::clamp(together / alone, 1.0, static_cast<double>(all));
}

double load_seconds(const Batches& batches, std::int64_t samples) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(std::min(samples, batches.training_data().size())));
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<double> seconds;
  for (int round = 0; round < 3; ++round) {
    const Stopwatch watch;
    batches.training_data().batch(ids);
    seconds.push_back(watch.seconds());
  }
  return median(seconds) / static_cast<double>(ids.size());
}

}  // namespace epipe::train
