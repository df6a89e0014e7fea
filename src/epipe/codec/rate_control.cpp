#include "epipe/codec/rate_control.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "epipe/codec/channel_means.h"
#include "epipe/codec/kernels/transform.h"
#include "epipe/wire/frame.h"

namespace epipe::codec {
namespace {

constexpr const char* kStepState = "step";
constexpr std::int64_t kStateNumbers = 8;
constexpr double kStateBits = 24;            // that a state of 32 takes beyond what it carries, which is half of its upper 16
constexpr double kStepFloor = 2e-3;          // of the RMS of the values that are not zero
constexpr double kNearEnoughToAdapt = 0.03;  // octaves of bits or error
constexpr double kCloseEnough = 0.003;
constexpr double kAim = 0.994;       // of the target, so that it is not exceeded
constexpr int kMaxPasses = 3;        // over the whole tensor, to meet the target
constexpr int kMorePasses = 6;       // over the first one, or one no larger than a sample
constexpr int kMaxBoundPasses = 12;  // an error bound is kept, a rate not exceeded by more than kMuch
constexpr double kMuch = 1.02;
constexpr float kNextToFloor = 1.001F;  // where rounding may have moved a step that was there
constexpr double kFar = 2;              // from the target: this tensor is nothing like the last one
constexpr int kPlainExponents = 60;
constexpr std::uint8_t kMapMeanShift = 2;  // where a block is a map

// Bits of a payload beside those of the tokens.
double side_bits(const Planes& planes, const CodedHead& head, const TokenTables& tables) {
  Bytes side;
  write_tables(tables, planes.levels(), side);
  const double per_chunk = kStateBits * head.lanes + 8 * 4;  // the latter in the index
  return 8 * (12 + static_cast<double>(side.size())) + per_chunk * static_cast<double>(planes.chunks());
}

// Means are what pooling, biases and normalization see of a map: half the step for those of blocks, a quarter where the block is the
// map. docs/codec_design.md says at what price, and why not those of text.
std::uint8_t mean_shift(const TensorSpec& tensor) {
  if (tensor.dims.size() != 4) return 0;
  return std::max(tensor.dims[2], tensor.dims[3]) <= 8 ? kMapMeanShift : 1;
}

// In the state: 0 without a transform, else 1 and the shift of its means.
double transform_number(const Form& form) { return form.transform ? 1.0 + form.mean_shift : 0.0; }

}  // namespace

std::string RateControl::spec() const {
  const char* const names[] = {"ec", "dct", "auto"};  // NOLINT(*-avoid-c-arrays)
  const char* const name = names[static_cast<int>(kind_)];
  return own_.value == 0 ? std::string(name) : fmt::format("{}{}{}", name, own_.is_error ? '@' : ':', own_.value);
}

Result<void> RateControl::set_rate(double rate) {
  target_ = rate > 0 && !own_.is_error ? EntropyTarget{rate, false} : own_;
  if (target_.value > 0) return {};
  return Error{ErrorCode::kBadSpec, "auto without a number has its rate chosen by `epipe train`; say bits per value here, as in auto:2"};
}

int RateControl::scaling_exponent(float largest) { return std::abs(std::ilogb(largest)) > kPlainExponents ? std::ilogb(largest) : 0; }

RateControl::Scale RateControl::scale_of(float largest, std::span<const BlockSums> blocks) {
  BlockSums all;
  for (const BlockSums& block : blocks) {
    all.energy += block.energy;
    all.nonzero += block.nonzero;
  }
  return {largest, all.energy, std::sqrt(all.energy / static_cast<double>(std::max<std::uint64_t>(1, all.nonzero)))};
}

// The forms this codec may take for a shape, the preferred one first.
std::vector<Form> RateControl::forms(const TensorSpec& tensor, const Aside& aside) const {
  std::vector<Form> all;
  const auto add = [&](Form form) {
    if (Planes::fits(tensor, form)) all.push_back(form);
  };
  if (aside.spectra) {
    add({0, Context::kRunning, true, kMapMeanShift});
    return all;
  }
  if (kind_ != EntropyKind::kEc && tensor.dims.size() >= 3) {
    const std::uint8_t shift = mean_shift(tensor);
    add({8, Context::kParents, true, shift});
    if (std::max(tensor.dims.back(), tensor.dims[tensor.dims.size() - 2]) > 8) add({16, Context::kParents, true, shift});
  }
  if (aside.by_axes) {  // the magnitudes along one axis resemble each other more than those at one place
    add({0, Context::kRunning});
  } else if (kind_ != EntropyKind::kDct || all.empty()) {
    add({0, Context::kRunning});
    add({0, Context::kNeighbours});
    if (tensor.dims.size() == 4) add({16, Context::kParents, false});
    if (all.empty() || tensor.values() < 4096) add({0, Context::kNone});
  }
  return all;
}

// Long chunks, for their states cost bits; shorter ones where a larger tensor would give a device, which has a warp for each, less to do
// at once than it can.
unsigned RateControl::chunk_log2(const TensorSpec& tensor) const {
  constexpr double kStateShare = 0.0075;    // of the bits may go into states
  constexpr double kMostStateShare = 0.03;  // of a large tensor's
  constexpr double kLarge = 1.5e6;          // values
  constexpr double kManyChunks = 512;
  const double rate = target_.is_error ? 1 : target_.value;
  const auto log2_for = [&](double share) { return std::ceil(std::log2(kStateBits * kernels::kMaxStates / share / rate)); };
  const auto values = static_cast<double>(tensor.values());
  const double longest = log2_for(kStateShare);
  const double wanted = values < kLarge ? longest : std::max(std::ceil(std::log2(values / kManyChunks)), log2_for(kMostStateShare));
  return static_cast<unsigned>(std::clamp(std::min(wanted, longest), 14.0, 20.0));
}

// Bits that the payload may take, or the squared error it may have.
double RateControl::goal(const TensorSpec& tensor, const Scale& scale, const Aside& aside) const {
  if (target_.is_error) return target_.value * scale.energy / aside.skew;
  const std::size_t header = wire::header_bytes(tensor.dims.size(), spec().size());
  const double all = target_.value * static_cast<double>(tensor.values());
  return std::max(all - 8 * static_cast<double>(header + aside.bytes), 0.5 * all);
}

StepRange RateControl::range_for(const Form& form, const Scale& scale, float guess) const {
  const auto edge = static_cast<float>(form.transform && form.edge != 0 ? form.edge : 1);
  const float gain = edge * form.mean_gain();  // how much larger than a value a symbol can be
  const float finest = scale.largest * gain / kernels::kMaxLevel;
  const float floor = target_.is_error ? finest : std::max(finest, static_cast<float>(kStepFloor * scale.rms));
  const float ceiling = 2 * gain * scale.largest;
  return {floor, ceiling, guess > 0 ? guess : static_cast<float>(0.2 * scale.rms)};
}

float RateControl::find_step(const Sample& sample, double wanted, const StepRange& range) const {
  if (target_.is_error) return solve_step([&](float step) { return sample.squared_error(step); }, wanted, 2, range);
  return solve_step([&](float step) { return sample.bits(step); }, wanted, -1, range);
}

// The form with the least error at the wanted rate, or the least bits at the wanted error, on the sample.
RateControl::Choice RateControl::choose_form(const TensorSpec& tensor, SymbolSource& source, const Scale& scale, const Aside& aside) const {
  const double wanted = goal(tensor, scale, aside);
  Choice best{{}, std::numeric_limits<double>::infinity()};
  for (const Form& form : forms(tensor, aside)) {
    const Sample sample(Planes(tensor, form, chunk_log2(tensor)), source, *options_.kernels, options_.pool, kChoiceSymbols);
    const float step = find_step(sample, wanted, range_for(form, scale, 0));
    // At the floor of the step the rate decides.
    const double cost = target_.is_error ? sample.bits(step) : sample.squared_error(step) * std::exp2(2 * sample.bits(step) / wanted);
    if (cost < best.cost || best.cost == std::numeric_limits<double>::infinity()) best = {form, cost};
  }
  return best;
}

bool RateControl::affords(const TensorSpec& tensor, std::size_t bytes, double share) const {
  const double rate = target_.is_error ? 1 : target_.value;
  return 8 * static_cast<double>(bytes) <= share * rate * static_cast<double>(tensor.values());
}

std::size_t RateControl::means_bytes(const TensorSpec& tensor) const {
  constexpr double kShare = 0.01;
  if (!has_channel_means(tensor)) return 0;
  const std::size_t bytes = codec::means_bytes(static_cast<std::size_t>(tensor.dims[1]));
  return affords(tensor, bytes, kShare) ? bytes : 0;
}

double RateControl::cost(const TensorSpec& tensor, float largest, Passes& passes, const Aside& aside) const {
  const Scale scale = scale_of(largest, passes.sum_blocks());
  const double bits = choose_form(tensor, passes, scale, aside).cost;
  return target_.is_error ? bits + 8 * static_cast<double>(aside.bytes) : bits;
}

// At a high rate a bit halves the step; at 1 bit per value it is about 1.3 times their RMS.
double RateControl::expected_step(double rms) const {
  if (target_.is_error) return std::sqrt(12 * target_.value);
  return rms * std::exp2(1 - 0.7 * std::min(target_.value, 8.0));
}

Decision RateControl::decide(const TensorSpec& tensor, float largest, int exponent, Passes& passes, const Aside& aside, bool frozen) {
  Memory memory = memory_.value_or(Memory{});
  const Scale scale = scale_of(largest, passes.sum_blocks());
  Decision decision = decide(tensor, scale, exponent, passes, aside, frozen, memory);
  if (!frozen) memory_ = memory;
  return decision;
}

bool RateControl::is_time_to_choose(std::uint64_t calls) { return calls % 512 == 0 || (calls >= 16 && std::has_single_bit(calls)); }

// Sets the sample's rounding as well.
float RateControl::first_step(Sample& sample, double wanted, StepRange range) const {
  range.close_enough = kNearEnoughToAdapt;
  range.guess = find_step(sample, wanted, range);
  sample.adapt(range.guess);
  range.close_enough = kCloseEnough;
  return find_step(sample, wanted, range);
}

// The first step comes from a sample; later ones from the call before, which says more of a tensor than a sample does.
Decision RateControl::decide(const TensorSpec& tensor, const Scale& scale, int exponent, Passes& passes, const Aside& aside, bool frozen,
                             Memory& memory) const {
  const double wanted = goal(tensor, scale, aside);
  const bool fits = memory.calls > 0 && Planes::fits(tensor, memory.form);
  if (!fits || (is_time_to_choose(memory.calls) && !frozen)) {
    const std::vector<Form> all = forms(tensor, aside);
    const Form form = all.size() == 1 ? all.front() : choose_form(tensor, passes, scale, aside).form;
    if (!fits || !(form == memory.form)) memory = {form, 0, {}, first_slope(), memory.calls};
  }
  ++memory.calls;
  const Planes planes(tensor, memory.form, chunk_log2(tensor));
  Sample sample(planes, passes, *options_.kernels, options_.pool);
  sample.set_rounding(memory.rounding);
  const StepRange range = range_for(memory.form, scale, static_cast<float>(memory.step * scale.rms));
  Decision decision{planes, {memory.form, chunk_log2(tensor), lanes_for(planes.chunk(0).symbols), 0, exponent}, {}, {}};
  float& step = decision.head.step;
  step = memory.step == 0 ? first_step(sample, kAim * wanted, range) : std::clamp(range.guess, range.floor, range.ceiling);
  if (step < kNextToFloor * range.floor) step = range.floor;
  bool remembered = memory.step != 0;
  const int usual = remembered && planes.symbols() > kSearchSymbols ? kMaxPasses : kMorePasses;
  const double near = target_.is_error ? 0.93 : 0.98;
  StepWalk walk(memory.slope);
  for (int pass = 1;; ++pass) {
    decision.zone = dead_zone(step, sample.rounding());
    passes.start_tokens(planes, decision.zone, sample.chunks());
    const std::span<const TokenCounts> counts = passes.count_tokens();
    const std::span<const Shift> shifts = passes.sample_shifts();
    decision.tables =
        shifts.empty() ? fit_tables(counts, sample.shifts(step), planes.levels()) : fit_tables(counts, shifts, planes.levels());
    const double side = target_.is_error ? 0 : side_bits(planes, decision.head, decision.tables);
    const double got = side + (target_.is_error ? passes.squared_error(planes, decision.zone, decision.tables, step)
                                                : coded_bits(counts, decision.tables));
    const double most = std::max(wanted, side + 0.5 * wanted);  // however large the tables, tokens may take half
    const bool kept = got <= most && (got >= near * most || step <= range.floor || pass >= usual);
    decision.keeps_bound = !target_.is_error || got <= most;
    const bool hopeless = !decision.keeps_bound && step <= range.floor;
    if (kept || hopeless || pass >= (target_.is_error || got > kMuch * most ? kMaxBoundPasses : usual)) {
      memory.step = step / scale.rms;
      memory.rounding = rounding_for(counts);
      memory.slope = walk.slope();
      return decision;
    }
    if (std::exchange(remembered, false) && std::max(got, most) > kFar * std::min(got, most)) {
      const float searched = first_step(sample, kAim * wanted, range);
      if ((searched > step) == ((got > most) != target_.is_error)) {
        step = searched;
        pass = 0;
        continue;
      }
      sample.set_rounding(memory.rounding);  // the sample does not see what the whole tensor showed
    }
    const bool creeps = target_.is_error && pass >= usual;  // a tensor so small that its error jumps from step to step
    step = creeps ? std::max(range.floor, step * static_cast<float>(std::min(0.9, std::sqrt(0.95 * wanted / got))))
                  : walk.next(step, got - side, kAim * (most - side), range);
  }
}

State RateControl::state() const {
  if (!memory_) return {};
  const std::vector<double> numbers = {static_cast<double>(memory_->form.edge),
                                       static_cast<double>(memory_->form.context),
                                       transform_number(memory_->form),
                                       memory_->step,
                                       memory_->rounding.threshold,
                                       memory_->rounding.offset,
                                       memory_->slope,
                                       static_cast<double>(memory_->calls)};
  return {{kStepState, torch::tensor(numbers, torch::kFloat64)}};
}

void RateControl::set_state(const State& state) {
  memory_.reset();
  const auto found = state.find(kStepState);
  if (found == state.end() || found->second.numel() != kStateNumbers) return;
  const auto numbers = found->second.to(torch::kFloat64).contiguous();
  const double* const n = numbers.data_ptr<double>();
  if (!std::all_of(n, n + kStateNumbers, [](double number) { return std::isfinite(number); }) || n[6] * first_slope() <= 0) return;
  if (n[0] < 0 || n[0] > kernels::kMaxEdge || n[1] < 0 || n[1] > static_cast<double>(Context::kParents) || n[7] < 0 || n[7] >= 0x1p53)
    return;
  const Form form{static_cast<std::uint8_t>(n[0]), static_cast<Context>(static_cast<std::uint8_t>(n[1])), n[2] != 0,
                  static_cast<std::uint8_t>(std::clamp(n[2] - 1, 0.0, 3.0))};
  const Rounding rounding{static_cast<float>(n[4]), static_cast<float>(n[5])};
  memory_ = Memory{form, n[3], rounding, n[6], static_cast<std::uint64_t>(n[7])};
}

}  // namespace epipe::codec
