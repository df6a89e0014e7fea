#pragma once

#include <cstdint>

#include "epipe/codec/kernels/cuda/layout.h"

// Blocks of maps to planes and back, with or without a DCT on the way.
namespace epipe::kernels::cuda {

// y gets the symbols of the parts, plane after plane. Matrices as kernels/transform.h gives them, in host memory. For rows: a copy.
void load_planes(const float* x, const Layout& layout, const Parts& parts, const float* host_rows, const float* host_columns, float* y,
                 Stream stream);
// The whole tensor back, from the planes of its chunks.
void store_planes(const float* y, const Layout& layout, const float* host_rows, const float* host_columns, float* x, Stream stream);

}  // namespace epipe::kernels::cuda
