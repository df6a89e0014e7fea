#include "epipe/train/auto_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "epipe/codec/codec.h"
#include "epipe/pipeline/chunks.h"
#include "epipe/session/metric_json.h"
#include "epipe/train/bit_allocation.h"

namespace epipe::train {
namespace {

using pipeline::CutRates;
using session::AuditSums;
using wire::Direction;

constexpr double kHighFactor = 3;  // between the rate of the training and the one whose error counts little beside it
constexpr double kLeastHigh = 0.5;  // bits per value
// By audit, later ones as the last: octaves that it may raise a rate by, and the share of the bounds that it may use. What coding does
// grows fast in the first steps of a training. A rate falls by one octave at a time: what is measured at one rate says little of far lower
// ones, and a gradient that lost too much of itself trains nothing before the next audit tells.
constexpr std::array kOctavesUp = {3, 2, 2, 1};
constexpr std::array kShares = {0.25, 0.5, 1.0};
constexpr double kNewest = 0.5;      // weight of an audit in the mean over all
constexpr double kLeastSeen = 0.25;  // of an error, where its curve is too flat to say
constexpr double kNoError = 1e-12;
constexpr double kInAdvance = 0.5;      // share of the steps to come that pay for audits before them
constexpr std::uint64_t kFirstGap = 8;  // steps between the first two audits; then their number doubles, while that is paid in advance
constexpr const char* kCounts = "counts";
constexpr std::int64_t kCountNumbers = 11;
constexpr std::int64_t kKnownNumbers = 5;

AuditSums sum_of(const std::vector<AuditSums>& by_stage) {
  AuditSums sum;
  for (const AuditSums& of_stage : by_stage) sum += of_stage;
  return sum;
}

template <typename T, std::size_t N>
T of_audit(const std::array<T, N>& values, std::uint64_t audit) {
  return values[std::min<std::uint64_t>(audit, N - 1)];
}

double high_rate(double rate) { return std::clamp(kHighFactor * rate, kLeastHigh, session::kMostRate); }

double mean_of(const std::array<double, 2>& of_a_and_b) { return (of_a_and_b[0] + of_a_and_b[1]) / 2; }

double bytes_of(const pipeline::StepResult& result) {
  double bytes = 0;
  for (const auto* const direction : {&result.forward, &result.backward}) {
    for (const auto& traffic : *direction) bytes += static_cast<double>(traffic.wire_bytes);
  }
  return bytes;
}

double counted_bytes(const pipeline::StepResult& result, const AutoRatesConfig& config) {
  const bool kept = config.reuses && !result.forward.empty();
  return bytes_of(result) - (kept ? static_cast<double>(result.forward[0].wire_bytes) : 0);
}

const boundary::Traffic& traffic_at(const pipeline::StepResult& result, const AuditedCut& at) {
  return (at.direction == Direction::kForward ? result.forward : result.backward)[at.cut];
}

// As measured, but for a rate that errs more than a lower one did.
RateCurve curve_of(const std::vector<double>& rates, const std::vector<double>& errors) {
  RateCurve curve{rates, errors};
  for (std::size_t i = 1; i < errors.size(); ++i) curve.errors[i] = std::min(curve.errors[i], curve.errors[i - 1]);
  return curve;
}

std::string state_name(const AuditedCut& at) { return fmt::format("rate/{}", at.index()); }

const char* name_of(Direction direction) { return direction == Direction::kForward ? "forward" : "backward"; }

}  // namespace

std::vector<AuditedCut> audited_cuts(const pipeline::PipelineConfig& config, bool all) {
  std::vector<AuditedCut> audited;
  const auto add = [&](std::size_t j, Direction direction) {
    if (!config.placement.crosses(static_cast<int>(j)) && config.placement.workers() > 1) return;
    if (direction == Direction::kBackward && static_cast<int>(j) < config.first_trained) return;
    const auto rate = codec::target_rate(config.codecs[j].of(direction));
    if (rate && (all || *rate == 0)) audited.push_back({j, direction, *rate});
  };
  for (std::size_t j = 0; j < config.cuts.size(); ++j) add(j, Direction::kBackward);
  for (std::size_t j = config.cuts.size(); j > 0; --j) add(j - 1, Direction::kForward);
  return audited;
}

AutoRates::AutoRates(AutoRatesConfig config) : config_(std::move(config)) { set_state({}); }

void AutoRates::set_rates() {
  rates_.clear();
  for (std::size_t k = 0; k < known_.size(); ++k) {
    const AuditedCut& at = config_.audited[k];
    if (at.fixed != 0) continue;
    if (rates_.empty()) rates_.resize(config_.cuts);
    rates_[at.cut].of(at.direction) = known_[k].rate;
  }
}

// Small: many small audits tell more than few large ones. BatchNorm wants 8.
std::int64_t AutoRates::samples_of_audit() const {
  return std::min(std::clamp<std::int64_t>(config_.batch_here / 16, 8, 32), config_.batch_here / 2);
}

bool AutoRates::is_due(const data::LoadedBatch& loaded) const {
  const std::int64_t samples = samples_of_audit();
  if (config_.audited.empty() || loaded.step < next_step_ || samples < 1 || loaded.batch.size() < 2 * samples) return false;
  if (audits_ == 0) return loaded.step == 0 || next_step_ == 0 || std::has_single_bit(loaded.step);  // until one is valid
  const bool early = loaded.step >= std::max(kFirstGap, 2 * (next_step_ - 1));
  return affords_audit(early ? kInAdvance * std::max(0.0, config_.steps - trained_.rounds) : 0);
}

// Steps to come are taken to cost what those did that are done.
bool AutoRates::affords_audit(double steps_in_advance) const {
  if (trained_.rounds == 0) return false;
  const double grown = 1 + steps_in_advance / trained_.rounds;
  const auto affordable = [&](double Cost::*what) { return audited_.*what + last_.*what <= config_.share * trained_.*what * grown; };
  return affordable(&Cost::bytes) && affordable(&Cost::samples) && affordable(&Cost::rounds);
}

// Around the rate, which is one of them: those to choose from.
std::vector<double> AutoRates::possible_rates(const Known& known) const {
  std::vector<double> rates;
  for (int i = -1; i <= of_audit(kOctavesUp, audits_); ++i) {
    const double rate = std::clamp(known.rate * std::exp2(i), kLeast, kMost);
    if (rates.empty() || rate > rates.back()) rates.push_back(rate);
  }
  return rates;
}

// With the one that a pass compares with.
std::vector<double> AutoRates::tried_rates(std::size_t k) const {
  const bool fixed = config_.audited[k].fixed != 0;
  std::vector<double> rates = fixed ? std::vector<double>{config_.audited[k].fixed} : possible_rates(known_[k]);
  const double high = high_rate(known_[k].rate);
  const auto place = std::lower_bound(rates.begin(), rates.end(), high);
  if (place == rates.end() || *place != high) rates.insert(place, high);
  return rates;
}

session::AuditRequest AutoRates::request(const data::LoadedBatch& loaded) const {
  const std::int64_t samples = samples_of_audit();
  session::AuditRequest request;
  request.samples = {pipeline::slice(loaded.batch, {0, samples}), pipeline::slice(loaded.batch, {samples, samples})};
  request.id.epoch = loaded.epoch;
  request.id.step = loaded.step;
  request.passes.push_back(rates_.empty() ? pipeline::Rates(config_.cuts) : rates_);
  request.tried.resize(2 * config_.cuts);
  for (std::size_t k = 0; k < known_.size(); ++k) {
    const AuditedCut& at = config_.audited[k];
    pipeline::Rates rates = request.passes.back();
    rates[at.cut].of(at.direction) = high_rate(known_[k].rate);
    request.passes.push_back(std::move(rates));
    request.tried[at.index()] = tried_rates(k);
  }
  return request;
}

AuditRecord AutoRates::take(const session::AuditRequest& request, const session::AuditOutcome& outcome) {
  AuditRecord record;
  record.epoch = request.id.epoch;
  record.step = request.id.step;
  record.took = outcome.step;
  last_ = {counted_bytes(outcome.step, config_), static_cast<double>(outcome.step.samples), static_cast<double>(outcome.parts)};
  if (audits_ > 0) audited_ = {audited_.bytes + last_.bytes, audited_.samples + last_.samples, audited_.rounds + last_.rounds};
  next_step_ = record.step + 1;
  record.valid = !outcome.non_finite && sum_of(outcome.by_stage[0]).square > 0 && outcome.losses.size() == request.passes.size();
  if (!record.valid) return record;
  measure(request, outcome, record);
  choose(request, outcome, record);
  ++audits_;
  set_rates();
  return record;
}

// e is what coding adds to a gradient g of n samples; of a batch of B, its bias and what g is for all samples stay, the variance of both
// becomes n/B of it:
//   harm = (bias^2 + variance n/B) / (common^2 + noise n/B) = (bias^2 B/n + variance) / (common^2 B/n + noise)
// Of each stage apart, and the largest counts: the gradients of the first layers may be a thousandth of all and still have to be right.
// A comparison sees the part of it that goes with the error which the higher rate takes away.
AutoRates::Harm AutoRates::harm_of(const std::vector<AuditSums>& gradients, const std::vector<AuditSums>& errors, double batches) {
  Harm most;
  for (std::size_t j = 0; j < gradients.size(); ++j) {
    const AuditSums& gradient = gradients[j];
    const double all = gradient.square - gradient.cross + batches * std::max(0.0, gradient.cross);
    if (!(all > 0)) continue;  // nothing is trained there
    const double common = std::clamp(errors[j].cross, 0.0, errors[j].square);
    const Harm here{(batches * common + errors[j].square - common) / all, batches * common / all};
    if (here.all > most.all) most = here;
  }
  return most;
}

void AutoRates::measure(const session::AuditRequest& request, const session::AuditOutcome& outcome, AuditRecord& record) {
  const AuditSums gradient = sum_of(outcome.by_stage[0]);
  const double batches = static_cast<double>(config_.batch) / static_cast<double>(request.samples[0].size());
  const double noise = gradient.square - gradient.cross;
  record.noise = gradient.cross > 0 ? noise / batches / gradient.cross : std::numeric_limits<double>::quiet_NaN();
  record.loss = mean_of(outcome.losses[0].loss);
  for (std::size_t k = 0; k < known_.size(); ++k) {
    const AuditedCut& at = config_.audited[k];
    const AuditSums error = sum_of(outcome.by_stage[k + 1]);
    const Harm harm = harm_of(outcome.by_stage[0], outcome.by_stage[k + 1], batches);
    CutAudit cut;
    cut.at = at;
    cut.rate = cut.next_rate = known_[k].rate;
    double seen = 1;
    const auto& tried = request.tried[at.index()];
    const auto& curve = outcome.curves[at.index()];
    if (curve.size() == tried.size()) {
      const RateCurve errors = curve_of(tried, curve);
      cut.rel_error = errors.error_at(cut.rate);
      seen = std::clamp(1 - errors.error_at(high_rate(cut.rate)) / std::max(cut.rel_error, kNoError), kLeastSeen, 1.0);
    }
    cut.loss_added = mean_of(outcome.losses[k + 1].added) / seen;
    cut.loss_difference = mean_of(outcome.losses[k].loss) - mean_of(outcome.losses[k + 1].loss);
    cut.bias = harm.bias / seen;
    cut.harm = harm.all / seen;
    cut.gradient_error = error.square / gradient.square;
    cut.progress_lost = -error.along / (gradient.cross - error.along);
    cut.seen = seen;
    record.harm += cut.harm;
    record.loss_added += cut.loss_added;
    record.cuts.push_back(cut);
  }
}

// What a unit of relative error does at one cut and direction.
void AutoRates::learn(std::size_t k, const session::AuditOutcome& outcome, const AuditRecord& record) {
  Known& known = known_[k];
  const double error = std::max(record.cuts[k].rel_error, kNoError);
  const double newest = known.measured ? kNewest : 1;
  const auto mix = [newest](double& mean, double found) { mean = (1 - newest) * mean + newest * found; };
  mix(known.log_sensitivity, std::log(std::max(record.cuts[k].harm, kNoError) / error));
  const double unit = config_.log_likelihood ? 1 : 2 * std::max(record.loss, kNoError);
  const auto& added = outcome.losses[k + 1].added;
  const double spread = (added[0] - added[1]) / (2 * unit * error * record.cuts[k].seen);
  mix(known.loss, std::max(0.0, record.cuts[k].loss_added) / (unit * error));
  known.variance = (1 - newest) * (1 - newest) * known.variance + newest * newest * spread * spread;
  known.measured = true;
}

// Activations get what the bound on the loss asks for; then all tensors get what the bound on the harm asks for on top of it.
void AutoRates::choose(const session::AuditRequest& request, const session::AuditOutcome& outcome, AuditRecord& record) {
  std::vector<std::size_t> chosen;  // audited cuts
  std::vector<RateChoice> by_harm;
  std::vector<RateChoice> by_loss;
  for (std::size_t k = 0; k < known_.size(); ++k) {
    const AuditedCut& at = config_.audited[k];
    const auto& curve = outcome.curves[at.index()];
    if (at.fixed != 0 || curve.empty()) continue;
    learn(k, outcome, record);
    const double values = static_cast<double>(traffic_at(outcome.step, at).values);
    const RateCurve rates = curve_of(request.tried[at.index()], curve).until(possible_rates(known_[k]).back()).within(kMostError);
    chosen.push_back(k);
    by_harm.push_back({values, std::exp(known_[k].log_sensitivity), rates});
    const bool forward = at.direction == Direction::kForward;
    by_loss.push_back({values, forward ? known_[k].loss + std::sqrt(known_[k].variance) : 0, rates});
  }
  if (chosen.empty()) return;
  const double share = of_audit(kShares, audits_);
  const auto least = allocate_bits(by_loss, share * config_.loss_added);
  for (std::size_t i = 0; i < chosen.size(); ++i) by_harm[i].curve = by_harm[i].curve.from(least[i]);
  const auto rates = allocate_bits(by_harm, share * config_.harm);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    known_[chosen[i]].rate = rates[i];
    record.cuts[chosen[i]].next_rate = rates[i];
  }
}

