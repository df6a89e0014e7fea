#include "epipe/codec/kernels/cuda/factors.h"

#include "epipe/codec/kernels/cuda/launch.cuh"
#include "epipe/codec/kernels/scatter.h"

namespace epipe::kernels::cuda {
namespace {

constexpr unsigned kOrthoThreads = 512;
constexpr unsigned kEdge = 4;  // of a block of the Gram matrix

// gram [rank, rank] = x^T x, on and above the diagonal. A thread adds up every kOrthoThreads-th row.
__device__ void gram_matrix(const float* x, std::uint64_t rows, unsigned rank, double* gram) {
  __shared__ double room[kEdge * kEdge][kOrthoThreads / kWarp];
  for (unsigned first = 0; first < rank; first += kEdge) {
    for (unsigned second = first; second < rank; second += kEdge) {
      double dots[kEdge][kEdge] = {};
#pragma unroll 2
      for (std::uint64_t r = threadIdx.x; r < rows; r += kOrthoThreads) {
        const float* const row = x + r * rank;
        double a[kEdge];
        double b[kEdge];
#pragma unroll
        for (unsigned i = 0; i < kEdge; ++i) {
          a[i] = first + i < rank ? row[first + i] : 0.0F;
          b[i] = second + i < rank ? row[second + i] : 0.0F;
        }
#pragma unroll
        for (unsigned i = 0; i < kEdge * kEdge; ++i)
          dots[i / kEdge][i % kEdge] = fma(a[i / kEdge], b[i % kEdge], dots[i / kEdge][i % kEdge]);
      }
#pragma unroll
      for (unsigned i = 0; i < kEdge * kEdge; ++i) {
        double sum = dots[i / kEdge][i % kEdge];
        for (unsigned d = kWarp / 2; d > 0; d /= 2) sum += __shfl_xor_sync(kAllLanes, sum, d);
        if (threadIdx.x % kWarp == 0) room[i][threadIdx.x / kWarp] = sum;
      }
      __syncthreads();
      const unsigned i = first + threadIdx.x / kEdge;
      const unsigned j = second + threadIdx.x % kEdge;
      if (threadIdx.x < kEdge * kEdge && i < rank && j < rank) {
        double sum = 0;
        for (const double part : room[threadIdx.x]) sum += part;
        gram[i * rank + j] = sum;
      }
      __syncthreads();
    }
  }
}

// The Cholesky factor R of a Gram matrix R^T R in its place, with 1 / R_jj on the diagonal. A row of zeros where column j has nothing but
// rounding that those before it lack; false if there is any.
__device__ bool factorize(double* gram, unsigned rank) {
  constexpr double kNothingLeft = 1e-12;  // of a column's energy
  bool whole = true;
  for (unsigned j = 0; j < rank; ++j) {
    double* const row = gram + j * rank;
    const double energy = row[j];
    __syncthreads();
    for (unsigned i = j + threadIdx.x; i < rank; i += kOrthoThreads) {
      double rest = row[i];
      for (unsigned k = 0; k < j; ++k) rest = fma(-gram[k * rank + j], gram[k * rank + i], rest);
      row[i] = rest;
    }
    __syncthreads();
    const double rest = row[j];
    const bool nothing = isfinite(energy) && rest <= kNothingLeft * energy;
    const double scale = nothing ? 0.0 : isfinite(rest) ? rsqrt(rest) : static_cast<double>(NAN);
    __syncthreads();
    for (unsigned i = j + threadIdx.x; i < rank; i += kOrthoThreads) row[i] = i == j ? scale : row[i] * scale;
    __syncthreads();
    whole = whole && !nothing;
  }
  return whole;
}

// Cholesky QR: x <- x R^-1. Twice, because the first time leaves rounding times the condition of x; columns that depend on others are
// filled anew and take part the next time.
__global__ void __launch_bounds__(kOrthoThreads) orthonormal_kernel(float* x, std::uint64_t rows, unsigned rank) {
  constexpr unsigned kMostRounds = 5;
  extern __shared__ double gram[];
  float* const own = x + blockIdx.x * rows * rank;
  for (unsigned round = 0; round < kMostRounds; ++round) {
    gram_matrix(own, rows, rank, gram);
    const bool whole = factorize(gram, rank);
    for (std::uint64_t r = threadIdx.x; r < rows; r += kOrthoThreads) {
      float* const row = own + r * rank;
      for (unsigned j = 0; j < rank; ++j) {
        const double scale = gram[j * rank + j];
        double value = row[j];
        for (unsigned i = 0; i < j; ++i) value = fma(-gram[i * rank + j], static_cast<double>(row[i]), value);
        row[j] = scale == 0 ? scattered((static_cast<std::uint64_t>(round) * rank + j) * rows + r) : static_cast<float>(value * scale);
      }
    }
    if (whole && round > 0) return;
    __syncthreads();
  }
}

constexpr unsigned kMostJacobiThreads = 1024;

// The sum over a warp, the same in every lane.
__device__ float warp_total(float value) {
  for (unsigned d = kWarp / 2; d > 0; d /= 2) value += __shfl_xor_sync(kAllLanes, value, d);
  return value;
}

__device__ float energy_of(const float* row, unsigned columns) {
  float sum = 0;
#pragma unroll 4
  for (unsigned i = threadIdx.x % kWarp; i < columns; i += kWarp) sum = fmaf(row[i], row[i], sum);
  return warp_total(sum);
}

// Rotates two rows within their plane until they are orthogonal, and keeps account of their energies; false if they are. A warp. The
// angle may be off by some rounding: the next sweep sees to it.
__device__ bool rotate(float* a, float* b, float& a_energy, float& b_energy, unsigned columns) {
  constexpr float kAngle = 1e-6F;     // orthogonal in float32
  constexpr float kNothing = 1e-14F;  // where the largest value is between 0.5 and 1
  const unsigned lane = threadIdx.x % kWarp;
  const float aa = a_energy;
  const float bb = b_energy;
  float ab = 0;
#pragma unroll 4
  for (unsigned i = lane; i < columns; i += kWarp) ab = fmaf(a[i], b[i], ab);
  ab = warp_total(ab);
  if (ab * ab <= kAngle * kAngle * aa * bb || fabsf(ab) <= kNothing) return false;
  const float zeta = __fdividef(bb - aa, 2 * ab);
  const float tangent = copysignf(__fdividef(1.0F, fabsf(zeta) + __fsqrt_rn(fmaf(zeta, zeta, 1.0F))), zeta);
  const float cosine = rsqrtf(fmaf(tangent, tangent, 1.0F));
  const float sine = cosine * tangent;
#pragma unroll 4
  for (unsigned i = lane; i < columns; i += kWarp) {
    const float u = a[i];
    const float v = b[i];
    a[i] = fmaf(cosine, u, -sine * v);
    b[i] = fmaf(sine, u, cosine * v);
  }
  __syncwarp();  // all have read them
  if (lane == 0) {
    a_energy = fmaxf(aa - tangent * ab, 0.0F);
    b_energy = bb + tangent * ab;
  }
  return true;
}

// One-sided Jacobi: a block per matrix, in shared memory, rotates pairs of rows until all are orthogonal. Their lengths are the singular
// values then, their directions the right vectors. Pairs that share no row go at the same time: those of a round-robin tournament.
__global__ void __launch_bounds__(kMostJacobiThreads)
    principal_kernel(const float* __restrict__ x, unsigned rows, unsigned columns, unsigned kept, float* values, float* vectors) {
  constexpr int kMostSweeps = 30;
  extern __shared__ float room[];
  __shared__ unsigned largest_bits;
  const unsigned even = rows + rows % 2;  // the last one is 0 where rows are odd
  float* const energies = room + even * columns;
  const unsigned warp = threadIdx.x / kWarp;
  const unsigned warps = blockDim.x / kWarp;
  const unsigned lane = threadIdx.x % kWarp;

  const std::uint64_t matrix = blockIdx.x;
  const float* const own = x + matrix * rows * columns;
  if (threadIdx.x == 0) largest_bits = 0;
  __syncthreads();
  float largest = 0;
  for (unsigned i = threadIdx.x; i < rows * columns; i += blockDim.x) largest = fmaxf(largest, fabsf(own[i]));
  atomicMax(&largest_bits, __float_as_uint(largest));
  __syncthreads();
  int exponent = 0;
  frexpf(__uint_as_float(largest_bits), &exponent);
  for (unsigned i = threadIdx.x; i < even * columns; i += blockDim.x) room[i] = i < rows * columns ? ldexpf(own[i], -exponent) : 0.0F;
  __syncthreads();

  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    for (unsigned r = warp; r < even; r += warps) {
      const float energy = energy_of(room + r * columns, columns);
      if (lane == 0) energies[r] = energy;
    }
    __syncthreads();
    bool turned = false;
    for (unsigned round = 0; round < even - 1; ++round) {
      for (unsigned pair = warp; pair < even / 2; pair += warps) {
        const unsigned a = pair == 0 ? even - 1 : (round + pair) % (even - 1);
        const unsigned b = (round + even - 1 - pair) % (even - 1);
        turned = rotate(room + a * columns, room + b * columns, energies[a], energies[b], columns) || turned;
      }
      __syncthreads();
    }
    if (__syncthreads_or(static_cast<int>(turned)) == 0) break;
  }

