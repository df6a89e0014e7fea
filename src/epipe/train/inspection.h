#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "epipe/train/config.h"
#include "epipe/train/trainer.h"

namespace epipe::train {

struct InspectConfig {
  std::int64_t steps = 3;
  std::vector<std::string> codecs;  // codecs to measure on these tensors
  std::string dump;                 // folder for the tensors as .npy; empty: none
};

// Trains a few steps and gathers statistics of every tensor that crosses a cut, before its codec. Returns one object:
//   model, data, steps, cuts: for each cut and direction
//     cut, direction, layer (that follows the cut), shape (of the first micro-batch), values, zeros, min, max, mean, std, kurtosis
//     (3: normal distribution), histogram of the values and log2_histogram of the magnitudes that are not zero, both with *_low and
//     *_width of the bins; the first and last count are for values below and above. codecs: codec, wire_bytes, bits_per_value,
//     rel_error, or `failed`
// Throws like train().
nlohmann::ordered_json inspect(const Registry& registry, const TrainConfig& config, const InspectConfig& how, Observer& observer);

}  // namespace epipe::train
