// epipe schedule: prints and prices a schedule, as a grid or CSV
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "epipe/cli/command.h"
#include "epipe/cli/costs_file.h"
#include "epipe/schedule/in_flight.h"
#include "epipe/schedule/print.h"
#include "epipe/schedule/simulate.h"

namespace epipe::cli {
namespace {

struct ScheduleFlags {
  std::string schedule = "gpipe";
  std::string place;
  int chunks = 0;
  std::string costs_file;
  bool csv = false;
  bool json = false;
  bool fit = false;
  std::vector<double> forward;
  std::vector<double> backward;
  std::vector<double> backward_input;
  std::vector<double> backward_weights;
  std::vector<double> transfer;
  std::vector<double> delay;
  std::string in_flight;
};

template <typename T>
T value_or_usage(Result<T> result, std::string_view flag) {
  if (!result) throw UsageError(fmt::format("{}: {}", flag, result.error().message));
  return std::move(result).value();
}

bool has_costs(const ScheduleFlags& flags) {
  return !flags.forward.empty() || !flags.backward.empty() || !flags.backward_input.empty() || !flags.backward_weights.empty() ||
         !flags.transfer.empty() || !flags.delay.empty();
}

// A single value applies to all.
std::vector<double> spread(const std::vector<double>& values, double otherwise, int count) {
  if (values.size() > 1) return values;
  return std::vector<double>(static_cast<std::size_t>(count), values.empty() ? otherwise : values.front());
}

schedule::Costs costs_from_flags(const ScheduleFlags& flags, int stages) {
  const auto transfer = spread(flags.transfer, 0, stages - 1);
  schedule::Costs costs{spread(flags.forward, 1, stages), spread(flags.backward, 1, stages), transfer, transfer, {}, {}, {}};
  if (!flags.backward_input.empty()) costs.backward_input = spread(flags.backward_input, 0, stages);
  if (!flags.backward_weights.empty()) costs.backward_weights = spread(flags.backward_weights, 0, stages);
  if (!flags.delay.empty()) costs.delay = spread(flags.delay, 0, stages - 1);
  if (const auto fits = check(costs, stages); !fits) throw UsageError(fmt::format("--costs: {}", fits.error().message));
  return costs;
}

void print_summary(const schedule::Timeline& timeline, std::string_view unit) {
  fmt::print("makespan {:.6g}{}, bubble {:.1f} %, peak live activations {} by stage, {} by worker\n", timeline.makespan, unit,
             100 * timeline.bubble, fmt::join(timeline.peak_live_of_stage, ","), fmt::join(timeline.peak_live_of_worker, ","));
}

void print_price(const schedule::Schedule& made, const schedule::Costs& costs) {
  const auto timeline = value_or_fail(simulate(made, costs));
  const double serial = serial_time(made.chunks, costs);
  const bool splits = std::find(made.split.begin(), made.split.end(), true) != made.split.end();
  const double least = least_makespan(made.placement, made.chunks, costs, splits);
  fmt::print("with these costs: ");
  print_summary(timeline, "");
  if (least == 0) return;
  fmt::print("speed-up over one worker {:.2f}, at most {:.2f} with this placement\n", serial / timeline.makespan, serial / least);
}

constexpr std::string_view kAuto = "auto";

// What a step's price is based on; without resources, only the costs.
struct Price {
  const schedule::Costs& costs;
  const schedule::Resources* resources = nullptr;
};

int in_flight_of(const ScheduleFlags& flags, const schedule::Placement& placement, const Price& price) {
  if (flags.in_flight.empty()) return 0;
  if (flags.in_flight == kAuto) {
    auto chosen = schedule::choose_in_flight({flags.schedule, placement, flags.chunks, price.costs, {}, price.resources});
    return value_or_usage(std::move(chosen), "--in-flight").in_flight;
  }
  int number = 0;
  const char* const end = flags.in_flight.data() + flags.in_flight.size();
  const auto parsed = std::from_chars(flags.in_flight.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end || number < 1 || number > schedule::kMaxChunks) {
    throw UsageError(fmt::format("--in-flight: expected auto or a number from 1 to {}, got {}", schedule::kMaxChunks, flags.in_flight));
  }
  return number;
}

// `auto` depends on the costs, and so does the order.
schedule::Schedule make_schedule(const ScheduleFlags& flags, const schedule::Placement& placement, const Price& price) {
  const int in_flight = in_flight_of(flags, placement, price);
  const bool fit = flags.fit || flags.in_flight == kAuto;
  const auto generator = value_or_usage(schedule::find_generator(flags.schedule), "--schedule");
  const auto slots = schedule::slot_costs(placement.stages(), generator.splits_backward);
  auto made = schedule::generate(flags.schedule, placement, flags.chunks, fit ? price.costs : slots, in_flight);
  if (made && flags.in_flight == kAuto && !flags.csv && !flags.json) fmt::print("in flight: {}\n", in_flight);
  return value_or_usage(std::move(made), "--chunks");
}

// A step with links, codecs and shared cores.
void price_step(const ScheduleFlags& flags, const schedule::Placement& placement) {
  const PricedStep step = read_costs_file(flags.costs_file, placement);
  const auto made = make_schedule(flags, placement, {step.costs, &step.resources});
  const auto timeline = value_or_fail(simulate(made, step.costs, step.resources));
  if (!flags.json) return print_summary(timeline, " s");
  const nlohmann::json line = {{"makespan", timeline.makespan},
                               {"bubble_of_worker", timeline.bubble_of_worker},
                               {"live_of_worker", timeline.peak_live_of_worker},
                               {"serial_time", serial_time(made.chunks, step.costs)}};
  fmt::print("{}\n", line.dump());
}

void run_schedule(const ScheduleFlags& flags) {
  const auto generator = value_or_usage(schedule::find_generator(flags.schedule), "--schedule");
  const auto placement = value_or_usage(schedule::parse_placement(flags.place), "--place");
  if (const auto fits = check(generator, placement); !fits) throw UsageError(fmt::format("--place: {}", fits.error().message));
  if (!flags.costs_file.empty()) return price_step(flags, placement);
  const auto costs = costs_from_flags(flags, placement.stages());
  const auto made = make_schedule(flags, placement, {costs});
  if (flags.csv) {
    fmt::print("{}", value_or_fail(to_csv(made)));
    return;
  }
  fmt::print("{}", value_or_fail(to_grid(made)));
  print_summary(value_or_fail(simulate(made, slot_costs(made))), " slots");
  if (has_costs(flags)) print_price(made, costs);
}

}  // namespace

void add_schedule_command(CLI::App& app) {
  auto flags = std::make_shared<ScheduleFlags>();  // owned by the callback as well
  auto* command = app.add_subcommand("schedule", "Show and price a schedule: who runs which micro-batch when");
  command->add_option("--schedule", flags->schedule, schedule::schedule_help())->capture_default_str();
  command->add_option("--place", flags->place, "The worker of each stage: 0,1,2 is a chain, 0,1,0 a ring")->required();
  command->add_option("--chunks", flags->chunks, "Micro-batches")->required();
  command->add_flag("--csv", flags->csv, "worker,slot,kind,micro_batch,stage instead of the grid");
  const auto costs = [&](const char* name, std::vector<double>& values, const char* text) {
    command->add_option(name, values, text)->delimiter(',');
  };
  costs("--costs-forward", flags->forward, "Cost of a forward on each stage, or one value for all (1)");
  costs("--costs-backward", flags->backward, "Cost of a backward on each stage, or one value for all (1)");
  costs("--costs-backward-input", flags->backward_input, "Cost of the gradient of a stage's input if backward is split (half)");
  costs("--costs-backward-weights", flags->backward_weights, "Cost of the gradients of its weights if backward is split (half)");
  costs("--costs-transfer", flags->transfer, "Cost of crossing each cut, in either direction, or one value for all (0)");
  costs("--costs-delay", flags->delay, "Delay of a frame at each cut besides its transfer, or one value for all (0)");
  command->add_option("--in-flight", flags->in_flight,
                      "Most micro-batches a stage may hold, or auto: the fewest within 1 % of the shortest step with these costs");
  auto* const file = command->add_option("--costs", flags->costs_file,
                                         "Price a step with links, codecs and shared cores, in seconds, from this JSON file");
  command->add_flag("--json", flags->json, "With --costs: the price as one JSON object")->needs(file);
  command->add_flag("--fit", flags->fit, "Order the actions for these costs instead of equal ones");
  command->callback([flags] { run_schedule(*flags); });
}

}  // namespace epipe::cli