void AutoRates::take_most() {
  for (Known& known : known_) known.rate = kMost;
  set_rates();
}

void AutoRates::count(const pipeline::StepResult& result) {
  trained_ = {trained_.bytes + counted_bytes(result, config_), trained_.samples + static_cast<double>(result.samples), trained_.rounds + 1};
}

session::NamedTensors AutoRates::state() const {
  if (config_.audited.empty()) return {};
  std::vector<double> counts = {static_cast<double>(audits_), static_cast<double>(next_step_)};
  for (const Cost* const cost : {&trained_, &audited_, &last_}) counts.insert(counts.end(), {cost->bytes, cost->samples, cost->rounds});
  session::NamedTensors all = {{kCounts, torch::tensor(counts, torch::kFloat64)}};
  for (std::size_t k = 0; k < known_.size(); ++k) {
    const Known& known = known_[k];
    const std::vector<double> numbers = {known.rate, known.log_sensitivity, known.measured ? 1.0 : 0.0, known.loss, known.variance};
    all.emplace(state_name(config_.audited[k]), torch::tensor(numbers, torch::kFloat64));
  }
  return all;
}

void AutoRates::set_state(const session::NamedTensors& state) {
  known_.clear();
  for (const AuditedCut& at : config_.audited) known_.push_back({at.fixed != 0 ? at.fixed : kFirst});
  trained_ = audited_ = last_ = {};
  audits_ = next_step_ = 0;
  const auto numbers_of = [&](const std::string& name, std::int64_t count) -> const double* {
    const auto found = state.find(name);
    const bool fits = found != state.end() && found->second.numel() == count && found->second.scalar_type() == torch::kFloat64;
    return fits ? found->second.contiguous().data_ptr<double>() : nullptr;
  };
  if (const double* const n = numbers_of(kCounts, kCountNumbers)) {
    audits_ = static_cast<std::uint64_t>(n[0]);
    next_step_ = static_cast<std::uint64_t>(n[1]);
    trained_ = {n[2], n[3], n[4]};
    audited_ = {n[5], n[6], n[7]};
    last_ = {n[8], n[9], n[10]};
  }
  for (std::size_t k = 0; k < known_.size(); ++k) {
    const double* const n = numbers_of(state_name(config_.audited[k]), kKnownNumbers);
    if (n != nullptr && config_.audited[k].fixed == 0) known_[k] = {std::clamp(n[0], kLeast, kMost), n[1], n[2] != 0, n[3], n[4]};
  }
  set_rates();
}

