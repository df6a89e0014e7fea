#pragma once

#include <torch/types.h>

#include <cstdint>
#include <utility>

namespace epipe::codec {

// Factors P [n, l, r] and Q [n, c, r] of X [n, c, l], from a P that is any matrix of that shape:
//   for each iteration:  P <- orthonormal(P);  Q <- orthonormal(X P);  P <- factor(Q), which is X^T Q
// Doing it every time spans the same space as doing it once and does not overflow.
template <typename Orthonormal, typename Factor>
std::pair<torch::Tensor, torch::Tensor> power_iteration(const torch::Tensor& x, torch::Tensor p, Orthonormal&& orthonormal,
                                                        Factor&& factor) {
  constexpr int kIterations = 2;
  torch::Tensor q;
  for (int i = 0; i < kIterations; ++i) {
    q = orthonormal(torch::matmul(x, orthonormal(p))).contiguous();
    p = factor(q);
  }
  return {p, q};
}

// The P of a first call. Fixed values in [-1, 1) that look random: every encoder starts from the same ones.
torch::Tensor first_p(std::int64_t n, std::int64_t l, std::int64_t r);

// `warm`, the P of the last call, if it has the right shape.
inline torch::Tensor start_of_iteration(const torch::Tensor& warm, std::int64_t n, std::int64_t l, std::int64_t r) {
  return warm.defined() && warm.sizes() == torch::IntArrayRef({n, l, r}) ? warm : first_p(n, l, r);
}

// Its name in an encoder's state.
inline constexpr const char* kWarmP = "p";

}  // namespace epipe::codec
