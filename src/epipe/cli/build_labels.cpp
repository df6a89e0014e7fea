#include "epipe/cli/build_labels.h"

#include <torch/version.h>

#include "epipe/codec/kernels/cuda_part.h"

namespace epipe::cli {

monitor::Labels build_labels() {
  static const monitor::Labels labels = {{"version", EPIPE_VERSION},
                                         {"build_type", EPIPE_BUILD_TYPE},
                                         {"compiler", EPIPE_COMPILER},
                                         {"libtorch", TORCH_VERSION},
                                         {"cuda", kernels::cuda_part().available ? "yes" : "no"}};
  return labels;
}

}  // namespace epipe::cli
