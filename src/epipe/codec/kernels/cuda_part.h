#pragma once

#include "epipe/base/build_part.h"

namespace epipe::kernels {

// The CUDA side of the build: the toolkit it was compiled with and the devices it finds.
Part cuda_part();

}  // namespace epipe::kernels
