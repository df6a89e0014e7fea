// Order statistics equal those of a real sort, for any values, ranks, instruction set and number of threads.
#include "epipe/codec/kernels/order.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "epipe/codec/kernels/key.h"
#include "epipe/codec/kernels/sample.h"
#include "support/tensors.h"

namespace epipe::kernels {
namespace {

using testing::hard_values;
using testing::normal_values;

std::vector<Key> sorted_keys(const std::vector<float>& x, KeyOf of) {
  std::vector<Key> keys;
  for (const float v : x) keys.push_back(key_of(v, of));
  std::sort(keys.begin(), keys.end());
  return keys;
}

std::vector<std::size_t> run_ranks(std::size_t n, std::size_t runs) {
  std::vector<std::size_t> ranks;
  for (std::size_t i = 0; i < runs; ++i) {
    const std::size_t begin = i * n / runs;
    const std::size_t end = (i + 1) * n / runs;
    if (begin == end) continue;
    ranks.push_back(begin);
    ranks.push_back(end - 1);
  }
  return ranks;
}

std::vector<const Kernels*> available() {
  std::vector<const Kernels*> all = {&scalar()};
  for (const Kernels* k : {avx2(), avx512()}) {
    if (k != nullptr) all.push_back(k);
  }
  return all;
}

void expect_sorted_order(const std::string& what, const std::vector<float>& x, const std::vector<std::size_t>& ranks, KeyOf of,
                         const Kernels& kernels, ThreadPool* pool) {
  const auto sorted = sorted_keys(x, of);
  const Order order = order_statistics(x, of, ranks, kernels, pool);
  ASSERT_EQ(order.range.min, sorted.front()) << what;
  ASSERT_EQ(order.range.max, sorted.back()) << what;
  ASSERT_EQ(order.keys.size(), ranks.size()) << what;
  for (std::size_t r = 0; r < ranks.size(); ++r) ASSERT_EQ(order.keys[r], sorted[ranks[r]]) << what << ", rank " << ranks[r];
}

TEST(OrderStatistics, EqualASortForHardValuesOfEverySize) {
  ThreadPool pool(2);
  for (const std::size_t n : {1U, 2U, 3U, 63U, 64U, 65U, 1000U, 32767U, 32768U, 70'001U, 200'000U}) {
    for (const auto& [name, x] : hard_values(n, static_cast<std::uint32_t>(n))) {
      for (const std::size_t runs : {1U, 2U, 4U, 8U, 16U, 256U}) {
        for (const KeyOf of : {KeyOf::kValue, KeyOf::kMagnitude}) {
          const std::string what = name + ", " + std::to_string(n) + " values, " + std::to_string(runs) + " runs";
          expect_sorted_order(what, x, run_ranks(n, runs), of, best(), n % 2 == 0 ? &pool : nullptr);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(OrderStatistics, EqualASortOnEveryInstructionSet) {
  for (const Kernels* kernels : available()) {
    for (const auto& [name, x] : hard_values(50'000, 9)) {
      expect_sorted_order(name + " on " + std::string(kernels->name), x, run_ranks(x.size(), 4), KeyOf::kValue, *kernels, nullptr);
      if (HasFatalFailure()) return;
    }
  }
}

// The sample sees only one kind of value and puts every bracket in the wrong place; the histograms must save it.
TEST(OrderStatistics, AreExactWhenTheSampleIsMisled) {
  const std::size_t n = 100'000;
  const std::size_t m = bracket_sample_size(n);
  std::vector<float> x = normal_values(n, 4, 1000, 1);
  for (std::size_t j = 0; j < m; ++j) x[sample_index(j, m, n)] = -5.0F;
  expect_sorted_order("misled", x, run_ranks(n, 4), KeyOf::kValue, best(), nullptr);
}

// Most values lie strictly inside one bracket, more than it has room for.
TEST(OrderStatistics, AreExactWhenABracketOverflows) {
  const std::size_t n = 100'000;
  const std::size_t m = bracket_sample_size(n);
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = 0.5F + static_cast<float>(i) * 1e-7F;
  for (std::size_t j = 0; j < m; ++j) x[sample_index(j, m, n)] = j % 2 == 0 ? 0.0F : 1.0F;
  expect_sorted_order("overflow", x, run_ranks(n, 2), KeyOf::kValue, best(), nullptr);
}

TEST(OrderStatistics, ReportARangeThatIsNotFinite) {
  for (const std::size_t n : {10U, 100'000U}) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      std::vector<float> x = normal_values(n, 8);
      x[n / 3] = bad;
      EXPECT_FALSE(all_finite(order_statistics(x, KeyOf::kValue, run_ranks(n, 4), best(), nullptr).range)) << bad;
    }
  }
}

TEST(Sample, TouchesEveryPartOfTheTensorOnce) {
  for (const auto& [m, n] : {std::pair<std::size_t, std::size_t>{16, 1000}, {1000, 1000}, {7, 1'000'003}, {16384, 12'845'056}}) {
    std::set<std::size_t> seen;
    for (std::size_t j = 0; j < m; ++j) {
      const std::size_t index = sample_index(j, m, n);
      EXPECT_GE(index, j * n / m);
      EXPECT_LT(index, (j + 1) * n / m);
      seen.insert(index);
    }
    EXPECT_EQ(seen.size(), m);
  }
}

TEST(Sample, DoesNotLineUpWithTheWidthOfAMap) {
  std::set<std::size_t> columns;
  for (std::size_t j = 0; j < 1024; ++j) columns.insert(sample_index(j, 1024, 1024 * 112) % 112);
  EXPECT_GT(columns.size(), 100U);
}

TEST(SortKeys, SortsAnyKeys) {
  for (const auto& [name, x] : hard_values(3000, 2)) {
    std::vector<Key> keys;
    for (const float v : x) keys.push_back(value_key(v));
    sort_keys(keys);
    EXPECT_EQ(keys, sorted_keys(x, KeyOf::kValue)) << name;
  }
}

TEST(Key, OrdersLikeTheFloats) {
  const std::vector<float> ascending = {-std::numeric_limits<float>::infinity(), -3e38F, -1.0F, -1e-45F, -0.0F, 0.0F, 1e-45F, 2.0F, 3e38F,
                                        std::numeric_limits<float>::infinity()};
  for (std::size_t i = 1; i < ascending.size(); ++i) EXPECT_LT(value_key(ascending[i - 1]), value_key(ascending[i]));
  for (const float v : ascending) EXPECT_EQ(std::bit_cast<std::uint32_t>(key_value(value_key(v))), std::bit_cast<std::uint32_t>(v));
}

}  // namespace
}  // namespace epipe::kernels
