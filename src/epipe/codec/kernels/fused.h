#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace epipe::kernels {

// std::fma in double arithmetic: a * b + c, rounded once. The product of two floats is exact there. Where the sum is not, its last bit is
// made odd on the side of the error, so that rounding to float cannot take it for a tie or an exact value (rounding to odd; 29 bits to
// spare are far more than the two this needs).
inline float fused_in_double(float a, float b, float c) {
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const double sum = product + static_cast<double>(c);
  const double rest = sum - product;
  const double error = (product - (sum - rest)) + (static_cast<double>(c) - rest);  // of the sum, exactly; NaN beside Inf
  auto bits = std::bit_cast<std::int64_t>(sum);
  if ((error < 0 || error > 0) && (bits & 1) == 0) bits += (error > 0) == (sum > 0) ? 1 : -1;
  return static_cast<float>(std::bit_cast<double>(bits));
}

// Without an instruction for it in the baseline std::fma is a call, and on a CPU without one it takes 140 ns against 5 ns for the above.
inline float fused(float a, float b, float c) {
#ifdef FP_FAST_FMAF
  return std::fma(a, b, c);
#else
  return fused_in_double(a, b, c);
#endif
}

}  // namespace epipe::kernels
