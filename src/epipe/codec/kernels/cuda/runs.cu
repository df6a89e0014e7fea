#include "epipe/codec/kernels/cuda/runs.h"

#include "epipe/codec/kernels/cuda/codes.cuh"

namespace epipe::kernels::cuda {
namespace {

constexpr Key kInfinityKey = 0x7f800000;

// One thread per run; runs beyond those sent repeat the last value.
__global__ void fit_kernel(const Key* ends, const KeyRange* range, RunShape shape, bool touching, Run* runs, Fault* fault) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= shape.runs()) return;
  if (range->max >= kInfinityKey || range->min <= ~kInfinityKey) {
    *fault = Fault::kNonFinite;
    return;
  }
  const auto low_key = [&](unsigned run) { return run == 0 ? range->min : touching ? ends[run - 1] : ends[2 * run]; };
  const auto high_key = [&](unsigned run) { return run + 1 == shape.sent ? range->max : touching ? ends[run] : ends[2 * run + 1]; };
  if (i >= shape.sent) {
    runs[i] = {key_value(high_key(shape.sent - 1)), 0.0F};
    return;
  }
  const float low = key_value(low_key(i));
  const float spread = __fsub_rn(key_value(high_key(i)), low);
  if (!isfinite(spread)) {
    *fault = Fault::kTooWide;
    return;
  }
  const auto levels = static_cast<float>((1U << shape.level_bits) - 1);
  float step = __fdiv_rn(spread, levels);
  while (!isfinite(__fmaf_rn(levels, step, low))) step = nextafterf(step, 0.0F);
  runs[i] = {low, step};
}

__global__ void read_kernel(const Run* sent, RunShape shape, Run* runs, Fault* fault) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= shape.runs()) return;
  const Run run = i < shape.sent ? sent[i] : Run{sent[shape.sent - 1].min, 0.0F};
  const auto levels = static_cast<float>((1U << shape.level_bits) - 1);
  if (!(run.step >= 0) || !isfinite(run.min) || !isfinite(__fmaf_rn(levels, run.step, run.min))) *fault = Fault::kBadRun;
  runs[i] = run;
}

// Up to 2^kSplit runs in registers; with kSplit = kMany in memory.
constexpr unsigned kMany = 4;

template <unsigned kSplit>
struct RunCode {
  const Run* runs;
  unsigned level_bits;
  unsigned count;
  Run own[kSplit == kMany ? 1 : 1U << kSplit];
  float top;

  __device__ void prepare(float*) {
    top = static_cast<float>((1U << level_bits) - 1);
    if constexpr (kSplit < kMany) {
      for (unsigned i = 0; i < 1U << kSplit; ++i) {
        own[i] = runs[i];
        if (own[i].step == 0.0F) own[i].step = 1.0F;
      }
    }
  }
  __device__ unsigned short code(float v, unsigned run, float low, float divisor) const {
    const float level = fminf(rintf(__fdiv_rn(__fsub_rn(v, low), divisor)), top);
    return static_cast<unsigned short>(run << level_bits | static_cast<unsigned>(level));
  }
  __device__ unsigned short operator()(float v) const {
    if constexpr (kSplit < kMany) {
      unsigned run = 0;
      Run r = own[0];
#pragma unroll
      for (unsigned i = 1; i < 1U << kSplit; ++i) {
        if (v >= own[i].min) {
          run = i;
          r = own[i];
        }
      }
      return code(v, run, r.min, r.step);
    } else {
      unsigned run = 0;
      for (unsigned bit = count / 2; bit > 0; bit /= 2) {
        if (v >= __ldg(&runs[run + bit].min)) run += bit;
      }
      const float step = __ldg(&runs[run].step);
      return code(v, run, __ldg(&runs[run].min), step == 0.0F ? 1.0F : step);
    }
  }
};

struct RunValue {
  const Run* runs;
  unsigned level_bits;
  unsigned count;
  const float* shared;

