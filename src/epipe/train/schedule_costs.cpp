#include "epipe/train/schedule_costs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <stdexcept>

#include "epipe/base/printable.h"
#include "epipe/schedule/in_flight.h"

namespace epipe::train {
namespace {

using schedule::Costs;

constexpr double kMaxSeconds = 1e5;              // of an action or a transfer
constexpr std::size_t kMaxCostsBytes = 1 << 16;  // far more than kMaxStages need
constexpr int kServerHolds = 64;                 // micro-batches, unless configured otherwise
constexpr double kLateness = 1.25;               // factor on delays: frames arrive later than the fastest one, and the order is fixed
constexpr double kFastActions = 0.65;            // factor on actions: a run's take 0.6 to 0.8 of those measured before it (bench/distance)

struct CostsPart {
  std::string_view name;
  std::vector<double> Costs::*values;
};
constexpr std::array<CostsPart, 5> kCostsParts = {{{"forward", &Costs::forward},
                                                   {"backward", &Costs::backward},
                                                   {"transfer-forward", &Costs::transfer_forward},
                                                   {"transfer-backward", &Costs::transfer_backward},
                                                   {"delay", &Costs::delay}}};

[[noreturn]] void refuse_costs(std::string_view got) {
  throw std::invalid_argument(
      fmt::format("--schedule-costs: expected seconds of at most {:.0f} as in forward=0.01,0.2,0.01;backward=...;"
                  "transfer-forward=...;transfer-backward=...;delay=..., got {}",
                  kMaxSeconds, printable(std::string(got.substr(0, 64)))));
}

// The text before the next `end`, which goes too.
std::string_view take_until(std::string_view& text, char end) {
  const std::size_t at = std::min(text.find(end), text.size());
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return taken;
}

double cost_from(std::string_view text) {
  double value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  if (!whole || !(value >= 0 && value <= kMaxSeconds)) refuse_costs(text);
  return value;
}

Costs with_faster_actions(Costs costs) {
  for (auto* const actions : {&costs.forward, &costs.backward, &costs.backward_input, &costs.backward_weights}) {
    for (double& seconds : *actions) seconds *= kFastActions;
  }
  return costs;
}

}  // namespace

Costs with_late_frames(Costs costs) {
  for (double& delay : costs.delay) delay *= kLateness;
  return costs;
}

std::string costs_text(const Costs& costs) {
  if (costs.forward.empty()) return "";
  std::vector<std::string> parts;
  for (const CostsPart& part : kCostsParts) {
    const auto& values = costs.*part.values;
    if (!values.empty()) parts.push_back(fmt::format("{}={:.3g}", part.name, fmt::join(values, ",")));
  }
  return fmt::format("{}", fmt::join(parts, ";"));
}

Costs parse_costs(std::string_view text, int stages) {
  Costs costs;
  if (text.empty()) return costs;
  if (text.size() > kMaxCostsBytes) refuse_costs(text);
  while (!text.empty()) {
    std::string_view values = take_until(text, ';');
    const std::string_view name = take_until(values, '=');
    const auto part = std::find_if(kCostsParts.begin(), kCostsParts.end(), [&](const CostsPart& known) { return known.name == name; });
    if (part == kCostsParts.end()) refuse_costs(name);
    auto& into = costs.*part->values;
    into.clear();
    while (!values.empty()) into.push_back(cost_from(take_until(values, ',')));
  }
  if (const auto fits = check(costs, stages); !fits) throw std::invalid_argument("--schedule-costs: " + fits.error().message);
  return costs;
}

int resolve_in_flight(const std::string& text, const Plan& plan) {
  if (text.empty() || (text == kAutoInFlight && plan.costs.forward.empty())) return 0;
  if (text == kAutoInFlight) {
    const schedule::Placement placement{plan.place};
    std::vector<int> most(static_cast<std::size_t>(placement.workers()), kServerHolds);
    most[0] = schedule::kMaxChunks * schedule::kMaxStages;
    const schedule::InFlightQuestion question{
        plan.schedule, placement, plan.chunks, plan.costs, std::move(most), nullptr, {with_faster_actions(plan.costs)}};
    const auto chosen = schedule::choose_in_flight(question);
    if (!chosen) throw std::invalid_argument("--in-flight: " + chosen.error().message);
    return chosen.value().in_flight;
  }
  int number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && number >= 1 && number <= schedule::kMaxChunks) return number;
  throw std::invalid_argument(
      fmt::format("--in-flight: expected auto or a number from 1 to {}, got {}", schedule::kMaxChunks, printable(text)));
}

}  // namespace epipe::train
