#pragma once

#include <torch/types.h>

namespace epipe::cli {

// The reference prototype's encoders and decoder written with LibTorch operators, as the baseline to beat: a full sort, a
// quantization of each sorted run, a scatter back; one byte per code, no packing, no checksum.
struct TorchOpsEncoded {
  torch::Tensor codes;  // uint8
  torch::Tensor mins;
  torch::Tensor steps;
};

TorchOpsEncoded torch_ops_sort(const torch::Tensor& x, int level_bits, int split_bits);
TorchOpsEncoded torch_ops_uniform(const torch::Tensor& x, int bits);
torch::Tensor torch_ops_decode(const TorchOpsEncoded& encoded, int level_bits, torch::IntArrayRef shape);

}  // namespace epipe::cli
