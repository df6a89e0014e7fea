#pragma once

#include <memory>

#include "epipe/layer/modules.h"

// The operations in the cells of an AmoebaNet.
namespace epipe::model {

enum class AmoebaOperation : std::uint8_t { kNone, kAvgPool3x3, kMaxPool2x2, kMaxPool3x3, kConv1x1, kConv3x3, kConv1x7And7x1 };

// [B, C, H, W] -> [B, C, H / stride, W / stride], sizes rounded up
class Operation : public torch::nn::Module {
 public:
  virtual torch::Tensor forward(const torch::Tensor& x, const layer::ForwardContext& at) = 0;
  // The FLOPs of the convolutions, for the given numbers of input and output positions (samples x height x width).
  virtual double flops(std::int64_t before, std::int64_t after) const = 0;
};

std::shared_ptr<Operation> make_operation(AmoebaOperation kind, std::int64_t channels, std::int64_t stride);
// ReLU, a 1x1 convolution, BatchNorm: other channels, same size.
std::shared_ptr<Operation> make_projection(std::int64_t in, std::int64_t out);
// Halves the size and changes the channels without losing every second pixel: two 1x1 convolutions, one of them shifted.
std::shared_ptr<Operation> make_factorized_reduce(std::int64_t in, std::int64_t out);

}  // namespace epipe::model
