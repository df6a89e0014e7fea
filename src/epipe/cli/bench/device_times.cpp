#include "epipe/cli/bench/device_times.h"

#include <cuda_runtime.h>

#include "epipe/codec/cuda/memory.h"

namespace epipe::cli {

std::vector<double> device_times(const torch::Tensor& x, int rounds, const std::function<void()>& work) {
  constexpr int kWarmUp = 2;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  TORCH_CHECK(cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess, "no CUDA events");
  std::vector<double> times;
  for (int i = 0; i < rounds + kWarmUp; ++i) {
    float milliseconds = 0;
    cudaEventRecord(begin, codec::stream_of(x));
    work();
    cudaEventRecord(end, codec::stream_of(x));
    cudaEventSynchronize(end);
    TORCH_CHECK(cudaEventElapsedTime(&milliseconds, begin, end) == cudaSuccess, "the work on the device failed");
    if (i >= kWarmUp) times.push_back(milliseconds);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return times;
}

}  // namespace epipe::cli
