#include "epipe/train/cost_tables.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>

#include "epipe/base/clock.h"
#include "epipe/base/median.h"
#include "epipe/base/thread_pool.h"
#include "epipe/codec/measure.h"
#include "epipe/model/costs.h"
#include "epipe/model/learned_codec.h"
#include "epipe/train/first_samples.h"

namespace epipe::train {
namespace {

using model::LayerTiming;
using planner::Seconds;

constexpr double kRoundSeconds = 0.6;     // limit for one round of all layers with the larger micro-batch
constexpr double kLayerOverhead = 20e-6;  // seconds of a forward of any size, if only FLOPs are known
constexpr double kKeptOutputs = 3;        // kept memory in units of the outputs, if it was not measured
constexpr double kCodecSeconds = 0.05;    // per tensor

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

// Rounds of a small convolution and the operations after it, by `threads` threads together.
double rounds_per_second(unsigned threads) {
  constexpr double kSeconds = 0.15;
  std::atomic<int> rounds = 0;
  const auto work = [&] {
    const torch::NoGradGuard no_grad;
    at::set_num_threads(1);
    const auto x = torch::ones({4, 32, 32, 32});
    const auto weight = torch::ones({32, 32, 3, 3});
    const auto round = [&] { torch::conv2d(x, weight, {}, 1, 1).mul_(0.5).relu_(); };
    round();  // caches
    for (const Stopwatch watch; watch.seconds() < kSeconds; ++rounds) round();
  };
  std::vector<std::thread> running;
  for (unsigned t = 0; t < threads; ++t) running.emplace_back(work);
  for (std::thread& thread : running) thread.join();
  return rounds / kSeconds;
}

// The first and the last one stay.
void take(Outputs& outputs, const layer::Tensors& x) {
  if (x[0].is_floating_point()) outputs.push_back(x[0].to(torch::kCPU, torch::kFloat32));
  if (outputs.size() > 2) outputs.erase(outputs.begin() + 1);
}

// Training on the first samples, as a stage would.
struct Timing {
  const model::Architecture& architecture;
  const TrainConfig& config;
  const Batches& batches;
  torch::Device device;

  std::vector<LayerTiming> run(std::int64_t samples, int rounds, Outputs* outputs) const {
    FirstSamples first = first_samples(config, batches, samples);
    first.at.training = true;
    model::TimingOptions options{rounds, device, layer::parse_precision(config.precision)};
    if (outputs != nullptr) {
      options.observe = [&](std::size_t l, const layer::Tensors& x) {
        if (l + 1 < architecture.layers.size()) take(*outputs, x);
      };
    }
    return model::time_layers(architecture, first.batch.inputs, first.at, options);
  }
};

double total_seconds(const std::vector<LayerTiming>& timings) {
  return std::accumulate(timings.begin(), timings.end(), 0.0,
                         [](double sum, const LayerTiming& timing) { return sum + timing.forward + timing.backward; });
}

}  // namespace

Seconds fit_line(const std::vector<Point>& points) {
  double x = 0;
  double y = 0;
  for (const Point& p : points) x += p.x, y += p.y;
  const auto n = static_cast<double>(points.size());
  double xx = 0;
  double xy = 0;
  for (const Point& p : points) xx += (p.x - x / n) * (p.x - x / n), xy += (p.x - x / n) * (p.y - y / n);
  const double slope = xx > 0 ? std::max(0.0, xy / xx) : 0;
  const double fixed = xx > 0 ? (y - slope * x) / n : -1;
  return fixed < 0 ? Seconds{0, x > 0 ? y / x : 0} : Seconds{fixed, slope};
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

DeviceTable device_table(const model::Architecture& architecture, const TrainConfig& config, const Batches& batches, torch::Device device) {
  at::set_num_threads(config.threads);
  const Timing timing{architecture, config, batches, device};
  const std::int64_t most = std::min(batches.training_data().size(), config.batch);
  const std::int64_t few = std::min<std::int64_t>(most, 2);
  DeviceTable table;
  Outputs of_few;
  timing.run(few, 1, nullptr);  // caches
  const auto small = timing.run(few, 5, &of_few);
  const double affordable = kRoundSeconds / std::max(total_seconds(small), 1e-6) * static_cast<double>(few);
  const auto many = std::clamp(static_cast<std::int64_t>(std::min(affordable, 1e9)), std::min(2 * few, most), most);
  const auto large = many > few ? timing.run(many, 3, &table.outputs) : small;
  table.outputs.insert(table.outputs.end(), of_few.begin(), of_few.end());
  for (std::size_t l = 0; l < small.size(); ++l) {
    const auto line = [&](double LayerTiming::*part) {
      std::vector<Point> points = {{static_cast<double>(many), large[l].*part}};
      if (many > few) points.push_back({static_cast<double>(few), small[l].*part});
      return fit_line(points);
    };
    table.forward.push_back(line(&LayerTiming::forward));
    table.backward.push_back(line(&LayerTiming::backward));
    table.kept_bytes.push_back(static_cast<double>(large[l].kept_bytes) / static_cast<double>(many));
  }
  return table;
}

Outputs sample_outputs(const model::Architecture& architecture, const TrainConfig& config, const Batches& batches) {
  const Timing timing{architecture, config, batches, torch::kCPU};
  Outputs all;
  for (const std::int64_t samples : {8, 1}) {
    Outputs outputs;
    timing.run(std::min(samples, batches.training_data().size()), 1, &outputs);
    all.insert(all.end(), outputs.begin(), outputs.end());
  }
  return all;
}

DeviceTable estimated_table(const std::vector<planner::Layer>& layers, double flops_per_second) {
  DeviceTable table;
  for (const planner::Layer& layer : layers) {
    table.forward.push_back({kLayerOverhead, layer.flops / flops_per_second});
    table.backward.push_back({2 * kLayerOverhead, 2 * layer.flops / flops_per_second});
    table.kept_bytes.push_back(layer.kept_bytes);
  }
  return table;
}

planner::CodecCosts codec_costs(const std::string& spec, const Outputs& outputs, int threads) {
  if (model::split_learned(spec).learned) {
    throw std::invalid_argument(
        fmt::format("the codec {} is trained with the model, and what it costs is not known before; plan with "
                    "another one",
                    spec));
  }
  ThreadPool pool(threads);
  std::vector<Point> bytes;
  std::vector<Point> encode;
  std::vector<Point> decode;
  for (const torch::Tensor& x : outputs) {
    const auto measured = codec::measure(spec, x, {.pool = &pool}, {kCodecSeconds});
    if (!measured) throw std::invalid_argument(measured.error().message);
    const auto& m = measured.value();
    const auto values = static_cast<double>(m.values);
    bytes.push_back({values, static_cast<double>(m.wire_bytes)});
    encode.push_back({values, 4e-6 * values / m.encode_MBps});
    decode.push_back({values, 4e-6 * values / m.decode_MBps});
  }
  const Seconds size = fit_line(bytes);
  const Seconds encoding = fit_line(encode);
  const Seconds decoding = fit_line(decode);
  return {spec, 8 * size.per_sample, size.fixed, encoding.per_sample, decoding.per_sample, std::max(encoding.fixed, decoding.fixed)};
}

double update_seconds(const OptimizerConfig& config) {
  constexpr std::int64_t kParameters = 1 << 20;
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
  const unsigned all = std::clamp(std::thread::hardware_concurrency(), 1U, kMostThreads);
  const double alone = rounds_per_second(1);
  return std::clamp(rounds_per_second(all) / alone, 1.0, static_cast<double>(all));
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
