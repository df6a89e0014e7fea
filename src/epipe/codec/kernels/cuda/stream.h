#pragma once

struct CUstream_st;

// The codecs' inner loops on a CUDA device, bit for bit those of the scalar kernels. Pointers lead into device memory unless their name
// says host; everything is queued on a stream and nothing waits for it. A launch that fails throws std::runtime_error.
namespace epipe::kernels::cuda {

using Stream = CUstream_st*;  // what <cuda_runtime.h> calls cudaStream_t

}  // namespace epipe::kernels::cuda
