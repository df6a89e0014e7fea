#include "epipe/codec/kernels/cuda/launch.cuh"
#include "epipe/codec/kernels/cuda/reflect.h"

namespace epipe::kernels::cuda {
namespace {

constexpr unsigned kWarps = 4;

static_assert(ReflectionRows::kSums == kWarp, "a lane for each of the interleaved sums");

// A reflection in registers, value c in lane c % 32, filled up with zeros, which change no value of a row and no sum.
template <unsigned kRoom>
struct Reflection {
  float values[kRoom];

  // Zeros for a null pointer.
  __device__ void load(const float* __restrict__ row, unsigned length) {
#pragma unroll
    for (unsigned i = 0; i < kRoom; ++i) {
      const unsigned c = i * kWarp + threadIdx.x % kWarp;
      values[i] = row != nullptr && c < length ? __ldg(row + c) : 0.0F;
    }
  }
};

// A warp per row, which its lanes hold in registers like a reflection. A lane's sum goes through its values in ascending order, and the
// lanes' sums are added in halves, as on the host. The next reflection is on its way while one is applied, where both have room.
template <unsigned kRoom>
__global__ void __launch_bounds__(kWarps* kWarp)
    reflect_kernel(const float* x, std::uint64_t rows, unsigned features, unsigned count, unsigned length, const float* __restrict__ w,
                   const float* __restrict__ scales, bool backwards, float* y) {
  const unsigned lane = threadIdx.x % kWarp;
  const std::uint64_t row = static_cast<std::uint64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (row >= rows) return;
  float values[kRoom];
  bool any = false;
#pragma unroll
  for (unsigned i = 0; i < kRoom; ++i) {
    const unsigned c = i * kWarp + lane;
    values[i] = c < features ? x[row * features + c] : 0.0F;
    any |= values[i] != 0;
  }
  any = __any_sync(kAllLanes, any);
  const auto place = [&](unsigned j) { return backwards ? count - 1 - j : j; };
  const auto start = [&](unsigned j) { return any && j < count ? w + static_cast<std::uint64_t>(place(j)) * length : nullptr; };
  constexpr bool kAhead = kRoom <= 64;
  Reflection<kRoom> next;
  if (kAhead) next.load(start(0), length);
  for (unsigned j = 0; any && j < count; ++j) {
    const float scale = __ldg(scales + place(j));
    if (!kAhead) next.load(start(j), length);
    const Reflection<kRoom> own = next;
    if (kAhead) next.load(start(j + 1), length);
    float sum = 0;
#pragma unroll
    for (unsigned i = 0; i < kRoom; ++i) sum = __fmaf_rn(own.values[i], values[i], sum);
    for (unsigned half = kWarp / 2; half > 0; half /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(kAllLanes, sum, half));
    const float amount = -__fmul_rn(scale, sum);
#pragma unroll
    for (unsigned i = 0; i < kRoom; ++i) values[i] = __fmaf_rn(own.values[i], amount, values[i]);
  }
#pragma unroll
  for (unsigned i = 0; i < kRoom; ++i) {
    const unsigned c = i * kWarp + lane;
    if (c < features) y[row * features + c] = any ? values[i] : 0.0F;
  }
}

template <unsigned kRoom>
void launch(const float* x, std::uint64_t rows, unsigned features, const ReflectionRows& by, bool backwards, float* y, Stream stream) {
  const auto blocks = static_cast<unsigned>((rows + kWarps - 1) / kWarps);
  reflect_kernel<kRoom><<<blocks, kWarps * kWarp, 0, stream>>>(x, rows, features, static_cast<unsigned>(by.count),
                                                              static_cast<unsigned>(by.length), by.rows, by.scales, backwards, y);
  check_launch("reflect_rows");
}

}  // namespace

void reflect_rows(const float* x, std::uint64_t rows, unsigned features, const ReflectionRows& reflections, bool backwards, float* y,
                  Stream stream) {
  if (features > kMostReflected) throw std::logic_error("more features than a warp can hold");
  if (rows == 0) return;
  if (features <= 8 * kWarp) return launch<8>(x, rows, features, reflections, backwards, y, stream);
  if (features <= 16 * kWarp) return launch<16>(x, rows, features, reflections, backwards, y, stream);
  if (features <= 24 * kWarp) return launch<24>(x, rows, features, reflections, backwards, y, stream);
  if (features <= 32 * kWarp) return launch<32>(x, rows, features, reflections, backwards, y, stream);
  if (features <= 40 * kWarp) return launch<40>(x, rows, features, reflections, backwards, y, stream);
  if (features <= 64 * kWarp) return launch<64>(x, rows, features, reflections, backwards, y, stream);
  return launch<128>(x, rows, features, reflections, backwards, y, stream);
}

}  // namespace epipe::kernels::cuda
