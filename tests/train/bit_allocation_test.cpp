// Bits go where they take off the most harm.
#include "epipe/train/bit_allocation.h"

#include <gtest/gtest.h>

#include <cmath>

namespace epipe::train {
namespace {

// Halving the rate makes the error 2^slope times as large.
RateChoice power_law(double values, double sensitivity, double slope) {
  RateChoice choice{values, sensitivity, {}};
  for (int octave = -4; octave <= 3; ++octave) {
    choice.curve.rates.push_back(std::exp2(octave));
    choice.curve.errors.push_back(0.1 * std::exp2(-slope * octave));
  }
  return choice;
}

double harm_of(const std::vector<RateChoice>& choices, const std::vector<double>& rates) {
  double sum = 0;
  for (std::size_t k = 0; k < choices.size(); ++k) sum += choices[k].harm_at(rates[k]);
  return sum;
}

double bits_of(const std::vector<RateChoice>& choices, const std::vector<double>& rates) {
  double sum = 0;
  for (std::size_t k = 0; k < choices.size(); ++k) sum += choices[k].values * rates[k];
  return sum;
}

TEST(BitAllocation, CurvesAreStraightBetweenTheirPoints) {
  const RateCurve curve{{0.5, 2}, {0.4, 0.1}};
  EXPECT_DOUBLE_EQ(curve.error_at(0.5), 0.4);
  EXPECT_NEAR(curve.error_at(1), 0.2, 1e-12);
  EXPECT_DOUBLE_EQ(curve.error_at(2), 0.1);
  EXPECT_DOUBLE_EQ(curve.error_at(0.1), 0.4) << "nothing is known beyond the ends";
  EXPECT_DOUBLE_EQ(curve.error_at(9), 0.1);
}

TEST(BitAllocation, KeepsTheBoundWithHardlyABitToSpare) {
  const std::vector<RateChoice> choices = {power_law(1, 1, 2), power_law(4, 10, 3), power_law(2, 0.1, 1.5)};
  for (const double most : {0.01, 0.1, 1.0}) {
    const double harm = harm_of(choices, allocate_bits(choices, most));
    EXPECT_LE(harm, most);
    EXPECT_GT(harm, 0.8 * most);
  }
}

TEST(BitAllocation, NoOtherRatesKeepTheBoundWithFewerBits) {
  const std::vector<RateChoice> choices = {power_law(1, 1, 2), power_law(3, 5, 2.5)};
  const auto chosen = allocate_bits(choices, 0.1);
  const double bits = bits_of(choices, chosen);
  for (double first = -4; first <= 3; first += 1.0 / 32) {
    for (double second = -4; second <= 3; second += 1.0 / 32) {
      const std::vector<double> other = {std::exp2(first), std::exp2(second)};
      if (harm_of(choices, other) > 0.1) continue;
      ASSERT_GT(bits_of(choices, other), 0.97 * bits) << other[0] << " " << other[1];
    }
  }
}

TEST(BitAllocation, WhatDoesNoHarmGetsTheLeast) {
  const auto rates = allocate_bits({power_law(1, 1, 2), power_law(1, 0, 2)}, 0.05);
  EXPECT_GT(rates[0], 1);
  EXPECT_DOUBLE_EQ(rates[1], 0.0625);
}

TEST(BitAllocation, GivesAllThereIsWhereTheBoundCannotBeKept) {
  const auto rates = allocate_bits({power_law(1, 1e9, 2), power_law(1, 1e9, 2)}, 1e-6);
  EXPECT_EQ(rates, (std::vector<double>{8, 8}));
}

TEST(RateCurve, WithinABoundBeginsWhereItIsMet) {
  const RateCurve curve{{0.5, 1, 2, 4}, {0.4, 0.1, 0.01, 0.001}};
  const RateCurve part = curve.within(0.02);
  ASSERT_EQ(part.rates.size(), 3U);
  EXPECT_GT(part.rates[0], 1);
  EXPECT_LT(part.rates[0], 2);
  EXPECT_NEAR(curve.error_at(part.rates[0]), 0.02, 1e-9);
  EXPECT_EQ(part.rates.back(), 4);
  EXPECT_EQ(curve.within(0.5).rates, curve.rates) << "all of it";
  EXPECT_EQ(curve.within(1e-6).rates, std::vector<double>{4}) << "the best there is";
}

TEST(RateCurve, FromARateIsThePartAboveIt) {
  const RateCurve curve{{0.5, 1, 2, 4}, {0.4, 0.1, 0.01, 0.001}};
  const RateCurve part = curve.from(1.5);
  EXPECT_EQ(part.rates, (std::vector<double>{1.5, 2, 4}));
  EXPECT_EQ(part.errors, (std::vector<double>{curve.error_at(1.5), 0.01, 0.001}));
  EXPECT_EQ(curve.from(1).rates, (std::vector<double>{1, 2, 4}));
  EXPECT_EQ(curve.from(0.5).rates, curve.rates) << "all of it";
  EXPECT_EQ(curve.from(0.1).rates, curve.rates);
  EXPECT_EQ(curve.from(4).rates, std::vector<double>{4});
  EXPECT_EQ(curve.from(9).errors, std::vector<double>{0.001}) << "the best there is";
  EXPECT_EQ(curve.until(2).rates, (std::vector<double>{0.5, 1, 2}));
  EXPECT_EQ(curve.until(2).errors, (std::vector<double>{0.4, 0.1, 0.01}));
  EXPECT_EQ(curve.until(0.1).rates, std::vector<double>{0.5});
}

}  // namespace
}  // namespace epipe::train
