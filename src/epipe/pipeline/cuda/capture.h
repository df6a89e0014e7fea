#pragma once

#include <ATen/cuda/CUDAGraph.h>

#include <functional>
#include <string>

namespace epipe::pipeline {

// Records the work that `work` queues on the thread's current stream, also from autograd's threads, without running it. Allocations come
// from the pool. Returns why recording failed, or empty. Other threads may use their own streams meanwhile.
std::string capture(at::cuda::CUDAGraph& graph, at::cuda::MempoolId_t pool, const std::function<void()>& work);

}  // namespace epipe::pipeline
