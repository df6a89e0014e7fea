#pragma once

#include <cstddef>
#include <cstring>

namespace epipe::kernels {

// to[k][to_at + lane] = from[lane][from_at + k] for 4 lanes and 4 k.
inline void transpose_4x4(const float* const* from, std::size_t at, float* const* to, std::size_t to_at) {
  using Four = float __attribute__((vector_size(16)));
  Four a, b, c, d;
  std::memcpy(&a, from[0] + at, sizeof a);
  std::memcpy(&b, from[1] + at, sizeof b);
  std::memcpy(&c, from[2] + at, sizeof c);
  std::memcpy(&d, from[3] + at, sizeof d);
  const Four ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Four ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Four cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Four cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  a = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
  b = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
  c = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
  d = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
  std::memcpy(to[0] + to_at, &a, sizeof a);
  std::memcpy(to[1] + to_at, &b, sizeof b);
  std::memcpy(to[2] + to_at, &c, sizeof c);
  std::memcpy(to[3] + to_at, &d, sizeof d);
}

}  // namespace epipe::kernels