  __device__ void prepare(float* room) {
    shared = nullptr;
    if (2 * count > kCodeSharedFloats) return;
    for (unsigned i = threadIdx.x; i < count; i += blockDim.x) {
      room[2 * i] = runs[i].min;
      room[2 * i + 1] = runs[i].step;
    }
    __syncthreads();
    shared = room;
  }
  __device__ float operator()(std::uint32_t code) const {
    const unsigned run = code >> level_bits;
    const auto level = static_cast<float>(code & ((1U << level_bits) - 1));
    if (shared != nullptr) return __fmaf_rn(level, shared[2 * run + 1], shared[2 * run]);
    return __fmaf_rn(level, __ldg(&runs[run].step), __ldg(&runs[run].min));
  }
};

// The table in shared memory where it fits, else where it is. By all threads of a block.
__device__ const float* in_shared(const float* table, unsigned count, float* room) {
  if (count > kCodeSharedFloats) return table;
  for (unsigned i = threadIdx.x; i < count; i += blockDim.x) room[i] = table[i];
  __syncthreads();
  return room;
}

struct SearchCode {
  const float* thresholds;
  unsigned count;
  const float* table;

  __device__ void prepare(float* room) { table = in_shared(thresholds, count, room); }
  __device__ unsigned short operator()(float v) const {
    unsigned found = 0;
    for (unsigned bit = count / 2; bit > 0; bit /= 2) {
      if (v >= table[found + bit]) found += bit;
    }
    return static_cast<unsigned short>(found);
  }
};

struct TableValue {
  const float* entries;
  unsigned count;
  const float* table;

  __device__ void prepare(float* room) { table = in_shared(entries, count, room); }
  __device__ float operator()(std::uint32_t code) const { return table[min(code, count - 1)]; }
};

template <unsigned kSplit>
void encode_with(const float* x, std::size_t n, const Run* runs, const RunShape& shape, std::uint32_t* out, Stream stream) {
  RunCode<kSplit> code{};
  code.runs = runs;
  code.level_bits = shape.level_bits;
  code.count = shape.runs();
  pack(x, n, shape.level_bits + shape.split_bits, out, code, stream);
}

void fit(const Key* ends, const KeyRange* range, const RunShape& shape, bool touching, Run* runs, Fault* fault, Stream stream) {
  check(cudaMemsetAsync(fault, 0, sizeof(Fault), stream), "clearing of the fault");
  fit_kernel<<<(shape.runs() + 127) / 128, 128, 0, stream>>>(ends, range, shape, touching, runs, fault);
  check_launch("fit_runs");
}

}  // namespace

void fit_runs(const Key* ends, const KeyRange* range, const RunShape& shape, Run* runs, Fault* fault, Stream stream) {
  fit(ends, range, shape, false, runs, fault, stream);
}

void fit_touching_runs(const Key* inner, const KeyRange* range, const RunShape& shape, Run* runs, Fault* fault, Stream stream) {
  fit(inner, range, shape, true, runs, fault, stream);
}

void read_runs(const Run* sent, const RunShape& shape, Run* runs, Fault* fault, Stream stream) {
  check(cudaMemsetAsync(fault, 0, sizeof(Fault), stream), "clearing of the fault");
  read_kernel<<<(shape.runs() + 127) / 128, 128, 0, stream>>>(sent, shape, runs, fault);
  check_launch("read_runs");
}

void encode_runs(const float* x, std::size_t n, const Run* runs, const RunShape& shape, std::uint32_t* out, Stream stream) {
  switch (shape.split_bits) {
    case 0: return encode_with<0>(x, n, runs, shape, out, stream);
    case 1: return encode_with<1>(x, n, runs, shape, out, stream);
    case 2: return encode_with<2>(x, n, runs, shape, out, stream);
    default: return encode_with<kMany>(x, n, runs, shape, out, stream);
  }
}

void decode_runs(const std::uint32_t* in, std::size_t n, const Run* runs, const RunShape& shape, float* out, Stream stream) {
  unpack(in, n, shape.level_bits + shape.split_bits, out, RunValue{runs, shape.level_bits, shape.runs(), nullptr}, stream);
}

void encode_search(const float* x, std::size_t n, const float* thresholds, unsigned bits, std::uint32_t* out, Stream stream) {
  pack(x, n, bits, out, SearchCode{thresholds, 1U << bits, nullptr}, stream);
}

void decode_table(const std::uint32_t* in, std::size_t n, const float* table, unsigned count, unsigned bits, float* out, Stream stream) {
  unpack(in, n, bits, out, TableValue{table, count, nullptr}, stream);
}

}  // namespace epipe::kernels::cuda
