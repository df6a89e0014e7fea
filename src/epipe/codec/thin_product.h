#pragma once

#include <span>

#include "epipe/base/thread_pool.h"
#include "epipe/codec/kernels/kernels.h"

// Products of matrices of which one side is short. Each sum starts with a product and continues with fma in ascending order, so they are
// the same to the bit on every machine and with any number of threads.
namespace epipe::codec {

struct ThinShape {
  std::size_t batch, rows, columns, rank;
};

// x [batch, rows, columns] = left [batch, rows, rank] times right^T, right [batch, columns, rank].
void thin_product(const ThinShape& shape, std::span<const float> left, std::span<const float> right, const kernels::Kernels& kernels,
                  ThreadPool* pool, std::span<float> x);

// right [batch, columns, rank] = x^T times left.
void thin_factor(const ThinShape& shape, std::span<const float> x, std::span<const float> left, const kernels::Kernels& kernels,
                 ThreadPool* pool, std::span<float> right);

}  // namespace epipe::codec
