#pragma once

#include <string>
#include <vector>

namespace epipe::report {

struct Tick {
  double at;  // in pixels
  std::string text;
};

// Maps values to pixels between two positions. A logarithmic axis puts values up to zero on a separate line at its start.
class Axis {
 public:
  // From `low` to `high`, widened to round numbers; about `ticks` ticks.
  static Axis linear(double low, double high, double from, double to, int ticks);
  // Exactly from `low` to `high`, with round ticks in between, at least `least_step` apart.
  static Axis tight(double low, double high, double from, double to, int ticks, double least_step = 0);
  // From the power of ten below `low` to the one above `high`, both positive.
  static Axis logarithmic(double low, double high, bool with_zero, double from, double to);

  double at(double value) const;
  const std::vector<Tick>& ticks() const { return ticks_; }
  // "low high from to linear" or "... log", for the script that maps pixels back to values.
  std::string description() const;

 private:
  Axis(double low, double high, double from, double to, bool log) : low_(low), high_(high), from_(from), to_(to), log_(log) {}

  double low_, high_;  // exponents of ten on a logarithmic axis
  double from_, to_;   // pixels of low_ and high_
  bool log_;
  double zero_ = 0;  // pixel of zero on a logarithmic axis
  std::vector<Tick> ticks_;
};

}  // namespace epipe::report
