#include "epipe/report/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace epipe::report {
namespace {

constexpr double kSlack = 1e-6;  // tolerance for rounding of a bound, as a share of a step
constexpr int kMostPowers = 7;   // shown on a logarithmic axis
constexpr double kZeroGap = 16;  // pixels between the line of zero and the lowest power of ten

// 1, 2 or 5 times a power of ten, so that about `count` steps fill the range.
double round_step(double range, int count) {
  const double rough = range / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double lead = rough / power;
  return power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
}

std::string tick_text(double value, double step) {
  const double size = std::max(std::abs(value), step);
  if (size >= 1e15 || step < 1e-6) return fmt::format("{:.3g}", value);
  if (step >= 1e6) return fmt::format("{:g}M", value / 1e6);
  if (step >= 1e3) return fmt::format("{:g}k", value / 1e3);
  const int decimals = std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
  return fmt::format("{:.{}f}", value, decimals);
}

// Widens the range around a single value.
void part_bounds(double& low, double& high) {
  if (high - low > 1e-9 * std::max(std::abs(low), std::abs(high))) return;
  const double room = low == 0 ? 1 : std::abs(low) * 0.1;
  low -= low == 0 ? 0 : room;
  high += room;
}

std::string power_text(int exponent) {
  if (exponent >= -2 && exponent <= 3) return fmt::format("{:g}", std::pow(10, exponent));
  return fmt::format("1e{}", exponent);
}

}  // namespace

Axis Axis::linear(double low, double high, double from, double to, int ticks) {
  part_bounds(low, high);
  const double step = round_step(high - low, ticks);
  return tight(step * std::floor(low / step + kSlack), step * std::ceil(high / step - kSlack), from, to, ticks);
}

Axis Axis::tight(double low, double high, double from, double to, int ticks, double least_step) {
  part_bounds(low, high);
  const double step = std::max(round_step(high - low, ticks), least_step);
  Axis axis(low, high, from, to, false);
  const double first = std::ceil(low / step - kSlack);
  const int count = static_cast<int>(std::floor(high / step + kSlack) - first) + 1;
  for (int k = 0; k < count; ++k) {
    const double value = (first + k) * step;
    axis.ticks_.push_back({axis.at(value), tick_text(value == 0 ? 0 : value, step)});  // no -0
  }
  return axis;
}

Axis Axis::logarithmic(double low, double high, bool with_zero, double from, double to) {
  const int first = static_cast<int>(std::floor(std::log10(low) + 1e-9));
  const int last = std::max(first + 1, static_cast<int>(std::ceil(std::log10(high) - 1e-9)));
  const double gap = with_zero ? std::copysign(kZeroGap, to - from) : 0;
  Axis axis(first, last, from + gap, to, true);
  axis.zero_ = from;
  if (with_zero) axis.ticks_.push_back({from, "0"});
  const int every = (last - first + kMostPowers - 1) / kMostPowers;
  for (int e = first; e <= last; e += every) axis.ticks_.push_back({axis.at(std::pow(10, e)), power_text(e)});
  return axis;
}

double Axis::at(double value) const {
  if (log_ && value <= 0) return zero_;
  const double position = log_ ? std::log10(value) : value;
  return from_ + (position - low_) / (high_ - low_) * (to_ - from_);
}

std::string Axis::description() const {
  return fmt::format("{:.9g} {:.9g} {:.1f} {:.1f} {}", low_, high_, from_, to_, log_ ? "log" : "linear");
}

}  // namespace epipe::report
