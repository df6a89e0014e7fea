#pragma once

#include <torch/types.h>

#include <functional>
#include <vector>

namespace epipe::cli {

// Milliseconds that `work`, queued on the current stream of x's device, takes there, `rounds` times after two that do not count. By
// CUDA events around each call, so that what the host does in between counts where the device waits for it.
std::vector<double> device_times(const torch::Tensor& x, int rounds, const std::function<void()>& work);

}  // namespace epipe::cli
