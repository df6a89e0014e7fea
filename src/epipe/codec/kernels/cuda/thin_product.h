#pragma once

#include <cstdint>

#include "epipe/codec/kernels/cuda/stream.h"

namespace epipe::kernels::cuda {

struct ThinMatrices {
  std::uint64_t batch, rows, columns;
  unsigned rank;
};

// x [batch, rows, columns] = left [batch, rows, rank] times right^T, right [batch, columns, rank]. Each sum starts with a product and
// continues with fma in ascending order, as on the host. *wrong becomes 1 where a value is not finite, and is left alone remote.
void thin_product(const ThinMatrices& shape, const float* left, const float* right, float* x, std::uint32_t* wrong, Stream stream);

}  // namespace epipe::kernels::cuda
