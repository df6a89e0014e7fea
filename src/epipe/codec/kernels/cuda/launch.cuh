#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "epipe/codec/kernels/cuda/stream.h"
#include "epipe/codec/kernels/kernels.h"

// What all kernels here share. Compiled with -fmad=false: a multiply and an add are fused only where fmaf says so.
namespace epipe::kernels::cuda {

constexpr unsigned kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffU;

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}
inline void check_launch(const char* kernel) { check(cudaGetLastError(), kernel); }

// Enough blocks to fill the device several times over, no more than there is work for.
inline unsigned grid_for(std::size_t work, std::size_t per_block) {
  constexpr std::size_t kMostBlocks = 132 * 16;
  return static_cast<unsigned>(std::clamp<std::size_t>((work + per_block - 1) / per_block, 1, kMostBlocks));
}

// key.h on the device.
__device__ inline Key value_key(float x) {
  const int bits = __float_as_int(x);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}
__device__ inline Key magnitude_key(float x) { return __float_as_int(x) & 0x7fffffff; }
template <KeyOf kOf>
__device__ Key key_of(float x) {
  return kOf == KeyOf::kValue ? value_key(x) : magnitude_key(x);
}
__device__ inline float key_value(Key key) { return __int_as_float(key ^ ((key >> 31) & 0x7fffffff)); }

// Calls each(x[i]) for this thread's share of all values: 16 bytes at a time, four loads in flight. x is aligned to 16 bytes.
template <typename Each>
__device__ void for_values(const float* __restrict__ x, std::size_t n, Each&& each) {
  const std::size_t quads = n / 4;
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const auto* const q = reinterpret_cast<const float4*>(x);
  for (; i + 3 * stride < quads; i += 4 * stride) {
    const float4 a = q[i];
    const float4 b = q[i + stride];
    const float4 c = q[i + 2 * stride];
    const float4 d = q[i + 3 * stride];
    each(a.x), each(a.y), each(a.z), each(a.w);
    each(b.x), each(b.y), each(b.z), each(b.w);
    each(c.x), each(c.y), each(c.z), each(c.w);
    each(d.x), each(d.y), each(d.z), each(d.w);
  }
  for (; i < quads; i += stride) {
    const float4 a = q[i];
    each(a.x), each(a.y), each(a.z), each(a.w);
  }
  if (blockIdx.x == 0 && threadIdx.x < n % 4) each(x[4 * quads + threadIdx.x]);
}

// The sum of the lanes before this one.
template <typename T>
__device__ T warp_sum_before(T value, T* total) {
  const unsigned lane = threadIdx.x % kWarp;
  T sum = value;
  for (unsigned d = 1; d < kWarp; d *= 2) {
    const T other = __shfl_up_sync(kAllLanes, sum, d);
    if (lane >= d) sum += other;
  }
  *total = __shfl_sync(kAllLanes, sum, kWarp - 1);
  return sum - value;
}

// The sum of the threads before this one in the block, and of all of them. Called by all threads; `room` holds 33 places.
template <typename T>
__device__ T block_sum_before(T value, T* room, T* total) {
  const unsigned warp = threadIdx.x / kWarp;
  T warp_total;
  const T before = warp_sum_before(value, &warp_total);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) room[warp] = warp_total;
  __syncthreads();
  if (warp == 0) {
    const T own = threadIdx.x < blockDim.x / kWarp ? room[threadIdx.x] : T{0};
    T all;
    const T warps_before = warp_sum_before(own, &all);
    room[threadIdx.x] = warps_before;
    if (threadIdx.x == 0) room[kWarp] = all;
  }
  __syncthreads();
  *total = room[kWarp];
  return room[warp] + before;
}

}  // namespace epipe::kernels::cuda
