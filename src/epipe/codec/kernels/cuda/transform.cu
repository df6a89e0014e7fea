#include "epipe/codec/kernels/cuda/transform.h"

#include "epipe/codec/kernels/cuda/launch.cuh"
#include "epipe/codec/kernels/transform.h"

namespace epipe::kernels::cuda {
namespace {

constexpr unsigned kUnits = 32;  // blocks of a tensor per thread block, one per lane
constexpr unsigned kWarps = 8;

// As kernel arguments they lie in constant memory: every lane multiplies by the same entry.
struct Matrices {
  float rows[kMaxEdge * kMaxEdge];
  float columns[kMaxEdge * kMaxEdge];
};

// Where a block lies in its map.
struct Place {
  std::uint64_t map;  // its first value
  unsigned top, left;
};

__device__ Place place_of(const Layout& layout, std::uint64_t block) {
  Place place;
  place.left = static_cast<unsigned>(block % layout.grid_width) * layout.width;
  place.top = static_cast<unsigned>(block / layout.grid_width % layout.grid_height) * layout.height;
  place.map = block / (layout.grid_width * layout.grid_height) * layout.map_height * layout.map_width;
  return place;
}

// out[v] = sum over c of matrix[v][c] * in[c]: a product, then fma in ascending order.
template <unsigned kLength>
__device__ void multiply(const float* matrix, unsigned length, const float (&in)[kLength], float (&out)[kLength]) {
#pragma unroll
  for (unsigned v = 0; v < kLength; ++v) {
    if (v >= length) break;
    float sum = __fmul_rn(matrix[v * length], in[0]);
#pragma unroll
    for (unsigned c = 1; c < kLength; ++c) {
      if (c >= length) break;
      sum = __fmaf_rn(matrix[v * length + c], in[c], sum);
    }
    out[v] = sum;
  }
}

// The part of the tensor, or the chunk, that a thread block is for. A grid has at most kMostRows rows, so there may be several layers.
constexpr std::uint64_t kMostRows = 65535;
__device__ std::uint64_t part_index() { return static_cast<std::uint64_t>(blockIdx.z) * gridDim.y + blockIdx.y; }

dim3 grid_of(std::uint64_t columns, std::uint64_t parts) {
  const std::uint64_t rows = std::min(parts, kMostRows);
  return {static_cast<unsigned>(columns), static_cast<unsigned>(rows), static_cast<unsigned>((parts + rows - 1) / rows)};
}

// A block is one lane; rows, then columns, are spread over the warps. With kEdge = 0 edges are known only now.
template <unsigned kEdge>
__global__ void __launch_bounds__(kUnits* kWarps)
    load_kernel(const float* __restrict__ x, Layout layout, Parts parts, const __grid_constant__ Matrices matrices, float* __restrict__ y) {
  constexpr unsigned kLength = kEdge == 0 ? kMaxEdge : kEdge;
  const unsigned height = kEdge == 0 ? layout.height : kEdge;
  const unsigned width = kEdge == 0 ? layout.width : kEdge;
  __shared__ float half[kUnits * (kLength * kLength + 1)];
  const unsigned lane = threadIdx.x % kUnits;
  const unsigned warp = threadIdx.x / kUnits;
  float* const own = half + lane * (kLength * kLength + 1);
  const std::uint64_t part = part_index();
  if (part >= parts.count) return;
  const std::uint64_t first = parts.first != nullptr ? parts.first[part] : part * parts.units;
  const std::uint64_t units = min(parts.units, layout.units - first);
  const std::uint64_t unit = static_cast<std::uint64_t>(blockIdx.x) * kUnits + lane;
  const bool exists = unit < units;
  float in[kLength];
  float out[kLength];
  if (exists) {
    const Place place = place_of(layout, first + unit);
    for (unsigned r = warp; r < height; r += kWarps) {
      const float* const from = x + place.map + min(place.top + r, layout.map_height - 1) * static_cast<std::uint64_t>(layout.map_width);
#pragma unroll
      for (unsigned c = 0; c < kLength; ++c) {
        if (c < width) in[c] = from[min(place.left + c, layout.map_width - 1)];
      }
      if (layout.transform) multiply(matrices.columns, width, in, out);
#pragma unroll
      for (unsigned c = 0; c < kLength; ++c) {
        if (c < width) own[r * width + c] = layout.transform ? out[c] : in[c];
      }
    }
  }
  __syncthreads();
  if (!exists) return;
  float* const planes = y + part * parts.units * layout.symbols + unit;
  for (unsigned v = warp; v < width; v += kWarps) {
#pragma unroll
    for (unsigned r = 0; r < kLength; ++r) {
      if (r < height) in[r] = own[r * width + v];
    }
    if (layout.transform) multiply(matrices.rows, height, in, out);
    if (layout.transform && v == 0) out[0] = __fmul_rn(out[0], layout.mean_gain);
#pragma unroll
    for (unsigned u = 0; u < kLength; ++u) {
      if (u < height) planes[(u * width + v) * units] = layout.transform ? out[u] : in[u];
    }
  }
}

template <unsigned kEdge>
__global__ void __launch_bounds__(kUnits* kWarps)
    store_kernel(const float* __restrict__ y, Layout layout, const __grid_constant__ Matrices matrices, float* __restrict__ x) {
  constexpr unsigned kLength = kEdge == 0 ? kMaxEdge : kEdge;
  const unsigned height = kEdge == 0 ? layout.height : kEdge;
  const unsigned width = kEdge == 0 ? layout.width : kEdge;
  __shared__ float half[kUnits * (kLength * kLength + 1)];
  const unsigned lane = threadIdx.x % kUnits;
  const unsigned warp = threadIdx.x / kUnits;
  float* const own = half + lane * (kLength * kLength + 1);
  if (part_index() >= layout.chunks) return;
  const std::uint64_t first = part_index() * layout.chunk_units;
  const std::uint64_t units = min(layout.chunk_units, layout.units - first);
  const std::uint64_t unit = static_cast<std::uint64_t>(blockIdx.x) * kUnits + lane;
  const bool exists = unit < units;
  const float* const planes = y + first * layout.symbols + unit;
  float in[kLength];
  float out[kLength];
  for (unsigned r = warp; exists && r < height; r += kWarps) {
#pragma unroll
    for (unsigned c = 0; c < kLength; ++c) {
      if (c < width) in[c] = planes[(r * width + c) * units];
    }
    if (r == 0) in[0] = __fmul_rn(in[0], 1.0F / layout.mean_gain);
    if (layout.transform) multiply(matrices.columns, width, in, out);
#pragma unroll
    for (unsigned c = 0; c < kLength; ++c) {
      if (c < width) own[r * width + c] = layout.transform ? out[c] : in[c];
    }
  }
  __syncthreads();
  for (unsigned v = warp; exists && layout.transform && v < width; v += kWarps) {
#pragma unroll
    for (unsigned r = 0; r < kLength; ++r) {
      if (r < height) in[r] = own[r * width + v];
    }
    multiply(matrices.rows, height, in, out);
#pragma unroll
    for (unsigned u = 0; u < kLength; ++u) {
      if (u < height) own[u * width + v] = out[u];
    }
  }
  __syncthreads();
  if (!exists) return;
  const Place place = place_of(layout, first + unit);
  // Rows of blocks that are whole packs of 16 bytes.
  const bool packs = kEdge != 0 && kEdge % 4 == 0 && layout.map_width % kLength == 0 && reinterpret_cast<std::uintptr_t>(x) % 16 == 0;
  for (unsigned r = warp; r < height && place.top + r < layout.map_height; r += kWarps) {
    const float* const row = own + r * width;
    float* const to = x + place.map + (place.top + r) * static_cast<std::uint64_t>(layout.map_width) + place.left;
    if constexpr (kEdge != 0 && kEdge % 4 == 0) {
#pragma unroll
      for (unsigned c = 0; packs && c < kLength; c += 4) {
        *reinterpret_cast<float4*>(to + c) = {row[c], row[c + 1], row[c + 2], row[c + 3]};
      }
    }
#pragma unroll
    for (unsigned c = 0; !packs && c < kLength; ++c) {
      if (c < width && place.left + c < layout.map_width) to[c] = row[c];
    }
  }
}

__global__ void load_rows_kernel(const float* __restrict__ x, Layout layout, Parts parts, float* __restrict__ y) {
  const std::uint64_t part = part_index();
  if (part >= parts.count) return;
  const std::uint64_t first = parts.first != nullptr ? parts.first[part] : part * parts.units;
  const std::uint64_t units = min(parts.units, layout.units - first);
  for (std::uint64_t i = static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < units; i += gridDim.x * blockDim.x) {
    y[part * parts.units + i] = x[first + i];
  }
}

Matrices matrices_of(const Layout& layout, const float* host_rows, const float* host_columns) {
  Matrices matrices{};
  std::copy_n(host_rows, layout.height * layout.height, matrices.rows);
  std::copy_n(host_columns, layout.width * layout.width, matrices.columns);
  return matrices;
}

std::uint64_t columns_for(std::uint64_t units) { return (units + kUnits - 1) / kUnits; }

// Calls launch(edge) with the edge of square blocks that are worth a kernel of their own, else with 0.
template <typename Launch>
void with_edge(const Layout& layout, Launch&& launch) {
  switch (layout.height == layout.width ? layout.height : 0) {
    case 4: return launch(std::integral_constant<unsigned, 4>{});
    case 7: return launch(std::integral_constant<unsigned, 7>{});
    case 8: return launch(std::integral_constant<unsigned, 8>{});
    case 14: return launch(std::integral_constant<unsigned, 14>{});
    case 16: return launch(std::integral_constant<unsigned, 16>{});
    default: return launch(std::integral_constant<unsigned, 0>{});
  }
}

}  // namespace

void load_planes(const float* x, const Layout& layout, const Parts& parts, const float* host_rows, const float* host_columns, float* y,
                 Stream stream) {
  if (!layout.blocks) {
    load_rows_kernel<<<grid_of(grid_for(parts.units, 256), parts.count), 256, 0, stream>>>(x, layout, parts, y);
    return check_launch("load_planes");
  }
  const Matrices matrices = matrices_of(layout, host_rows, host_columns);
  with_edge(layout, [&](auto edge) {
    load_kernel<edge.value><<<grid_of(columns_for(parts.units), parts.count), kUnits * kWarps, 0, stream>>>(x, layout, parts, matrices, y);
  });
  check_launch("load_planes");
}

void store_planes(const float* y, const Layout& layout, const float* host_rows, const float* host_columns, float* x, Stream stream) {
  const Matrices matrices = matrices_of(layout, host_rows, host_columns);
  with_edge(layout, [&](auto edge) {
    store_kernel<edge.value>
        <<<grid_of(columns_for(layout.chunk_units), layout.chunks), kUnits * kWarps, 0, stream>>>(y, layout, matrices, x);
  });
  check_launch("store_planes");
}

}  // namespace epipe::kernels::cuda
