#pragma once

#include <cstdint>

#include "epipe/codec/kernels/cuda/stream.h"

// Factors of many matrices at once. What has to fit, has to fit into a multiprocessor's shared memory.
namespace epipe::kernels::cuda {

// Makes the columns of x [batch, rows, rank] orthonormal, rank <= rows: each loses its parts along those before it. One that has none of
// its own is replaced by values that look random. Of a matrix with a value that is not finite some stay so.
bool orthonormal_columns_fit(std::uint64_t batch, unsigned rank);
void orthonormal_columns(float* x, std::uint64_t batch, std::uint64_t rows, unsigned rank, Stream stream);

// Of every x [rows, columns] the `kept` largest singular values, descending, and their right vectors [columns, kept]; a vector of zeros
// where the value is 0. x is finite, kept <= rows <= columns.
bool principal_vectors_fit(std::uint64_t batch, std::uint64_t rows, std::uint64_t columns);
void principal_vectors(const float* x, std::uint64_t batch, std::uint64_t rows, std::uint64_t columns, unsigned kept, float* values,
                       float* vectors, Stream stream);

}  // namespace epipe::kernels::cuda
