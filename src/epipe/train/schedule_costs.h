#pragma once

#include <string>
#include <string_view>

#include "epipe/schedule/costs.h"
#include "epipe/train/plan.h"

namespace epipe::train {

// What the schedule of a run is ordered for, in seconds, as text: "forward=0.01,0.2,0.01;backward=...;transfer-forward=0.001,0.001;
// transfer-backward=...;delay=0.05,0.05". Three digits; no stages: empty.
std::string costs_text(const schedule::Costs& costs);
// Trusts nothing. Throws std::invalid_argument.
schedule::Costs parse_costs(std::string_view text, int stages);

inline constexpr std::string_view kAutoInFlight = "auto";
// What --in-flight says: 0 where it is empty, or where it is auto and nothing was measured. Throws std::invalid_argument.
int resolve_in_flight(const std::string& text, const Plan& plan);

}  // namespace epipe::train