  for (unsigned r = warp; r < even; r += warps) {
    const float energy = energy_of(room + r * columns, columns);
    if (lane == 0) energies[r] = energy;
  }
  __syncthreads();
  for (unsigned r = warp; r < rows; r += warps) {
    const float energy = energies[r];
    const float length = sqrtf(energy);
    unsigned before = 0;  // of those with more
    for (unsigned other = lane; other < rows; other += kWarp) {
      before += energies[other] > energy || (energies[other] == energy && other < r) ? 1 : 0;
    }
    const unsigned place = __reduce_add_sync(kAllLanes, before);
    if (place >= kept) continue;
    if (lane == 0) values[matrix * kept + place] = ldexpf(length, exponent);
    float* const to = vectors + matrix * columns * kept + place;
    for (unsigned i = lane; i < columns; i += kWarp) to[i * kept] = length > 0 ? room[r * columns + i] / length : 0.0F;
  }
}

constexpr std::uint64_t kMostBlocks = 0x7fffffff;  // of a grid
constexpr std::size_t kStaticRoom = 4096;          // of shared memory, at most

std::size_t most_shared_memory() {
  int device = 0;
  int most = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "shared memory of a block");
  return static_cast<std::size_t>(most);
}

// As much as there is, whatever the launch needs: other threads launch the same kernel.
template <typename Kernel>
void allow_shared_memory(Kernel* kernel) {
  const auto bytes = static_cast<int>(most_shared_memory() - kStaticRoom);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "shared memory");
}

