#include "epipe/pipeline/checked.h"

#include <fmt/format.h>
#include <torch/cuda.h>

#include <algorithm>

#include <stdexcept>

namespace epipe::pipeline {
namespace {

// The first or last stage may have no layers if another process computes it, with its own layers.
void check_cuts(const PipelineConfig& config, std::size_t layers) {
  const auto& workers = config.placement.worker_of;
  const bool placed = workers.size() == config.cuts.size() + 1;
  std::size_t least = placed && config.remote.has(workers.front()) ? 0 : 1;
  const std::size_t most = placed && config.remote.has(workers.back()) ? layers : layers - 1;
  for (const std::size_t cut : config.cuts) {
    if (cut < least || cut > most) {
      throw std::invalid_argument(fmt::format("cuts must ascend from 1 to {}, the last of {} layers, got {}", layers - 1, layers, cut));
    }
    least = cut + 1;
  }
}

void check_placement(const PipelineConfig& config) {
  const std::size_t stages = config.cuts.size() + 1;
  if (config.placement.worker_of.size() != stages) {
    throw std::invalid_argument(fmt::format("{} cuts make {} stages, but the placement {} names {}", config.cuts.size(), stages,
                                            schedule::to_string(config.placement), config.placement.worker_of.size()));
  }
  const auto generator = schedule::find_generator(config.schedule);
  if (!generator) throw std::invalid_argument(generator.error().message);
  if (const auto ok = schedule::check(generator.value(), config.placement); !ok) throw std::invalid_argument(ok.error().message);
}

// Reports a missing device here; LibTorch would do so only later, with a stack trace.
void check_exists(const torch::Device& device, std::size_t worker) {
  const auto count = static_cast<std::int64_t>(torch::cuda::device_count());
  if (!device.is_cuda() || std::max<std::int64_t>(0, device.index()) < count) return;
  throw std::invalid_argument(
      fmt::format("worker {} is on {}, but there are {} CUDA devices here; use cpu, or see docs/gpu.md for a build with CUDA", worker,
                  device.str(), count));
}

void check_devices(const PipelineConfig& config) {
  const auto workers = static_cast<std::size_t>(config.placement.workers());
  if (config.devices.size() != workers) {
    throw std::invalid_argument(fmt::format("expected one device for each of {} workers, got {}", workers, config.devices.size()));
  }
  for (std::size_t w = 0; w < workers; ++w) {
    if (!config.remote.has(static_cast<int>(w))) check_exists(config.devices[w], w);
    if (config.remote.has(static_cast<int>(w)) || layer::can_compute(config.devices[w].type(), config.precision)) continue;
    throw std::invalid_argument(fmt::format("worker {} is on {}, where this LibTorch does not compute in {}; use --precision bf16 or fp32",
                                            w, config.devices[w].str(), layer::to_string(config.precision)));
  }
}

void check_reuse(const PipelineConfig& config) {
  if (!config.reuse.on) return;
  if (config.cuts.empty() || config.first_trained < 1) {
    throw std::invalid_argument("activations are reused where nothing is trained before the first cut; use --freeze for the layers there");
  }
  const auto& workers = config.placement.worker_of;
  if (config.remote.has(workers[0]) == config.remote.has(workers[1])) {
    throw std::invalid_argument("activations are reused where the first cut leads from one process to another; use --connect");
  }
  if (config.remote.has(workers[0]) && !config.reuse.frames) throw std::invalid_argument("this process keeps no activations");
}

void check_delay(const PipelineConfig& config) {
  if (config.delay == 0) return;
  const auto refuse = [](std::string_view what) {
    throw std::invalid_argument(fmt::format("--delay 1 does not go with {}; leave one of the two out", what));
  };
  if (config.delay != 1) throw std::invalid_argument(fmt::format("gradients are applied 0 or 1 steps late, got --delay {}", config.delay));
  if (config.schedule != "gpipe") refuse(fmt::format("--schedule {}: the order in which steps overlap is its own", config.schedule));
  if (config.in_flight != 0) refuse("--in-flight: every micro-batch of two steps may be in flight");
  if (config.loss_scaling)
    refuse("--loss-scaling, which --precision fp16 needs: a skipped step would be known when the next one has begun");
  if (config.reuse.on) refuse("--reuse-activations");
  if (config.exchange != nullptr) refuse("--replicas");
}

}  // namespace

PipelineConfig checked(PipelineConfig config, std::size_t layers) {
  check_cuts(config, layers);
  if (config.placement.worker_of.empty()) {
    for (std::size_t j = 0; j <= config.cuts.size(); ++j) config.placement.worker_of.push_back(static_cast<int>(j));
  }
  check_placement(config);
  if (config.codecs.empty()) config.codecs.resize(config.cuts.size());
  if (config.codecs.size() != config.cuts.size()) throw std::invalid_argument("expected codecs for each cut");
  if (config.devices.empty()) config.devices.assign(static_cast<std::size_t>(config.placement.workers()), torch::Device(torch::kCPU));
  check_devices(config);
  check_reuse(config);
  check_delay(config);
  return config;
}

}  // namespace epipe::pipeline
