// Every SIMD kernel gives the bits of the scalar one.
#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "epipe/codec/kernels/kernels.h"
#include "support/tensors.h"

namespace epipe::kernels {
namespace {

using testing::hard_values;
using testing::normal_values;

class Simd : public ::testing::TestWithParam<const Kernels*> {
 protected:
  void SetUp() override {
    if (GetParam() == nullptr) GTEST_SKIP() << "this CPU does not have the instructions";
  }
  const Kernels& simd() const { return *GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Avx2, Simd, ::testing::Values(avx2()));
INSTANTIATE_TEST_SUITE_P(Avx512, Simd, ::testing::Values(avx512()));

// Around every border: lanes, groups, blocks.
const std::vector<std::size_t> kRunSizes = {1, 7, 8, 15, 16, 63, 64, 65, 127, 1000, 1023, 1024, 1025, 4096, 5000};

std::vector<Run> runs_for(const std::vector<float>& x, unsigned level_bits, unsigned split_bits) {
  std::vector<float> sorted = x;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t count = std::size_t{1} << split_bits;
  std::vector<Run> runs;
  for (std::size_t i = 0; i < count; ++i) {
    const float low = sorted[i * sorted.size() / count];
    const float high = sorted[std::min(sorted.size() - 1, (i + 1) * sorted.size() / count)];
    runs.push_back({low, (high - low) / static_cast<float>((1U << level_bits) - 1)});
  }
  return runs;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](float p, float q) { return std::bit_cast<std::uint32_t>(p) == std::bit_cast<std::uint32_t>(q); });
}

TEST_P(Simd, EncodesAndDecodesRunsLikeTheReferenceForEveryWidth) {
  for (const std::size_t n : kRunSizes) {
    for (const auto& [name, x] : hard_values(n, static_cast<std::uint32_t>(n))) {
      for (unsigned level_bits = 1; level_bits <= 16; ++level_bits) {
        for (const unsigned split_bits : {0U, 1U, 2U, 3U, 4U, 5U, 9U}) {
          if (level_bits + split_bits > 16) continue;
          const RunTable runs(runs_for(x, level_bits, split_bits), level_bits);
          const std::size_t bytes = packed_bytes(n, runs.bits());
          Bytes expected(bytes + 16, std::byte{0xab});
          Bytes actual = expected;
          scalar().encode_runs(x, runs, MutableBytes(expected).first(bytes));
          simd().encode_runs(x, runs, MutableBytes(actual).first(bytes));
          ASSERT_EQ(actual, expected) << name << ' ' << n << " values, " << level_bits << '+' << split_bits << " bits";
          std::vector<float> expected_values(n);
          std::vector<float> actual_values(n);
          scalar().decode_runs(ByteView(expected).first(bytes), runs, expected_values);
          simd().decode_runs(ByteView(expected).first(bytes), runs, actual_values);
          ASSERT_TRUE(same_bits(actual_values, expected_values)) << name << ' ' << n << ' ' << level_bits << '+' << split_bits;
        }
      }
    }
  }
}

TEST_P(Simd, SearchesAndLooksUpLikeTheReference) {
  for (const std::size_t n : kRunSizes) {
    const auto x = normal_values(n, 5);
    for (const unsigned bits : {1U, 2U, 3U, 4U, 5U, 8U, 9U, 11U, 16U}) {
      std::vector<float> table = normal_values(std::size_t{1} << bits, bits);
      std::sort(table.begin(), table.end());
      Bytes expected(packed_bytes(n, bits));
      Bytes actual(expected.size());
      scalar().encode_search(x, table, bits, expected);
      simd().encode_search(x, table, bits, actual);
      ASSERT_EQ(actual, expected) << n << " values, " << bits << " bits";
      table.resize(table.size() - table.size() / 4);  // codes beyond the table are possible in hostile payloads
      std::vector<float> expected_values(n);
      std::vector<float> actual_values(n);
      scalar().decode_table(expected, table, bits, expected_values);
      simd().decode_table(expected, table, bits, actual_values);
      ASSERT_TRUE(same_bits(actual_values, expected_values)) << n << ' ' << bits;
    }
  }
}

TEST_P(Simd, DecodesPayloadsThatStartAtAnOddAddress) {
  const auto x = normal_values(1000, 3);
  for (const unsigned level_bits : {3U, 8U, 12U, 16U}) {
    const RunTable runs(runs_for(x, level_bits, 0), level_bits);
    const std::size_t bytes = packed_bytes(x.size(), level_bits);
    Bytes storage(bytes + 1);
    simd().encode_runs(x, runs, MutableBytes(storage).subspan(1));
    std::vector<float> expected(x.size());
    std::vector<float> actual(x.size());
    scalar().decode_runs(ByteView(storage).subspan(1), runs, expected);
    simd().decode_runs(ByteView(storage).subspan(1), runs, actual);
    EXPECT_TRUE(same_bits(actual, expected)) << level_bits;
  }
}

TEST_P(Simd, ConvertsEverySixteenBitPatternLikeTheReference) {
  Bytes all(2 * 65536);
  for (std::size_t i = 0; i < 65536; ++i) store(MutableBytes(all), 2 * i, static_cast<std::uint16_t>(i));
  for (const auto load : {&Kernels::load_fp16, &Kernels::load_bf16}) {
    for (std::size_t block = 0; block < 65536; block += 64) {  // blocks with Inf or NaN are refused by both
      const ByteView in = ByteView(all).subspan(2 * block, 128);
      std::vector<float> expected(64);
      std::vector<float> actual(64);
      const bool fits = (scalar().*load)(in, expected);
      ASSERT_EQ((simd().*load)(in, actual), fits) << block;
      ASSERT_TRUE(!fits || same_bits(actual, expected)) << block;
    }
  }
}

TEST_P(Simd, RoundsToSixteenBitsLikeTheReference) {
  for (const auto store_values : {&Kernels::store_fp16, &Kernels::store_bf16, &Kernels::store_fp32}) {
    for (const std::size_t n : kRunSizes) {
      for (const auto& [name, x] : hard_values(n, 11)) {
        Bytes expected(4 * n, std::byte{0});
        Bytes actual(4 * n, std::byte{0});
        const bool fits = (scalar().*store_values)(x, expected);
        ASSERT_EQ((simd().*store_values)(x, actual), fits) << name << ' ' << n;
        ASSERT_TRUE(!fits || actual == expected) << name << ' ' << n;
      }
    }
  }
}

TEST_P(Simd, AgreesOnWhatOverflows) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float largest = std::numeric_limits<float>::max();
  for (const float special : {65504.0F, 65519.99F, 65520.0F, -65520.0F, 65536.0F, 3.3895314e38F, 3.3961775e38F, largest, infinity,
                              -infinity, std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN()}) {
    for (const std::size_t at : {0U, 63U, 64U, 99U}) {
      std::vector<float> x(100, 1.0F);
      x[at] = special;
      Bytes out(400);
      EXPECT_EQ(simd().store_fp16(x, out), scalar().store_fp16(x, out)) << special;
      EXPECT_EQ(simd().store_bf16(x, out), scalar().store_bf16(x, out)) << special;
      EXPECT_EQ(simd().store_fp32(x, out), scalar().store_fp32(x, out)) << special;
      std::vector<float> back(100);
      EXPECT_EQ(simd().load_fp32(out, back), scalar().load_fp32(out, back)) << special;
    }
  }
}

