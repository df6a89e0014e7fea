#pragma once

#include <torch/types.h>

// Sums over samples and places of a gradient times the activations it belongs to: most of what the layers in front of a cut make the
// gradients of their weights of. The values cancel in them, so a codec that keeps the map well does not keep them (bench/beside_the_cut).
// Sent beside the coded gradient, they can be put back into it.
namespace epipe::pipeline {

// Whether a tensor has moments: floats [N, C, H, W] with at most 64 channels.
bool has_moments(const torch::Tensor& x);

// [C, C + 1] in float32: every channel of the gradient with every channel of x, and with 1.
torch::Tensor moments(const torch::Tensor& gradient, const torch::Tensor& x);

// The gradient nearest to this one whose moments with x are the wanted ones, as far as the channels of x are different enough to tell; the
// gradient itself where x is not finite. x is what the wanted ones were made with: what arrived at the other side of the cut, not what was
// sent. Throws std::runtime_error when they do not fit x.
torch::Tensor with_moments(const torch::Tensor& gradient, const torch::Tensor& x, const torch::Tensor& wanted);

}  // namespace epipe::pipeline