nlohmann::json audit_json(const AuditRecord& record, const std::vector<pipeline::CutCodecs>& codecs, const AutoRatesConfig& bounds) {
  nlohmann::json cuts = nlohmann::json::array();
  for (const CutAudit& cut : record.cuts) {
    nlohmann::json line = session::metrics_line(cut);
    line.update({{"cut", cut.at.cut}, {"direction", name_of(cut.at.direction)}, {"codec", codecs[cut.at.cut].of(cut.at.direction)}});
    cuts.push_back(std::move(line));
  }
  return {{"kind", "audit"},
          {"epoch", record.epoch},
          {"step", record.step},
          {"valid", record.valid},
          {"loss", record.loss},
          {"loss_added", record.loss_added},
          {"loss_bound", bounds.loss_added},
          {"harm", record.harm},
          {"bound", bounds.harm},
          {"noise", record.noise},
          {"wire_bytes", record.wire_bytes()},
          {"samples", record.took.samples},
          {"cuts", std::move(cuts)}};
}

std::uint64_t AuditRecord::wire_bytes() const { return static_cast<std::uint64_t>(bytes_of(took)); }

std::string describe(const AuditRecord& record) {
  if (!record.valid) return fmt::format("audit before step {}: the gradients are not finite, or zero; rates stay", record.step);
  std::string text =
      fmt::format("audit before step {}: loss added {:.2g}, harm {:.3g}; bits per value", record.step, record.loss_added, record.harm);
  for (const CutAudit& cut : record.cuts) {
    text +=
        fmt::format("{} cut {} {} {:.3g}", &cut == record.cuts.data() ? ":" : ",", cut.at.cut, name_of(cut.at.direction), cut.next_rate);
  }
  return text;
}

}  // namespace epipe::train