TEST_P(Simd, FindsTheSameRangeAndBrackets) {
  for (const std::size_t n : kRunSizes) {
    for (const auto& [name, x] : hard_values(n, 23)) {
      for (const KeyOf of : {KeyOf::kValue, KeyOf::kMagnitude}) {
        const KeyRange range = scalar().key_range(x, of);
        const KeyRange simd_range = simd().key_range(x, of);
        ASSERT_EQ(simd_range.min, range.min) << name;
        ASSERT_EQ(simd_range.max, range.max) << name;
        for (std::size_t count = 1; count <= kMaxBrackets; ++count) {
          std::vector<Bracket> expected;
          std::vector<Bracket> actual;
          std::vector<std::vector<Key>> storage(2 * count, std::vector<Key>(n + 128));
          for (std::size_t b = 0; b < count; ++b) {
            const double width = static_cast<double>(range.max) - static_cast<double>(range.min);
            const auto low = static_cast<Key>(range.min + width * static_cast<double>(b) / static_cast<double>(count));
            const auto high = static_cast<Key>(range.min + width * (static_cast<double>(b) + 0.7) / static_cast<double>(count));
            expected.push_back({low, high, storage[2 * b]});
            actual.push_back({low, high, storage[2 * b + 1]});
          }
          const BracketScan scan = scalar().scan_brackets(x, of, expected);
          const BracketScan simd_scan = simd().scan_brackets(x, of, actual);
          ASSERT_TRUE(scan.fits && simd_scan.fits);
          ASSERT_EQ(simd_scan.range.min, range.min);
          ASSERT_EQ(simd_scan.range.max, range.max);
          for (std::size_t b = 0; b < count; ++b) {
            ASSERT_EQ(actual[b].below_low, expected[b].below_low) << name << ' ' << n;
            ASSERT_EQ(actual[b].upto_low, expected[b].upto_low) << name << ' ' << n;
            ASSERT_EQ(actual[b].upto_high, expected[b].upto_high) << name << ' ' << n;
            ASSERT_EQ(actual[b].inside_count, expected[b].inside_count) << name << ' ' << n;
            ASSERT_TRUE(std::equal(actual[b].inside.begin(), actual[b].inside.begin() + static_cast<std::ptrdiff_t>(actual[b].inside_count),
                                   expected[b].inside.begin()));
          }
        }
      }
    }
  }
}

TEST_P(Simd, GivesUpWhenTheBracketsCatchTooMuch) {
  const auto x = normal_values(10'000, 1);
  std::vector<Key> room(200);
  std::vector<Bracket> brackets = {{std::numeric_limits<Key>::min(), std::numeric_limits<Key>::max(), room}};
  EXPECT_FALSE(simd().scan_brackets(x, KeyOf::kValue, brackets).fits);
}

}  // namespace
}  // namespace epipe::kernels
