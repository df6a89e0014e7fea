#pragma once

#include <vector>

// Distributes bits over several tensors. Pure arithmetic.
namespace epipe::train {

// The loss of coding at some rates, interpolated linearly on logarithmic axes.
struct RateCurve {
  std::vector<double> rates;   // bits per value, ascending, above 0
  std::vector<double> errors;  // at each; relative

  double error_at(double rate) const;   // constant beyond the ends
  RateCurve from(double rate) const;    // the part of this rate and above; at least the last point
  RateCurve within(double most) const;  // the part with errors of at most `most`, which fall as rates rise; at least the last point
  RateCurve until(double rate) const;   // the points of this rate and below; at least the first one
};

// One cut and direction.
struct RateChoice {
  double values = 0;       // that cross, in any unit common to all choices
  double sensitivity = 0;  // harm per unit of relative error
  RateCurve curve;         // a rate is chosen between its ends

  double harm_at(double rate) const { return sensitivity * curve.error_at(rate); }
};

// The rates with the fewest bits, sum of values * rate, whose harms add up to at most `most`; if that is impossible, the rates with the
// least harm. At the solution an additional bit would reduce the harm equally for every tensor.
std::vector<double> allocate_bits(const std::vector<RateChoice>& choices, double most);

}  // namespace epipe::train
