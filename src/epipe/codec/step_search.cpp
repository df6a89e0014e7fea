#include "epipe/codec/step_search.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "epipe/codec/kernels/transform.h"
#include "epipe/codec/parallel.h"

namespace epipe::codec {
namespace {

constexpr std::size_t kPartSymbols = 1U << 12U;  // of rows
constexpr std::size_t kBlockParts = 4;
constexpr int kMaxSteps = 14;
constexpr double kLeastStride = 0.01;  // octaves

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

Rounding rounding_for(std::span<const TokenCounts> counts) {
  ExtraBits first;
  ExtraBits second;
  for (const TokenCounts& slot : counts) {
    const double ones = 0.5 * (static_cast<double>(slot[1]) + slot[2]);
    const double twos = 0.5 * (static_cast<double>(slot[3]) + slot[4]);
    first.add(slot[0], ones);
    second.add(ones, twos);
  }
  const float to_one = first.shift();
  return {0.5F + to_one, 0.5F - std::min(second.shift(), to_one)};
}

Sample::Sample(const Planes& planes, SymbolSource& source, const kernels::Kernels& kernels, ThreadPool* pool, std::size_t symbols)
    : planes_(planes), source_(source), kernels_(&kernels), pool_(pool) {
  if (planes.symbols() <= symbols) {
    choose_all();
  } else if (planes.form().edge == 0) {
    choose_rows(symbols);
  } else {
    choose_blocks(symbols);
  }
}

void Sample::choose_all() {
  for (std::size_t c = 0; c < planes_.chunks(); ++c) chunks_.push_back(planes_.chunk(c));
}

// Stretches of rows, as long as a context needs to settle.
void Sample::choose_rows(std::size_t symbols) {
  const std::size_t row = planes_.row();
  const std::size_t length = std::min({(kPartSymbols + row - 1) / row * row, planes_.units(), planes_.chunk_units()});
  const std::size_t count = std::max<std::size_t>(1, symbols / length);
  const std::size_t last = planes_.units() - length;
  for (std::size_t i = 0; i < count; ++i) chunks_.push_back(planes_.part(count == 1 ? 0 : last * i / (count - 1) / row * row, length));
  if (planes_.form().context != Context::kNone && length > row) settled_ = 1 - static_cast<double>(row) / static_cast<double>(length);
  scale_ = static_cast<double>(planes_.symbols()) / static_cast<double>(count * length);
}

// Batches of blocks from all over the tensor.
void Sample::choose_blocks(std::size_t symbols) {
  const std::size_t count =
      std::max<std::size_t>(kBlockParts, symbols / (kernels::kBatch * planes_.unit_symbols()) / kBlockParts * kBlockParts);
  for (std::size_t i = 0; i < count; ++i) {
    chunks_.push_back(
        planes_.part((planes_.units() - kernels::kBatch) * i / (count - 1) / kernels::kBatch * kernels::kBatch, kernels::kBatch));
  }
  batches_ = true;
  scale_ = static_cast<double>(planes_.symbols()) / static_cast<double>(count * kernels::kBatch * planes_.unit_symbols());
}

const std::vector<Sample::Part>& Sample::parts() const {
  if (parts_.empty()) parts_ = batches_ ? load_blocks() : load();
  return parts_;
}

std::vector<Sample::Part> Sample::load() const {
  const std::vector<float> all = source_.load(planes_, chunks_);
  std::vector<Part> parts;
  auto at = all.begin();
  for (const Chunk& chunk : chunks_) {
    const auto end = at + static_cast<std::ptrdiff_t>(chunk.symbols);
    parts.push_back({chunk, {at, end}});
    at = end;
  }
  return parts;
}

// A block's contexts are within the block.
std::vector<Sample::Part> Sample::load_blocks() const {
  const std::size_t units = chunks_.size() / kBlockParts * kernels::kBatch;
  const std::vector<float> all = source_.load(planes_, chunks_);
  std::vector<Part> parts;
  auto from = all.begin();
  for (std::size_t p = 0; p < kBlockParts; ++p) {
    Part part{planes_.part(0, units), std::vector<float>(units * planes_.unit_symbols())};
    for (std::size_t b = 0; b < units; b += kernels::kBatch) {
      for (std::size_t k = 0; k < planes_.unit_symbols(); ++k, from += kernels::kBatch) {
        std::copy_n(from, kernels::kBatch, part.y.begin() + static_cast<std::ptrdiff_t>(k * units + b));
      }
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

// Calls each(thread, index) for every part.
template <typename Each>
void Sample::for_parts(Each&& each) const {
  const std::size_t count = parts().size();
  share_items(pool_, count * parts().front().y.size(), count, [&](std::size_t thread, const auto& next) {
    for (std::size_t i = next(); i < count; i = next()) each(thread, i);
  });
}

const Sample::Trial& Sample::trial(float step, bool counted) const {
  if (last_.step == step && last_.rounding == rounding_ && (last_.counted || !counted)) return last_;
  last_.step = step;
  last_.counted = counted;
  last_.rounding = rounding_;
  last_.zone = dead_zone(step, rounding_);
  const std::size_t count = parts().size();
  last_.tokens.resize(count);
  last_.levels.resize(count);
  std::vector<TokenScratch> scratch(threads_of(pool_));
  if (counted) counts_.resize(scratch.size());
  for (CountedTokens& counts : counts_) counts.reset(planes_.slots(), count * parts_.front().y.size());
  for_parts([&](std::size_t thread, std::size_t i) {
    const Part& part = parts_[i];
    last_.tokens[i].resize(part.chunk.symbols);
    last_.levels[i].resize(part.chunk.symbols);
    tokenize(planes_, part.chunk, part.y, last_.zone, *kernels_, last_.tokens[i].data(), last_.levels[i].data(), scratch[thread],
             counted ? &counts_[thread] : nullptr, nullptr);
  });
  if (!counted) return last_;
  for (std::size_t thread = 1; thread < counts_.size(); ++thread) counts_[0].add(counts_[thread]);
  counts_[0].total(last_.counts);
  return last_;
}

// The first row of a part has nothing before it, which is rare in the tensor and frequent in the sample: it does not count.
double Sample::bits(float step) const {
  const std::span<const TokenCounts> counts = counted_trial(step).counts;
  return ideal_bits(counts.subspan(settled_ < 1 ? 1 : 0)) * scale_ / settled_;
}

// Summed up by part, then over the parts in their order.
std::vector<Shift> Sample::shifts(float step) const {
  const Trial& now = trial(step);
  std::vector<std::vector<Shift>> of_part(parts_.size(), std::vector<Shift>(planes_.slots()));
  for_parts([&](std::size_t, std::size_t i) {
    add_shifts(planes_, parts_[i].chunk, parts_[i].y, now.zone, now.tokens[i].data(), now.levels[i].data(), of_part[i]);
  });
  for (std::size_t i = 1; i < parts_.size(); ++i) {
    for (std::size_t s = 0; s < of_part[0].size(); ++s) of_part[0][s].add(of_part[i][s]);
  }
  return of_part[0];
}

double Sample::squared_error(float step) const {
  const TokenTables tables = fit_tables(counted_trial(step).counts, shifts(step), planes_.levels());
  std::vector<double> of_part(parts_.size());
  for_parts([&](std::size_t, std::size_t i) {
    of_part[i] = codec::squared_error(planes_, parts_[i].chunk, parts_[i].y, last_.zone, last_.levels[i].data(), tables, step);
  });
  return std::accumulate(of_part.begin(), of_part.end(), 0.0) * scale_;
}

// From the guess outwards until the target lies in between, then secant steps between the ends of the shrinking bracket, halving when they
// creep; all on logarithms.
float solve_step(const std::function<double(float)>& function, double target, double slope, const StepRange& range) {
  struct Point {
    double step, value;  // log2; the value relative to the target
  };
  const auto at = [&](double step) {
    return Point{step, std::log2(std::max(function(static_cast<float>(std::exp2(step))), 1e-300) / target)};
  };
  const double lowest = std::log2(static_cast<double>(range.floor));
  const double highest = std::log2(static_cast<double>(range.ceiling));
  const auto close = [&](const Point& p) { return std::fabs(p.value) < range.close_enough; };
  const auto result = [&](const Point& p) {
    return p.step == lowest ? range.floor : p.step == highest ? range.ceiling : static_cast<float>(std::exp2(p.step));
  };
  const auto too_small = [&](const Point& p) { return (slope < 0) == (p.value > 0); };
  const Point guess = at(std::clamp(std::log2(static_cast<double>(range.guess)), lowest, highest));
  const bool upwards = too_small(guess);
  const double end = upwards ? highest : lowest;
  Point here = guess;
  Point there = guess;
  for (double stride = std::max(kLeastStride, 1.2 * std::fabs(guess.value / slope)); !close(there); stride *= 2) {
    const bool says_nothing = there.step != guess.step && there.value == guess.value;  // the sample holds zeros only
    if (there.step == end) return says_nothing ? range.floor : result(there);
    here = there;
    there = at(upwards ? std::min(here.step + stride, end) : std::max(here.step - stride, end));
    if (too_small(there) != upwards) break;
  }
  Point low = upwards ? here : there;
  Point high = upwards ? there : here;
  for (int i = 0; i < kMaxSteps && !close(there); ++i) {
    const double share = std::clamp(low.value / (low.value - high.value), 0.1, 0.9);
    there = at(low.step + (high.step - low.step) * (i % 3 == 2 ? 0.5 : share));
    (too_small(there) ? low : high) = there;
  }
  return result(there);
}

// A secant of the last two points, or along the known slope; between the steps that are known to be too small and too large, and never far
// beyond what has been seen.
float StepWalk::next(float step, double got, double target, const StepRange& range) {
  constexpr double kFlattest = 0.25;
  constexpr double kSteepest = 4;
  constexpr double kFarthest = 3;  // octaves
  const Point here{std::log2(static_cast<double>(step)), std::max(std::log2(std::max(got, 1e-300) / target), -kFarthest * kSteepest)};
  if (before_ && std::fabs(here.step - before_->step) >= kLeastStride) {
    const double seen = (here.value - before_->value) / (here.step - before_->step);
    slope_ = std::copysign(std::clamp(std::copysign(1.0, slope_) * seen, kFlattest, kSteepest), slope_);
  }
  before_ = here;
  ((slope_ < 0) == (here.value > 0) ? too_small_ : too_large_) = here.step;
  double to = here.step + std::clamp(-here.value / slope_, -kFarthest, kFarthest);
  if (too_small_ && too_large_ && !(to > *too_small_ && to < *too_large_)) to = 0.5 * (*too_small_ + *too_large_);
  return std::clamp(static_cast<float>(std::exp2(to)), range.floor, range.ceiling);
}

}  // namespace epipe::codec
