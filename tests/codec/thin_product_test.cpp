// Products with a short side against their definition, to the bit: on every kind of kernel, with several threads.
#include "epipe/codec/thin_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "epipe/base/thread_pool.h"

namespace epipe::codec {
namespace {

std::vector<float> random_values(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& v : values) v = normal(random);
  return values;
}

// The sum over k of a(k) * b(k): a product first, then fma in ascending order.
template <typename A, typename B>
float sum_of(std::size_t n, A&& a, B&& b) {
  float sum = a(0) * b(0);
  for (std::size_t k = 1; k < n; ++k) sum = std::fma(a(k), b(k), sum);
  return sum;
}

struct ThinProductCase {
  ThinShape shape;
  std::vector<float> left, right, x;   // x is any matrix
  std::vector<float> product, factor;  // by definition: left times right^T, x^T times left

  explicit ThinProductCase(const ThinShape& s)
      : shape(s), left(random_values(s.batch * s.rows * s.rank, 1)), right(random_values(s.batch * s.columns * s.rank, 2)) {
    x = random_values(s.batch * s.rows * s.columns, 3);
    for (std::size_t b = 0; b < s.batch; ++b) {
      const auto left_at = [&](std::size_t i, std::size_t k) { return left[(b * s.rows + i) * s.rank + k]; };
      const auto right_at = [&](std::size_t j, std::size_t k) { return right[(b * s.columns + j) * s.rank + k]; };
      const auto x_at = [&](std::size_t i, std::size_t j) { return x[(b * s.rows + i) * s.columns + j]; };
      for (std::size_t i = 0; i < s.rows; ++i) {
        for (std::size_t j = 0; j < s.columns; ++j) {
          product.push_back(sum_of(
              s.rank, [&](std::size_t k) { return left_at(i, k); }, [&](std::size_t k) { return right_at(j, k); }));
        }
      }
      for (std::size_t j = 0; j < s.columns; ++j) {
        for (std::size_t k = 0; k < s.rank; ++k) {
          factor.push_back(sum_of(
              s.rows, [&](std::size_t i) { return left_at(i, k); }, [&](std::size_t i) { return x_at(i, j); }));
        }
      }
    }
  }

  void expect_as_defined(const kernels::Kernels& kernels, ThreadPool* pool) const {
    SCOPED_TRACE(std::string(kernels.name));
    std::vector<float> got(product.size(), NAN);
    thin_product(shape, left, right, kernels, pool, got);
    EXPECT_EQ(got, product);
    got.assign(factor.size(), NAN);
    thin_factor(shape, x, left, kernels, pool, got);
    EXPECT_EQ(got, factor);
  }
};

TEST(ThinProducts, AreAsDefinedOnEveryKernel) {
  for (const std::size_t columns : {1U, 15U, 16U, 255U, 256U, 257U, 700U}) {
    for (const std::size_t rows : {1U, 3U, 4U, 9U}) {
      for (const std::size_t rank : {1U, 2U, 5U}) {
        SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns) + " of rank " + std::to_string(rank));
        const ThinProductCase one({2, rows, columns, rank});
        one.expect_as_defined(kernels::scalar(), nullptr);
        if (kernels::avx2() != nullptr) one.expect_as_defined(*kernels::avx2(), nullptr);
        if (kernels::avx512() != nullptr) one.expect_as_defined(*kernels::avx512(), nullptr);
      }
    }
  }
}

TEST(ThinProducts, AreTheSameWithSeveralThreads) {
  ThreadPool pool(3);
  ThinProductCase({1, 20, 3000, 4}).expect_as_defined(kernels::best(), &pool);
  ThinProductCase({7, 20, 300, 4}).expect_as_defined(kernels::best(), &pool);
}

}  // namespace
}  // namespace epipe::codec
