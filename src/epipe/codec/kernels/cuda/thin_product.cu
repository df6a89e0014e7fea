#include "epipe/codec/kernels/cuda/thin_product.h"

#include "epipe/codec/kernels/cuda/launch.cuh"

namespace epipe::kernels::cuda {
namespace {

// fma(a, b, kNoSum) is a * b, of the same sign where it is 0.
constexpr float kNoSum = -0.0F;

constexpr unsigned kThreads = 128;
constexpr unsigned kWarps = kThreads / kWarp;
constexpr unsigned kRows = 8;  // of the product that a thread has at a time

// Short rows: a thread per column.
__global__ void __launch_bounds__(kThreads) product_kernel(ThinMatrices shape, const float* __restrict__ left,
                                                           const float* __restrict__ right, float* __restrict__ x, std::uint32_t* wrong) {
  const std::uint64_t columns = shape.batch * shape.columns;
  const std::uint64_t stride = static_cast<std::uint64_t>(gridDim.x) * kThreads;
  bool finite = true;
  for (std::uint64_t column = static_cast<std::uint64_t>(blockIdx.x) * kThreads + threadIdx.x; column < columns; column += stride) {
    const std::uint64_t matrix = column / shape.columns;
    const float* const own = right + column * shape.rank;
    float* const to = x + matrix * shape.rows * shape.columns + column % shape.columns;
    for (std::uint64_t first = static_cast<std::uint64_t>(blockIdx.y) * kRows; first < shape.rows; first += gridDim.y * kRows) {
      const auto count = static_cast<unsigned>(min(static_cast<std::uint64_t>(kRows), shape.rows - first));
      const float* const rows = left + (matrix * shape.rows + first) * shape.rank;
      float sums[kRows];
#pragma unroll
      for (unsigned i = 0; i < kRows; ++i) sums[i] = kNoSum;
      for (unsigned k = 0; k < shape.rank; ++k) {
        const float factor = own[k];
#pragma unroll
        for (unsigned i = 0; i < kRows; ++i) sums[i] = i < count ? __fmaf_rn(rows[i * shape.rank + k], factor, sums[i]) : 0.0F;
      }
#pragma unroll
      for (unsigned i = 0; i < kRows; ++i) {
        if (i >= count) continue;
        to[(first + i) * shape.columns] = sums[i];
        finite = finite && isfinite(sums[i]);
      }
    }
  }
  if (!finite) atomicOr(wrong, 1U);
}

// Long rows: a block has a tile of 128 columns, a warp kRows of its rows, a thread four of its columns in them.
constexpr unsigned kLongRows = 32;
constexpr unsigned kTile = 128;
constexpr unsigned kOwn = kTile / kWarp;
constexpr unsigned kDepth = 16;  // of the rank at a time

__global__ void __launch_bounds__(kThreads)
    tiled_product_kernel(ThinMatrices shape, const float* __restrict__ left, const float* __restrict__ right, float* __restrict__ x,
                         std::uint32_t* wrong) {
  static_assert(kTile == kThreads && kRows == 8);
  __shared__ float factors[kDepth][kTile];
  __shared__ float4 rows[kWarps][kDepth][kRows / 4];
  const unsigned warp = threadIdx.x / kWarp;
  const unsigned lane = threadIdx.x % kWarp;
  const std::uint64_t tiles = (shape.columns + kTile - 1) / kTile;
  bool finite = true;
  for (std::uint64_t tile = blockIdx.x; tile < shape.batch * tiles; tile += gridDim.x) {
    const std::uint64_t matrix = tile / tiles;
    const std::uint64_t first_column = tile % tiles * kTile;
    const auto width = static_cast<unsigned>(min(static_cast<std::uint64_t>(kTile), shape.columns - first_column));
    const float* const own_right = right + (matrix * shape.columns + first_column) * shape.rank;
    for (std::uint64_t block_row = static_cast<std::uint64_t>(blockIdx.y) * kWarps * kRows; block_row < shape.rows;
         block_row += static_cast<std::uint64_t>(gridDim.y) * kWarps * kRows) {
      const std::uint64_t first_row = block_row + warp * kRows;
      const float* const own_left = left + (matrix * shape.rows + first_row) * shape.rank;
      float sums[kRows][kOwn];
#pragma unroll
      for (unsigned i = 0; i < kRows * kOwn; ++i) sums[i / kOwn][i % kOwn] = kNoSum;
      for (unsigned first = 0; first < shape.rank; first += kDepth) {
        const unsigned depth = min(kDepth, shape.rank - first);
        __syncthreads();
        for (unsigned k = 0; k < depth; ++k) {
          factors[k][threadIdx.x] =
              threadIdx.x < width ? own_right[static_cast<std::uint64_t>(threadIdx.x) * shape.rank + first + k] : 0.0F;
        }
        for (unsigned i = lane; i < kRows * depth; i += kWarp) {
          const unsigned row = i % kRows;
          const unsigned k = i / kRows;
          reinterpret_cast<float*>(rows[warp][k])[row] = first_row + row < shape.rows ? own_left[row * shape.rank + first + k] : 0.0F;
        }
        __syncthreads();
        for (unsigned k = 0; k < depth; ++k) {
          const float4 a = rows[warp][k][0];
          const float4 b = rows[warp][k][1];
          const float by_row[kRows] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
          for (unsigned c = 0; c < kOwn; ++c) {
            const float factor = factors[k][lane + c * kWarp];
#pragma unroll
            for (unsigned r = 0; r < kRows; ++r) sums[r][c] = __fmaf_rn(by_row[r], factor, sums[r][c]);
          }
        }
      }
#pragma unroll
      for (unsigned r = 0; r < kRows; ++r) {
        if (first_row + r >= shape.rows) continue;
        float* const to = x + (matrix * shape.rows + first_row + r) * shape.columns + first_column;
#pragma unroll
        for (unsigned c = 0; c < kOwn; ++c) {
          if (lane + c * kWarp >= width) continue;
          to[lane + c * kWarp] = sums[r][c];
          finite = finite && isfinite(sums[r][c]);
        }
      }
    }
  }
  if (!finite) atomicOr(wrong, 1U);
}

}  // namespace

void thin_product(const ThinMatrices& shape, const float* left, const float* right, float* x, std::uint32_t* wrong, Stream stream) {
  constexpr std::uint64_t kMostRowsOfAGrid = 65535;
  const bool tiled = shape.columns >= kLongRows;
  const std::uint64_t at_once = tiled ? kWarps * kRows : kRows;
  const std::uint64_t blocks =
      tiled ? shape.batch * ((shape.columns + kTile - 1) / kTile) : (shape.batch * shape.columns + kThreads - 1) / kThreads;
  const dim3 grid(grid_for(blocks, 1), static_cast<unsigned>(std::min((shape.rows + at_once - 1) / at_once, kMostRowsOfAGrid)));
  if (tiled) {
    tiled_product_kernel<<<grid, kThreads, 0, stream>>>(shape, left, right, x, wrong);
  } else {
    product_kernel<<<grid, kThreads, 0, stream>>>(shape, left, right, x, wrong);
  }
  check_launch("thin_product");
}

}  // namespace epipe::kernels::cuda
