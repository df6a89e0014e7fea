#include "epipe/codec/kernels/cuda/means.h"

#include "epipe/codec/kernels/cuda/launch.cuh"

namespace epipe::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kMapsPerBlock = kThreads / kWarp;
constexpr unsigned kLoads = 8;  // on their way together

// A warp per map, a lane per interleaved sum.
__global__ void __launch_bounds__(kThreads)
    sum_maps_kernel(const float* __restrict__ x, std::uint64_t maps, std::uint64_t map, double* __restrict__ sums) {
  const std::uint64_t m = static_cast<std::uint64_t>(blockIdx.x) * kMapsPerBlock + threadIdx.x / kWarp;
  if (m >= maps) return;
  const unsigned lane = threadIdx.x % kWarp;
  const float* const values = x + m * map;
  float own = 0;
  std::uint64_t i = lane;
  for (; i + (kLoads - 1) * kWarp < map; i += kLoads * kWarp) {
    float some[kLoads];
#pragma unroll
    for (unsigned k = 0; k < kLoads; ++k) some[k] = values[i + k * kWarp];
#pragma unroll
    for (unsigned k = 0; k < kLoads; ++k) own = __fadd_rn(own, some[k]);
  }
  for (; i < map; i += kWarp) own = __fadd_rn(own, values[i]);
  double sum = 0;
  for (unsigned k = 0; k < kWarp; ++k) sum = __dadd_rn(sum, static_cast<double>(__shfl_sync(kAllLanes, own, static_cast<int>(k))));
  if (lane == 0) sums[m] = sum;
}

// A thread per channel.
__global__ void means_to_shifts_kernel(const double* __restrict__ sums, unsigned samples, unsigned channels, double values,
                                       float* __restrict__ means) {
  const unsigned c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= channels) return;
  double sum = 0;
#pragma unroll 16
  for (unsigned n = 0; n < samples; ++n) sum = __dadd_rn(sum, sums[static_cast<std::uint64_t>(n) * channels + c]);
  const float shift = __double2float_rn(__dsub_rn(static_cast<double>(means[c]), __ddiv_rn(sum, values)));
  means[c] = isfinite(shift) ? shift : 0.0F;
}

__device__ void add(float& value, float shift) { value = __fadd_rn(value, shift); }
__device__ void add(float4& values, float shift) {
  values = {__fadd_rn(values.x, shift), __fadd_rn(values.y, shift), __fadd_rn(values.z, shift), __fadd_rn(values.w, shift)};
}

// By one float, or by four where maps consist of whole ones.
template <typename Pack>
__global__ void __launch_bounds__(kThreads) add_to_channels_kernel(Pack* __restrict__ x, std::uint64_t maps, std::uint64_t packs,
                                                                   const float* __restrict__ shifts, unsigned channels) {
  const std::uint64_t stride = static_cast<std::uint64_t>(gridDim.x) * kThreads;
  for (std::uint64_t m = blockIdx.y; m < maps; m += gridDim.y) {
    const float shift = shifts[m % channels];
    Pack* const own = x + m * packs;
    for (std::uint64_t i = static_cast<std::uint64_t>(blockIdx.x) * kThreads + threadIdx.x; i < packs; i += stride) add(own[i], shift);
  }
}

template <typename Pack>
void launch_add(float* x, const Maps& maps, const float* shifts, Stream stream) {
  constexpr std::uint64_t kMostRows = 65535;  // of a grid
  const std::uint64_t packs = maps.values * sizeof(float) / sizeof(Pack);
  const dim3 grid(grid_for(packs, 4 * kThreads), static_cast<unsigned>(std::min(maps.count(), kMostRows)));
  add_to_channels_kernel<<<grid, kThreads, 0, stream>>>(reinterpret_cast<Pack*>(x), maps.count(), packs, shifts,
                                                        static_cast<unsigned>(maps.channels));
  check_launch("add_to_channels");
}

}  // namespace

void sum_maps(const float* x, const Maps& maps, double* sums, Stream stream) {
  const auto blocks = static_cast<unsigned>((maps.count() + kMapsPerBlock - 1) / kMapsPerBlock);
  sum_maps_kernel<<<blocks, kThreads, 0, stream>>>(x, maps.count(), maps.values, sums);
  check_launch("sum_maps");
}

void means_to_shifts(const double* sums, const Maps& maps, float* means, Stream stream) {
  constexpr unsigned kFew = 64;
  means_to_shifts_kernel<<<static_cast<unsigned>((maps.channels + kFew - 1) / kFew), kFew, 0, stream>>>(
      sums, static_cast<unsigned>(maps.samples), static_cast<unsigned>(maps.channels),
      static_cast<double>(maps.samples) * static_cast<double>(maps.values), means);
  check_launch("means_to_shifts");
}

void add_to_channels(float* x, const Maps& maps, const float* shifts, Stream stream) {
  const bool whole = maps.values % 4 == 0 && reinterpret_cast<std::uintptr_t>(x) % sizeof(float4) == 0;
  whole ? launch_add<float4>(x, maps, shifts, stream) : launch_add<float>(x, maps, shifts, stream);
}

}  // namespace epipe::kernels::cuda
