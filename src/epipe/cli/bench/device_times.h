#pragma once

#include <torch/types.h>

#include <functional>
#include <vector>

namespace epipe::cli {

// Milliseconds `work` takes on the current stream of x's device, `rounds` times after two warm-ups. Measured by CUDA events around each
// call, so that the host's work counts only while the device waits for it.
std::vector<double> device_times(const torch::Tensor& x, int rounds, const std::function<void()>& work);

}  // namespace epipe::cli