std::size_t gram_room(std::size_t rank) { return rank * rank * sizeof(double); }
std::size_t principal_room(std::uint64_t rows, std::uint64_t columns) { return (rows + rows % 2) * (columns + 1) * sizeof(float); }

}  // namespace

bool orthonormal_columns_fit(std::uint64_t batch, unsigned rank) {
  return batch <= kMostBlocks && gram_room(rank) + kStaticRoom <= most_shared_memory();
}

void orthonormal_columns(float* x, std::uint64_t batch, std::uint64_t rows, unsigned rank, Stream stream) {
  allow_shared_memory(orthonormal_kernel);
  orthonormal_kernel<<<static_cast<unsigned>(batch), kOrthoThreads, gram_room(rank), stream>>>(x, rows, rank);
  check_launch("orthonormal_columns");
}

bool principal_vectors_fit(std::uint64_t batch, std::uint64_t rows, std::uint64_t columns) {
  const std::size_t most = most_shared_memory();
  return batch <= kMostBlocks && columns < most && principal_room(rows, columns) + kStaticRoom <= most;
}

void principal_vectors(const float* x, std::uint64_t batch, std::uint64_t rows, std::uint64_t columns, unsigned kept, float* values,
                       float* vectors, Stream stream) {
  const std::size_t bytes = principal_room(rows, columns);
  allow_shared_memory(principal_kernel);
  const auto pairs = static_cast<unsigned>((rows + 1) / 2);
  const unsigned threads = std::min(kMostJacobiThreads, kWarp * pairs);
  principal_kernel<<<static_cast<unsigned>(batch), threads, bytes, stream>>>(x, static_cast<unsigned>(rows), static_cast<unsigned>(columns),
                                                                             kept, values, vectors);
  check_launch("principal_vectors");
}

}  // namespace epipe::kernels::cuda
