#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "epipe/layer/layer.h"

// Random numbers that depend on names and numbers only, so that every placement and every replay draws the same ones.
namespace epipe::layer {

// A 64-bit key for a seed and a name: the first bytes of SHA-256(seed, name). The key, or numbers drawn with it, reveal neither the seed
// nor the key of another name. The steps after the key (mix, draws) are easy to invert.
std::uint64_t key_of(std::uint64_t seed, std::string_view name);
// Mixes another number into a key.
std::uint64_t mix(std::uint64_t key, std::uint64_t number);

// The samples' keys for the dropout of this name: element e of a sample depends on its key and e.
std::vector<std::uint64_t> sample_keys(const ForwardContext& at, std::string_view name);

// 0 with probability p, 1 / (1 - p) otherwise, for a tensor whose first dim is the samples of `at`: element e of sample s depends on
// (seed, epoch, step, id of s, name, e) only.
torch::Tensor dropout_mask(torch::IntArrayRef shape, double p, const ForwardContext& at, std::string_view name);

// While training, x with elements dropped and the rest scaled; otherwise x itself. PyTorch's own dropout if nothing is pipelined.
torch::Tensor dropout(const torch::Tensor& x, double p, const ForwardContext& at, std::string_view name);

// dropout() of a tensor [B, heads, rows, values] that is computed in parts, each of which has the numbers it has in the whole. Nothing is
// drawn here: a part may be dropped again, as a backward does that recomputes it.
struct DropoutInParts {
  torch::Tensor keys;  // of the samples, int64 [B], on the tensor's device
  double p = 0;
  std::int64_t rows = 0;
  std::int64_t values = 0;

  // x [B, heads, size, n]: of all heads the rows from `first` on, and of each row the first n values. Has no graph.
  torch::Tensor drop(const torch::Tensor& x, std::int64_t first) const;
};
DropoutInParts dropout_in_parts(std::int64_t rows, std::int64_t values, double p, torch::Device device, const ForwardContext& at,
                                std::string_view name);

// Fills x with uniform values in [-bound, bound), drawn with the key.
void fill_uniform(torch::Tensor& x, double bound, std::uint64_t key);
// Fills x with normal values of mean 0, drawn with the key.
void fill_normal(torch::Tensor& x, double deviation, std::uint64_t key);

}  // namespace epipe::layer
