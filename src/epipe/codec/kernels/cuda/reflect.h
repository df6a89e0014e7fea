#pragma once

#include <cstdint>

#include "epipe/codec/kernels/cuda/stream.h"
#include "epipe/codec/kernels/transform.h"

// Householder reflections of features.
namespace epipe::kernels::cuda {

inline constexpr std::size_t kMostReflected = 4096;  // features

// x and y are [rows, features], and may be one; reflections.rows and .scales lie on the device. Bit for bit what the host computes.
void reflect_rows(const float* x, std::uint64_t rows, unsigned features, const ReflectionRows& reflections, bool backwards, float* y,
                  Stream stream);

}  // namespace epipe::kernels::cuda
