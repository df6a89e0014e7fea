#include "epipe/codec/step_search.h"

#include <algorithm>
#include <cmath>

namespace epipe::codec {
namespace {

constexpr std::size_t kPartSymbols = 1U << 12U;
constexpr int kMaxSteps = 14;
constexpr double kCloseEnough = 0.003;

// Squared error, in steps, that a bit is worth: at a high rate the error is 1/12 and a bit quarters it, so -dD/dR = 2 ln 2 / 12.
constexpr double kErrorPerBit = 0.1155;

// How many bits more `larger` costs than `smaller`, on average where larger ones occur; one of two signs each.
struct ExtraBits {
  double sum = 0;
  double weight = 0;
  void add(double smaller, double larger) {
    if (smaller <= 0 || larger <= 0) return;
    sum += larger * std::log2(smaller / larger);
    weight += larger;
  }
  // From the middle between two levels to where going up pays.
  float shift() const { return weight > 0 ? static_cast<float>(0.5 * kErrorPerBit * std::clamp(sum / weight, 0.0, 4.0)) : 0.0F; }
};

}  // namespace

kernels::DeadZone dead_zone(float step, const Rounding& rounding) { return {1.0F / step, rounding.threshold, rounding.offset}; }

Sample::Sample(const Planes& planes, std::span<const float> x, const kernels::Kernels& kernels, std::size_t symbols)
    : planes_(planes), kernels_(&kernels) {
  if (planes.symbols() <= symbols) {
    for (std::size_t c = 0; c < planes.chunks(); ++c) keep(planes, planes.chunk(c).first, planes.chunk(c).units, x);
    return;
  }
  // Rows of values as long as a context needs to settle, batches of blocks.
  const std::size_t unit = planes.form().edge == 0 ? planes.row() : 16;
  const std::size_t wanted = std::max<std::size_t>(1, kPartSymbols / planes.unit_symbols());
  const std::size_t length = std::min({(wanted + unit - 1) / unit * unit, planes.units(), planes.chunk_units()});
  const std::size_t parts = std::max<std::size_t>(1, symbols / (length * planes.unit_symbols()));
  const std::size_t last = planes.units() - length;
  for (std::size_t i = 0; i < parts; ++i) keep(planes, parts == 1 ? 0 : last * i / (parts - 1) / unit * unit, length, x);
  const bool rows = planes.form().context == Context::kRunning || planes.form().context == Context::kNeighbours;
  if (rows && length > planes.row()) settled_ = 1 - static_cast<double>(planes.row()) / static_cast<double>(length);
  scale_ = static_cast<double>(planes.symbols()) / static_cast<double>(parts * length * planes.unit_symbols());
}

void Sample::keep(const Planes& planes, std::size_t first, std::size_t units, std::span<const float> x) {
  Planes::Scratch scratch;
  Part part{planes.part(first, units), {}};
  const auto y = planes.load(part.chunk, x, *kernels_, scratch);
  part.y.assign(y.begin(), y.end());
  parts_.push_back(std::move(part));
}

template <typename Each>
void Sample::for_chunks(float step, Each&& each) const {
  const kernels::DeadZone zone = dead_zone(step, rounding_);
  CountedTokens counts(planes_.slots());
  std::vector<std::uint8_t> tokens;
  TokenScratch scratch;
  std::vector<std::vector<std::uint8_t>> levels(parts_.size());
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    tokens.resize(parts_[i].chunk.symbols);
    levels[i].resize(parts_[i].chunk.symbols);
    tokenize(planes_, parts_[i].chunk, parts_[i].y, zone, *kernels_, tokens.data(), levels[i].data(), scratch, counts, nullptr);
  }
  each(zone, counts, levels);
}

// The first row of a part has nothing before it, which is rare in the tensor and frequent in the sample: it does not count.
double Sample::bits(float step) const {
  double bits = 0;
  for_chunks(step, [&](const auto&, const CountedTokens& counts, const auto&) {
    std::vector<TokenCounts> total = counts.total();
    if (settled_ < 1) total[0] = {};
    bits = ideal_bits(total);
  });
  return bits * scale_ / settled_;
}

void Sample::adapt(float step) {
  for_chunks(step, [&](const auto&, const CountedTokens& counts, const auto&) {
    ExtraBits first;
    ExtraBits second;
    for (const TokenCounts& slot : counts.total()) {
      const double ones = 0.5 * (static_cast<double>(slot[1]) + slot[2]);
      const double twos = 0.5 * (static_cast<double>(slot[3]) + slot[4]);
      first.add(slot[0], ones);
      second.add(ones, twos);
    }
    const float to_one = first.shift();
    rounding_ = {0.5F + to_one, 0.5F - std::min(second.shift(), to_one)};
  });
}

std::vector<Shift> Sample::shifts(float step) const {
  std::vector<Shift> shifts(planes_.slots());
  for_chunks(step, [&](const kernels::DeadZone& zone, const CountedTokens&, const auto& levels) {
    for (std::size_t i = 0; i < parts_.size(); ++i) add_shifts(planes_, parts_[i].chunk, parts_[i].y, zone, levels[i].data(), shifts);
  });
  return shifts;
}

double Sample::squared_error(float step) const {
  double sum = 0;
  for_chunks(step, [&](const kernels::DeadZone& zone, const CountedTokens& counts, const auto& levels) {
    std::vector<Shift> shifts(planes_.slots());
    for (std::size_t i = 0; i < parts_.size(); ++i) add_shifts(planes_, parts_[i].chunk, parts_[i].y, zone, levels[i].data(), shifts);
    const TokenTables tables = fit_tables(counts.total(), shifts, planes_.levels());
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      sum += codec::squared_error(planes_, parts_[i].chunk, parts_[i].y, zone, levels[i].data(), tables, step);
    }
  });
  return sum * scale_;
}

// Secant steps between the ends of a shrinking bracket, on logarithms; halving when they creep.
float solve_step(const std::function<double(float)>& function, double target, const StepRange& range) {
  struct Point {
    double step, value;  // log2; the value relative to the target
  };
  const auto at = [&](double step) {
    return Point{step, std::log2(std::max(function(static_cast<float>(std::exp2(step))), 1e-300) / target)};
  };
  const double lowest = std::log2(static_cast<double>(range.floor));
  const double highest = std::log2(static_cast<double>(range.ceiling));
  const auto close = [](const Point& p) { return std::fabs(p.value) < kCloseEnough; };
  Point here = at(std::clamp(std::log2(static_cast<double>(range.guess)), lowest, highest));
  if (close(here)) return static_cast<float>(std::exp2(here.step));
  // Which way: assume a falling function of the step is above the target when the step is too small.
  const Point floor = at(lowest);
  if (floor.value == here.value && floor.value <= 0) return range.floor;  // the same for every step: the sample holds zeros only
  const bool falling = floor.value > here.value || (floor.value == here.value && floor.value > 0);
  const auto too_small = [&](const Point& p) { return falling == (p.value > 0); };
  if (!too_small(floor)) return range.floor;
  Point low = too_small(here) ? here : floor;
  Point high = too_small(here) ? at(highest) : here;
  if (too_small(high)) return range.ceiling;
  for (int i = 0; i < kMaxSteps; ++i) {
    const double share = std::clamp(low.value / (low.value - high.value), 0.1, 0.9);
    here = at(low.step + (high.step - low.step) * (i % 3 == 2 ? 0.5 : share));
    if (close(here)) break;
    (too_small(here) ? low : high) = here;
  }
  return static_cast<float>(std::exp2(here.step));
}

}  // namespace epipe::codec
