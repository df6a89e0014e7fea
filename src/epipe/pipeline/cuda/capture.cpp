#include "epipe/pipeline/cuda/capture.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

#include <exception>
#include <mutex>

namespace epipe::pipeline {
namespace {

// Two recordings at once would share LibTorch's random number generator.
std::mutex& one_at_a_time() {
  static std::mutex mutex;
  return mutex;
}

// LibTorch's errors carry a stack after their first line.
std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

// After a failed capture the allocator still waits for its end.
void release(at::cuda::MempoolId_t pool) {
  try {
    c10::cuda::CUDACachingAllocator::endAllocateToPool(c10::cuda::current_device(), pool);
  } catch (const c10::Error&) {
    // It was told already.
  }
  (void)cudaGetLastError();
}

}  // namespace

std::string capture(at::cuda::CUDAGraph& graph, at::cuda::MempoolId_t pool, const std::function<void()>& work) {
  const std::lock_guard lock(one_at_a_time());
  std::string failure;
  // Relaxed: other threads may allocate and wait for their streams.
  graph.capture_begin(pool, cudaStreamCaptureModeRelaxed);
  try {
    work();
  } catch (const std::exception& error) {
    failure = first_line(error);
  }
  try {
    graph.capture_end();
  } catch (const std::exception& error) {
    if (failure.empty()) failure = first_line(error);
    release(pool);
  }
  return failure;
}

}  // namespace epipe::pipeline
