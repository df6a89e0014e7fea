#pragma once

#include <vector>

// Pure numbers: how many bits each of several tensors should get.
namespace epipe::train {

// What coding at some rates loses, on straight lines between them where both axes are logarithmic.
struct RateCurve {
  std::vector<double> rates;   // bits per value, ascending, above 0
  std::vector<double> errors;  // at each; relative

  double error_at(double rate) const;  // beyond the ends: as at the ends
  RateCurve within(double most) const;  // the part whose errors are at most this, which fall as rates rise; at least its last point
};

// One cut and direction.
struct RateChoice {
  double values = 0;       // that cross, in any unit all choices share
  double sensitivity = 0;  // harm for each unit of relative error
  RateCurve curve;         // a rate is chosen between its ends

  double harm_at(double rate) const { return sensitivity * curve.error_at(rate); }
};

// The rates with the fewest bits, sum of values * rate, whose harms add up to at most `most`; where that cannot be had, those with the
// least harm. At the solution a further bit would take off the same harm wherever it is spent.
std::vector<double> allocate_bits(const std::vector<RateChoice>& choices, double most);

}  // namespace epipe::train
