#include "epipe/train/rate_record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace epipe::train {
namespace {

using session::NamedTensors;

constexpr const char* kChanges = "link/changes";
constexpr std::int64_t kNumbers = 5;  // of a change, before its rates: step, up, down, round trip, seconds

std::vector<double> listed(const pipeline::Rates& rates) {
  std::vector<double> all;
  for (const pipeline::CutRates& cut : rates) all.insert(all.end(), {cut.forward, cut.backward});
  return all;
}

[[noreturn]] void refuse(std::string_view text, std::size_t cuts) {
  throw std::invalid_argument(
      fmt::format("--rate-changes: expected STEP:BITS,BITS,... with ; between and {} bits for each step, as config.toml has it, got {}",
                  2 * cuts, text));
}

template <typename T>
bool read_number(std::string_view& text, T& value) {
  const auto [stop, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  return true;
}

bool skip(std::string_view& text, char what) {
  if (!text.starts_with(what)) return false;
  text.remove_prefix(1);
  return true;
}

bool is_before(const RateChange& one, const RateChange& other) { return one.step < other.step; }

}  // namespace

RateRecord::RateRecord(std::size_t cuts, std::string_view record) : cuts_(cuts), changes_(parse(record)), repeats_(!record.empty()) {}

std::vector<RateChange> RateRecord::parse(std::string_view text) const {
  std::vector<RateChange> changes;
  std::string_view left = text;
  while (!left.empty()) {
    RateChange change;
    if (!changes.empty() && !skip(left, ';')) refuse(text, cuts_);
    if (!read_number(left, change.step)) refuse(text, cuts_);
    std::vector<double> bits;
    for (char before = ':'; bits.size() < 2 * cuts_; before = ',') {
      if (!skip(left, before) || !read_number(left, bits.emplace_back()) || !session::is_rate(bits.back())) refuse(text, cuts_);
    }
    for (std::size_t i = 0; i < bits.size(); i += 2) change.rates.push_back({bits[i], bits[i + 1]});
    if (!changes.empty() && changes.back().step >= change.step) refuse(text, cuts_);
    changes.push_back(std::move(change));
  }
  return changes;
}

const RateChange* RateRecord::at(std::uint64_t step) const {
  const auto after = std::upper_bound(changes_.begin(), changes_.end(), RateChange{step, {}}, is_before);
  return after == changes_.begin() ? nullptr : &*(after - 1);
}

void RateRecord::add(RateChange change) {
  if (!changes_.empty() && change.step <= changes_.back().step) throw std::logic_error("rates are changed after a later change");
  changes_.push_back(std::move(change));
}

std::string RateRecord::text() const {
  std::vector<std::string> all;
  for (const RateChange& change : changes_) all.push_back(fmt::format("{}:{}", change.step, fmt::join(listed(change.rates), ",")));
  return fmt::format("{}", fmt::join(all, ";"));
}

NamedTensors RateRecord::state() const {
  if (changes_.empty()) return {};
  std::vector<double> numbers;
  for (const RateChange& change : changes_) {
    const session::LinkMeasurement link = change.link.value_or(session::LinkMeasurement{});
    numbers.insert(numbers.end(), {static_cast<double>(change.step), link.up, link.down, link.round_trip, change.seconds});
    const auto rates = listed(change.rates);
    numbers.insert(numbers.end(), rates.begin(), rates.end());
  }
  const auto rows = static_cast<std::int64_t>(changes_.size());
  return {{kChanges, torch::tensor(numbers, torch::kFloat64).reshape({rows, -1})},
          {"link/repeats", torch::tensor(repeats_ ? 1.0 : 0.0, torch::kFloat64)}};
}

void RateRecord::set_state(const NamedTensors& state) {
  const auto found = state.find(kChanges);
  const auto columns = static_cast<std::int64_t>(kNumbers + 2 * cuts_);
  if (found == state.end() || found->second.dim() != 2 || found->second.size(1) != columns) return;
  const auto table = found->second.to(torch::kFloat64).contiguous();
  std::vector<RateChange> changes;
  for (std::int64_t row = 0; row < table.size(0); ++row) {
    const double* const n = table.data_ptr<double>() + row * columns;
    RateChange change{static_cast<std::uint64_t>(n[0]), {}, std::nullopt, n[4]};
    if (n[1] > 0) change.link = session::LinkMeasurement{n[1], n[2], n[3]};
    for (std::size_t j = 0; j < cuts_; ++j) change.rates.push_back({n[kNumbers + 2 * j], n[kNumbers + 2 * j + 1]});
    for (const pipeline::CutRates& cut : change.rates) {
      if (!session::is_rate(cut.forward) || !session::is_rate(cut.backward)) return;
    }
    changes.push_back(std::move(change));
  }
  const auto same = [](const RateChange& a, const RateChange& b) { return a.step == b.step && same_rates(a, b); };
  const bool begins_ours = changes.size() <= changes_.size() && std::equal(changes.begin(), changes.end(), changes_.begin(), same);
  if (begins_ours) return;
  changes_ = std::move(changes);
  const auto repeats = state.find("link/repeats");
  repeats_ = repeats != state.end() && repeats->second.numel() == 1 && repeats->second.item<double>() != 0;
}

bool same_rates(const RateChange& one, const RateChange& other) { return listed(one.rates) == listed(other.rates); }

pipeline::Rates at_least(const pipeline::Rates& needed, const RateChange* change) {
  if (change == nullptr) return needed;
  pipeline::Rates rates = change->rates;
  for (std::size_t j = 0; j < needed.size(); ++j) {
    rates[j] = {std::max(rates[j].forward, needed[j].forward), std::max(rates[j].backward, needed[j].backward)};
  }
  return rates;
}

nlohmann::json rates_json(const RateChange& change, std::uint64_t epoch) {
  nlohmann::json cuts = nlohmann::json::array();
  for (std::size_t j = 0; j < change.rates.size(); ++j) {
    if (change.rates[j].forward > 0) cuts.push_back({{"cut", j}, {"direction", "forward"}, {"rate", change.rates[j].forward}});
    if (change.rates[j].backward > 0) cuts.push_back({{"cut", j}, {"direction", "backward"}, {"rate", change.rates[j].backward}});
  }
  nlohmann::json line = {{"kind", "rates"}, {"epoch", epoch}, {"step", change.step}, {"cuts", std::move(cuts)}};
  if (change.link) {
    line.update({{"up_MBps", change.link->up / 1e6},
                 {"down_MBps", change.link->down / 1e6},
                 {"round_trip_seconds", change.link->round_trip},
                 {"predicted_seconds", change.seconds}});
  }
  return line;
}

std::string describe(const RateChange& change) {
  std::string text = fmt::format("from step {} on", change.step);
  if (change.link) {
    text += fmt::format(" the link carries {:.3g} Mbit/s up and {:.3g} down", change.link->up * 8e-6, change.link->down * 8e-6);
  }
  std::vector<std::string> bits;
  for (std::size_t j = 0; j < change.rates.size(); ++j) {
    if (change.rates[j].forward > 0) bits.push_back(fmt::format("cut {} forward {:.3g}", j, change.rates[j].forward));
    if (change.rates[j].backward > 0) bits.push_back(fmt::format("cut {} backward {:.3g}", j, change.rates[j].backward));
  }
  return text + (bits.empty() ? "; bits as harm asks for" : fmt::format("; bits per value: {}", fmt::join(bits, ", ")));
}

}  // namespace epipe::train
