#pragma once

#include <functional>
#include <string>
#include <vector>

#include "epipe/model/architecture.h"
#include "epipe/planner/inputs.h"
#include "epipe/train/batches.h"
#include "epipe/train/config.h"
#include "epipe/train/registry.h"

// The costs of a model's layers and its data on this machine, for the planner.
namespace epipe::train {

// A line through measured points (x, y), with non-negative offset and slope: least squares for two or more points, through the origin for
// one.
struct Point {
  double x = 0;
  double y = 0;
};
planner::Line fit_line(const std::vector<Point>& points);

// A model without timings: shapes, parameters and FLOPs of its layers for one sample, from one forward. Kept memory is estimated as three
// times the outputs until it is measured.
struct ModelTable {
  std::vector<planner::Layer> layers;
  bool batch_norm = false;  // whether it normalizes by the micro-batch
};
ModelTable model_table(const model::Architecture& architecture, const TrainConfig& config, const Batches& batches);

// Times of every layer on a local device, the loss with the last one, at sizes of a micro-batch from the whole batch down to `least`
// samples, each half of the one before; without those that would take too long here.
struct DeviceTable {
  std::vector<double> sizes;                 // ascending
  std::vector<std::vector<double>> forward;  // by layer, at each size
  std::vector<std::vector<double>> backward;
  std::vector<double> kept_bytes;  // by layer, for one sample
};
DeviceTable device_table(const Registry& registry, const model::Architecture& architecture, const TrainConfig& config,
                         const Batches& batches, torch::Device device, std::int64_t least);

// The same, estimated from FLOPs and the device's FLOPs per second: a backward counts as two forwards.
DeviceTable estimated_table(const std::vector<planner::Layer>& layers, double flops_per_second);

// Seconds to add a gradient to another one, per parameter.
double accumulate_seconds();

// The optimizer's seconds per parameter, and the bytes of gradient and state per parameter.
double update_seconds(const OptimizerConfig& config);
double state_bytes(const OptimizerConfig& config);

// How many threads' worth of work this machine does at once, at most its hardware threads: threads that share a core, caches or memory do
// less than separate cores. Takes a third of a second.
double measured_cores();

// Seconds one thread takes to load one sample of a batch.
double load_seconds(const Batches& batches, std::int64_t samples);

}  // namespace epipe::train
