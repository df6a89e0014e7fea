// A build without CUDA.
#include <stdexcept>

#include "epipe/cli/bench/device_times.h"

namespace epipe::cli {

std::vector<double> device_times(const torch::Tensor&, int, const std::function<void()>&) {
  throw std::runtime_error("this epipe was built without CUDA: configure with --preset cuda");
}

}  // namespace epipe::cli
