#include "epipe/serve/admission.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "epipe/schedule/generate.h"
#include "epipe/schedule/overlapped.h"
#include "epipe/schedule/simulate.h"
#include "epipe/session/audit.h"
#include "epipe/train/plan.h"

namespace epipe::serve {
namespace {

// The largest schedule, in stages times micro-batches, that is generated for an unchecked plan.
constexpr std::size_t kMaxActions = std::size_t{1} << 18;

// How many micro-batches the schedule holds on this worker at once.
int in_flight(const train::Plan& plan, int worker) {
  if (plan.delay > 0) {  // forwards of a step and what its backwards have left of the step before, on each of its stages
    const auto stages = static_cast<int>(std::count(plan.place.begin(), plan.place.end(), worker));
    return stages * (2 * plan.chunks - schedule::early_count(plan.chunks));
  }
  const auto equal = schedule::equal_costs(static_cast<int>(plan.place.size()), 1, 2);
  const auto& costs = plan.costs.forward.empty() ? equal : plan.costs;
  const int chunks = std::max(plan.chunks, session::most_at_once(train::pipeline_config(plan)));
  const auto made = schedule::generate(plan.schedule, {plan.place}, chunks, costs, plan.in_flight);
  if (!made) throw std::invalid_argument(made.error().message);
  const auto timeline = schedule::simulate(made.value(), costs);
  if (!timeline) throw std::invalid_argument(timeline.error().message);
  return timeline.value().peak_live_of_worker.at(static_cast<std::size_t>(worker));
}

}  // namespace

void admit(const nlohmann::json& json, int worker, const SessionLimits& limits, const model::Registry& models) {
  const train::Plan plan = train::plan_from_json(json);
  if (!models.is_portable(plan.model)) {
    auto names = models.names();
    std::erase_if(names, [&](const std::string& name) { return !models.is_portable(name); });
    throw std::invalid_argument(
        fmt::format("this server knows no model \"{}\"; it knows {}, roberta and hf by their configs, and TorchScript files by their hash",
                    plan.model, fmt::join(names, ", ")));
  }
  if (plan.threads > limits.threads) {
    throw std::invalid_argument(fmt::format("{} threads per worker, but this server allows {}", plan.threads, limits.threads));
  }
  if (worker == plan.place.front() || worker == plan.place.back()) {
    throw std::invalid_argument("the first and the last stage stay with the client: a server must not see inputs or labels");
  }
  if (plan.place.size() * static_cast<std::size_t>(plan.chunks) > kMaxActions) {
    throw std::invalid_argument(fmt::format("{} stages of {} chunks are too many to price; use fewer", plan.place.size(), plan.chunks));
  }
  const int needed = in_flight(plan, worker);
  if (needed > limits.in_flight && plan.delay > 0) {
    throw std::invalid_argument(
        fmt::format("--delay 1 with {} chunks holds {} micro-batches here at once, but this server allows {}; "
                    "use fewer --chunks, or leave --delay out",
                    plan.chunks, needed, limits.in_flight));
  }
  if (needed > limits.in_flight) {
    throw std::invalid_argument(
        fmt::format("the schedule {} with {} chunks holds {} micro-batches here at once, but this server allows {}; "
                    "use fewer --chunks, --schedule 1f1b or --in-flight {}",
                    plan.schedule, plan.chunks, needed, limits.in_flight, limits.in_flight));
  }
}

}  // namespace epipe::serve
