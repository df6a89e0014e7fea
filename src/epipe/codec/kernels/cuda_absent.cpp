#include "epipe/codec/kernels/cuda_part.h"

namespace epipe::kernels {

Part cuda_part() { return {"CUDA", false, "not in this build: configure with --preset cuda and CMAKE_PREFIX_PATH at a CUDA LibTorch"}; }

}  // namespace epipe::kernels
