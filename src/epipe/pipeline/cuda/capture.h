#pragma once

#include <ATen/cuda/CUDAGraph.h>

#include <functional>
#include <string>

namespace epipe::pipeline {

// Records what `work` queues on the thread's current stream, without running it; autograd's threads take part. What it allocates is of the
// pool. Returns why it could not be recorded; empty: it was. Other threads go on with their own streams meanwhile.
std::string capture(at::cuda::CUDAGraph& graph, at::cuda::MempoolId_t pool, const std::function<void()>& work);

}  // namespace epipe::pipeline
