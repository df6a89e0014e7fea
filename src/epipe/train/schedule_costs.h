#pragma once

#include <string>
#include <string_view>

#include "epipe/schedule/costs.h"
#include "epipe/train/plan.h"

namespace epipe::train {

// The costs for which a run's schedule is ordered, in seconds, as text: "forward=0.01,0.2,0.01;backward=...;transfer-forward=0.001,0.001;
// transfer-backward=...;delay=0.05,0.05". Three digits; empty without stages.
std::string costs_text(const schedule::Costs& costs);
// For untrusted text. Throws std::invalid_argument.
schedule::Costs parse_costs(std::string_view text, int stages);

// Delays a quarter longer: the costs to order a run for, because an order that is fixed has to bear frames that come late.
schedule::Costs with_late_frames(schedule::Costs costs);

inline constexpr std::string_view kAutoInFlight = "auto";
// The value of --in-flight: 0 if it is empty, or if it is auto and nothing was measured. What auto chooses keeps far workers busy also
// where actions take a third less than the costs say. Throws std::invalid_argument.
int resolve_in_flight(const std::string& text, const Plan& plan);

}  // namespace epipe::train
