#include "epipe/cli/plan_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "epipe/cli/resume.h"
#include "epipe/planner/inputs_json.h"
#include "epipe/schedule/print.h"
#include "epipe/train/plan_inputs.h"

namespace epipe::cli {
namespace {

using nlohmann::ordered_json;
using planner::Choice;
using planner::Inputs;
using planner::Priced;

constexpr std::size_t kGridColumns = 120;
constexpr double kSmallGain = 0.01;

std::vector<std::string> codec_at_texts(const train::TrainConfig& config) {
  std::vector<std::string> texts;
  for (const train::CodecAt& at : config.codec_at) texts.push_back(to_string(at));
  return texts;
}

ordered_json flags_json(const Inputs& inputs, const Choice& choice) {
  const auto config = train::with_choice({}, inputs, choice);
  ordered_json flags = {{"cuts", config.cuts},     {"place", config.place}, {"schedule", config.schedule},
                        {"chunks", config.chunks}, {"codec", config.codec}, {"codec_at", codec_at_texts(config)}};
  if (inputs.harm > 0) flags["harm"] = inputs.harm;
  flags["in_flight"] = choice.in_flight > 0 ? ordered_json(choice.in_flight) : ordered_json(nullptr);
  flags["schedule_costs"] = config.schedule_costs.empty() ? ordered_json(nullptr) : ordered_json(config.schedule_costs);
  return flags;
}

ordered_json predicted_json(const Inputs& inputs, const planner::Price& price) {
  ordered_json memory = ordered_json::object();
  for (std::size_t w = 0; w < price.memory.size(); ++w) memory[inputs.workers[w].name] = price.memory[w];
  return {
      {"samples_per_s", price.samples_per_s}, {"seconds_per_step", price.seconds}, {"bytes_per_step", price.bytes_up + price.bytes_down},
      {"bytes_up", price.bytes_up},           {"bytes_down", price.bytes_down},    {"memory", memory}};
}

ordered_json priced_json(const Inputs& inputs, const Priced& priced) {
  return {{"flags", flags_json(inputs, priced.choice)},
          {"command", plan_flags(inputs, priced.choice)},
          {"predicted", predicted_json(inputs, priced.price)}};
}

std::string facts_text(const Inputs& inputs) {
  std::string text = "It rests on\n";
  for (const planner::Fact& fact : inputs.facts) text += fmt::format("  {:<14} {:<56} {}\n", fact.name, fact.value, fact.source);
  return text;
}

std::string memory_text(const Inputs& inputs, const planner::Price& price) {
  std::vector<std::string> parts;
  for (std::size_t w = 0; w < price.memory.size(); ++w) {
    parts.push_back(fmt::format("{} {:.0f} MB", inputs.workers[w].name, price.memory[w] / 1e6));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string binds_text(const planner::Proposal& proposal) {
  std::vector<std::string> parts;
  for (const planner::Binding& binding : proposal.binds) {
    if (binding.gain >= kSmallGain) parts.push_back(fmt::format("{} {:.0f} %", binding.resource, 100 * binding.gain));
  }
  if (parts.empty()) return "nothing by itself: making any one thing free saves less than 1 %";
  return fmt::format("{} of a step would go, were it free", fmt::join(parts, ", "));
}

std::string price_row(const Inputs& inputs, const Priced& p) {
  return fmt::format("  {:>10.4g} {:>10.3f}  {}\n", p.price.samples_per_s, (p.price.bytes_up + p.price.bytes_down) / 1e6,
                     plan_flags(inputs, p.choice));
}

// With as many columns as fit.
std::string grid_text(const Choice& choice) {
  const auto made = planner::make_schedule(choice);
  const auto grid = made ? to_grid(made.value()) : Result<std::string>(made.error());
  if (!grid) return "";
  std::string text;
  for (std::size_t begin = 0; begin < grid.value().size();) {
    const std::size_t end = std::min(grid.value().find('\n', begin), grid.value().size());
    const std::string line = grid.value().substr(begin, end - begin);
    text += line.size() > kGridColumns ? line.substr(0, kGridColumns) + " ..." : line;
    text += '\n';
    begin = end + 1;
  }
  return text;
}

}  // namespace

std::string plan_flags(const Inputs& inputs, const Choice& choice) {
  const auto config = train::with_choice({}, inputs, choice);
  std::string text = config.cuts.empty() ? "" : fmt::format("--cuts {} ", fmt::join(config.cuts, ","));
  text += fmt::format("--place {} --schedule {} --chunks {} --codec {}", fmt::join(config.place, ","), config.schedule, config.chunks,
                      shell_word(config.codec));
  if (choice.in_flight > 0) text += fmt::format(" --in-flight {}", choice.in_flight);
  if (!config.schedule_costs.empty()) text += " --schedule-costs " + shell_word(config.schedule_costs);
  for (const std::string& at : codec_at_texts(config)) text += " --codec-at " + shell_word(at);
  if (inputs.harm > 0) text += fmt::format(" --harm {}", inputs.harm);
  return text;
}

std::string plan_summary(const planner::Proposal& proposal) {
  const auto& binds = proposal.binds;
  const std::string what = binds.empty() || binds.front().gain < kSmallGain ? "" : fmt::format(", {} binds", binds.front().resource);
  return fmt::format("{:.4g} samples/s{}", proposal.best.price.samples_per_s, what);
}

std::string plan_text(const Inputs& inputs, const planner::Proposal& proposal) {
  const Priced& best = proposal.best;
  std::string text = facts_text(inputs);
  text += fmt::format("\nPlan\n  {}\n\n", plan_flags(inputs, best.choice));
  text += fmt::format("Predicted\n  {:.4g} samples/s: a step of {:.0f} samples takes {:.4g} s\n", best.price.samples_per_s, inputs.batch,
                      best.price.seconds);
  text += fmt::format("  {:.3f} MB up and {:.3f} MB down a step\n", best.price.bytes_up / 1e6, best.price.bytes_down / 1e6);
  text += fmt::format("  memory: {}\n  binds: {}\n\n", memory_text(inputs, best.price), binds_text(proposal));
  if (!proposal.runners_up.empty()) {
    text += fmt::format("Runners-up\n  {:>10} {:>10}  flags\n", "samples/s", "MB/step");
    for (const Priced& other : proposal.runners_up) text += price_row(inputs, other);
    text += '\n';
  }
  text += grid_text(best.choice);
  text += fmt::format("\n{} of {} combinations were simulated; {}\n", proposal.simulated, proposal.considered,
                      proposal.complete ? "by the bound, no other is faster" : "they are the most promising ones");
  return text;
}

ordered_json plan_json(const Inputs& inputs, const planner::Proposal& proposal) {
  ordered_json object = priced_json(inputs, proposal.best);
  for (const planner::Binding& binding : proposal.binds) {
    object["binds"].push_back({{"resource", binding.resource}, {"gain", binding.gain}});
  }
  object["runners_up"] = ordered_json::array();
  for (const Priced& other : proposal.runners_up) object["runners_up"].push_back(priced_json(inputs, other));
  object["search"] = {{"considered", proposal.considered}, {"simulated", proposal.simulated}, {"complete", proposal.complete}};
  object["facts"] = ordered_json::array();
  for (const planner::Fact& fact : inputs.facts) {
    object["facts"].push_back({{"name", fact.name}, {"value", fact.value}, {"source", fact.source}});
  }
  object["inputs"] = planner::to_json(inputs);
  return object;
}

}  // namespace epipe::cli
