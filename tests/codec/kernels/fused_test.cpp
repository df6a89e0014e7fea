// The scalar kernels' multiply-add is std::fma's, bit for bit.
#include "epipe/codec/kernels/fused.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

namespace epipe::kernels {
namespace {

void expect_as_fma(float a, float b, float c) {
  const float expected = std::fma(a, b, c);
  const float actual = fused_in_double(a, b, c);
  if (std::isnan(expected) && std::isnan(actual)) return;
  ASSERT_EQ(std::bit_cast<std::uint32_t>(actual), std::bit_cast<std::uint32_t>(expected)) << a << " * " << b << " + " << c;
}

TEST(Fused, EqualsFmaForSpecialValues) {
  using Limits = std::numeric_limits<float>;
  std::vector<float> values;
  for (const float v : {0.0F, 1.0F, 1.0F + Limits::epsilon(), 3.0F, 0.1F, Limits::min(), Limits::denorm_min(), 3 * Limits::denorm_min(),
                        Limits::max(), Limits::infinity(), 8388609.0F, 0x1p-75F}) {
    values.push_back(v);
    values.push_back(-v);
  }
  values.push_back(Limits::quiet_NaN());
  for (const float a : values) {
    for (const float b : values) {
      for (const float c : values) expect_as_fma(a, b, c);
    }
  }
}

TEST(Fused, EqualsFmaForAnyBits) {
  std::mt19937 engine(7);
  const auto any = [&] { return std::bit_cast<float>(static_cast<std::uint32_t>(engine())); };
  for (int i = 0; i < 200'000; ++i) expect_as_fma(any(), any(), any());
}

// The sum nearly cancels, or one term is far below the last bit of the other: what rounding twice gets wrong.
TEST(Fused, EqualsFmaWhereTheSumIsCloseToATie) {
  std::mt19937 engine(8);
  const auto random = [&] { return static_cast<std::uint32_t>(engine()); };
  const auto near_one = [&] { return std::bit_cast<float>((random() & 0x807fffff) | ((127 - 8 + random() % 16) << 23)); };
  for (int i = 0; i < 200'000; ++i) {
    const float a = near_one();
    const float b = near_one();
    const auto product = std::bit_cast<std::uint32_t>(-a * b);
    expect_as_fma(a, b, std::bit_cast<float>(product ^ (random() & ((1U << random() % 24) - 1))));
    const float twelve_bits = std::bit_cast<float>(std::bit_cast<std::uint32_t>(a) & 0xfffff000);
    const float thirteen_bits = std::bit_cast<float>(std::bit_cast<std::uint32_t>(b) & 0xfffff800);
    expect_as_fma(twelve_bits, thirteen_bits, b * 0x1p-60F);
  }
}

}  // namespace
}  // namespace epipe::kernels
