#pragma once

#include <type_traits>
#include <utility>

#include "epipe/codec/kernels/contexts.h"
#include "epipe/codec/kernels/cuda/launch.cuh"
#include "epipe/codec/kernels/cuda/layout.h"
#include "epipe/codec/kernels/tokens.h"

// tokens.h, contexts.h and planes.h on the device.
namespace epipe::kernels::cuda {

__device__ inline std::int32_t device_level_of(float y, const DeadZone& zone) {
  const float a = __fmul_rn(fabsf(y), zone.scale);
  return a < zone.threshold ? 0 : static_cast<std::int32_t>(__fadd_rn(a, zone.offset));
}

__device__ inline std::uint8_t device_token_of(std::int32_t level, bool negative) {
  const std::int32_t sign = negative ? 1 : 0;
  if (level <= kMaxMagnitude) return static_cast<std::uint8_t>(level == 0 ? 0 : 2 * level - 1 + sign);
  return static_cast<std::uint8_t>(kFirstEscape + 2 * ((__float_as_int(static_cast<float>(level)) >> 22) - kHalfOctaves) + sign);
}

__device__ inline float device_level_value(std::int32_t magnitude, bool negative, const std::int8_t* shifts, float step) {
  const float shift = __fmul_rn(static_cast<float>(shifts[magnitude == 1 ? 0 : 1]), 0x1p-8F);
  const float value = __fmul_rn(__fsub_rn(static_cast<float>(magnitude), shift), step);
  return negative ? -value : value;
}

// A chunk of the tensor's symbols, and its planes.
struct DeviceChunk {
  std::uint64_t begin;  // in the tensor's symbols
  std::uint64_t units;

  __device__ DeviceChunk(const Layout& layout, std::uint64_t c)
      : begin(c * layout.chunk_units * layout.symbols), units(min(layout.chunk_units, layout.units - c * layout.chunk_units)) {}
  __device__ std::uint64_t symbols(const Layout& layout) const { return units * layout.symbols; }
  __device__ std::uint64_t planes(const Layout& layout) const {
    return layout.blocks ? layout.symbols : (units + layout.row - 1) / layout.row;
  }
  __device__ std::uint64_t plane_begin(const Layout& layout, std::uint64_t p) const { return p * (layout.blocks ? units : layout.row); }
  __device__ std::uint64_t plane_length(const Layout& layout, std::uint64_t p) const {
    return layout.blocks ? units : min(layout.row, units - p * layout.row);
  }
};

// How many of the ascending limits a value reaches.
template <const auto& kLimits, std::size_t... kIndex>
__device__ unsigned count_reached(unsigned value, std::index_sequence<kIndex...>) {
  return (0U + ... + (value >= std::integral_constant<unsigned, kLimits[kIndex]>::value ? 1U : 0U));
}
template <const auto& kLimits>
__device__ unsigned reached(unsigned value) {
  return count_reached<kLimits>(value, std::make_index_sequence<kLimits.size()>{});
}

// The planes that a plane's levels are made from; plane 0 stands in, with weight 0, for those that do not exist.
struct Parents {
  unsigned above, left, diagonal, above2, left2;
  unsigned above_weight, left_weight, diagonal_weight, above2_weight, left2_weight;

  __device__ Parents(unsigned width, unsigned p) {
    const unsigned u = p / width;
    const unsigned v = p % width;
    above = u >= 1 ? p - width : 0;
    left = v >= 1 ? p - 1 : 0;
    diagonal = u >= 1 && v >= 1 ? p - width - 1 : 0;
    above2 = u >= 2 ? p - 2 * width : 0;
    left2 = v >= 2 ? p - 2 : 0;
    above_weight = u >= 1 ? 2 : 0;
    left_weight = v >= 1 ? 2 : 0;
    diagonal_weight = u >= 1 && v >= 1 ? 1 : 0;
    above2_weight = u >= 2 ? 1 : 0;
    left2_weight = v >= 2 ? 1 : 0;
  }
  __device__ unsigned sum(unsigned a, unsigned l, unsigned d, unsigned a2, unsigned l2) const {
    return a * above_weight + l * left_weight + d * diagonal_weight + a2 * above2_weight + l2 * left2_weight;
  }
  // at(k) is the magnitude of the symbol in plane k. No branches: all five loads are on their way together.
  template <typename At>
  __device__ unsigned level(const At& at) const {
    const unsigned a = at(above);
    const unsigned l = at(left);
    const unsigned d = at(diagonal);
    const unsigned a2 = at(above2);
    const unsigned l2 = at(left2);
    return reached<kParentLimits>(sum(a, l, d, a2, l2));
  }
};

// The mean that follows one, and the level it gives.
__device__ inline unsigned next_mean(unsigned mean, unsigned before) { return mean - (mean >> 3U) + 16 * before; }
__device__ inline unsigned running_level(unsigned mean) { return 1 + reached<kRunningLimits>(mean); }
__device__ inline unsigned neighbour_level(unsigned twice_and_neighbours) { return 1 + reached<kNeighbourLimits>(twice_and_neighbours); }

}  // namespace epipe::kernels::cuda
