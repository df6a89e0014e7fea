#pragma once

#include <functional>
#include <string>
#include <vector>

#include "epipe/model/architecture.h"
#include "epipe/planner/inputs.h"
#include "epipe/train/batches.h"
#include "epipe/train/config.h"

// What the layers of a model, its data and codecs cost on this machine, as the planner wants to know it.
namespace epipe::train {

// A line through measured points (x, y), with neither part below 0: of two or more by least squares, of one through the origin.
struct Point {
  double x = 0;
  double y = 0;
};
planner::Seconds fit_line(const std::vector<Point>& points);

// A model as it is: shapes, parameters and FLOPs of its layers for one sample, from one forward. What is kept is estimated as three times
// the outputs until it is measured.
struct ModelTable {
  std::vector<planner::Layer> layers;
  bool batch_norm = false;  // it normalizes by the micro-batch
};
ModelTable model_table(const model::Architecture& architecture, const TrainConfig& config, const Batches& batches);

// Some outputs of layers, of different sizes: what codecs are measured with.
using Outputs = std::vector<torch::Tensor>;
Outputs sample_outputs(const model::Architecture& architecture, const TrainConfig& config, const Batches& batches);

// Times of every layer on a device here, at two sizes of a micro-batch.
struct DeviceTable {
  std::vector<planner::Seconds> forward;
  std::vector<planner::Seconds> backward;
  std::vector<double> kept_bytes;  // by layer, of one sample
  Outputs outputs;
};
DeviceTable device_table(const model::Architecture& architecture, const TrainConfig& config, const Batches& batches, torch::Device device);

// The same from FLOPs and how many of them it does in a second: a backward is two forwards.
DeviceTable estimated_table(const std::vector<planner::Layer>& layers, double flops_per_second);

// A codec by its text, on these tensors. Throws std::invalid_argument for a text that is none, or of a learned codec.
planner::CodecCosts codec_costs(const std::string& spec, const Outputs& outputs, int threads);

// Seconds of the optimizer for one parameter, and bytes of gradient and state.
double update_seconds(const OptimizerConfig& config);
double state_bytes(const OptimizerConfig& config);

// How many threads' work this machine does at once, up to its hardware threads: those that share a core, caches or memory do less than as
// many cores. Takes a third of a second.
double measured_cores();

// Seconds of one thread to make one sample of a batch.
double load_seconds(const Batches& batches, std::int64_t samples);

}  // namespace epipe::train
