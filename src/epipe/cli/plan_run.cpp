#include "epipe/cli/plan_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <thread>

#include "epipe/base/clock.h"
#include "epipe/cli/plan_output.h"
#include "epipe/planner/search.h"
#include "epipe/train/plan_inputs.h"
#include "epipe/transport/refused.h"

namespace epipe::cli {
namespace {

// --delay: plans are for synchronous steps.
constexpr std::array kDecided = {"--cuts",          "--balance",        "--chunks",   "--schedule", "--codec",
                                 "--codec-forward", "--codec-backward", "--codec-at", "--delay"};

constexpr auto kPause = std::chrono::milliseconds(500);

train::PlanRequest request_for(const train::TrainConfig& config, const transport::ConnectConfig& dial) {
  train::PlanRequest request;
  request.config = config;
  request.dial = dial;
  if (config.follow_link) request.followed_bits = train::followed_bits(config);
  const std::string device = config.devices.empty() ? "cpu" : config.devices.front();
  std::string workers = "client:" + device;
  for (const std::string& address : config.connect) workers += ",server:" + address;
  auto parsed = planner::parse_workers(workers);
  if (!parsed) throw std::invalid_argument(parsed.error().message);
  request.workers = std::move(parsed).value();
  return request;
}

// With the same wording as training.
void say_or_give_up(const std::string& reason, double seconds, double most) {
  if (seconds + std::chrono::duration<double>(kPause).count() > most) {
    throw std::runtime_error(fmt::format("gave up after {:.0f} s: {}", seconds, reason));
  }
  fmt::print(stderr, "cannot connect: {}; trying for {:.0f} s\n", reason, most);
}

// Tries again where a server cannot be reached.
template <typename Work>
auto when_connected(const train::TrainConfig& config, const Work& work) {
  const Stopwatch watch;
  while (true) {
    try {
      return work();
    } catch (const transport::Refused& refused) {
      if (is_final(refused) || refused.why() == transport::Refusal::kUntrusted) throw;
      say_or_give_up(refused.what(), watch.seconds(), config.reconnect);
    } catch (const transport::ConnectionLost& lost) {
      say_or_give_up(lost.what(), watch.seconds(), config.reconnect);
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

bool plans_itself(const train::TrainConfig& config, const CLI::App& command) {
  const auto given = [&](const char* flag) { return command.count(flag) > 0; };
  return !config.connect.empty() && !config.resume && std::none_of(kDecided.begin(), kDecided.end(), given);
}

PlannedRun planned(const train::Registry& registry, const train::TrainConfig& config, const transport::ConnectConfig& dial,
                   std::set<std::string> given) {
  auto request = request_for(config, dial);
  request.given = std::move(given);
  return when_connected(config, [&]() -> PlannedRun {
    auto inputs = train::plan_inputs(registry, request);
    auto proposal = planner::search(inputs);
    if (!proposal) throw std::invalid_argument(proposal.error().message);
    const planner::Choice& choice = proposal.value().best.choice;
    fmt::print(stderr, "planned: {} (predicted {}; epipe plan says more)\n", plan_flags(inputs, choice), plan_summary(proposal.value()));
    PlannedRun run{train::with_choice(config, inputs, choice)};
    if (!config.follow_link) return run;
    const std::string least = inputs.harm > 0 ? "auto" : fmt::format("auto:{}", request.bits);  // the link says how many more
    if (!choice.cuts.empty()) run.config.codec = least;
    run.config.codec_at.clear();
    run.follow = train::FollowOptions{std::move(inputs)};
    return run;
  });
}

train::FollowOptions measured_for_following(const train::Registry& registry, const train::TrainConfig& config,
                                            const transport::ConnectConfig& dial) {
  auto request = request_for(config, dial);
  request.given = {"codec"};
  fmt::print(stderr, "measuring this machine, the link and {}, to choose bits by\n", fmt::join(config.connect, ", "));
  return when_connected(config, [&] { return train::FollowOptions{train::plan_inputs(registry, request)}; });
}

}  // namespace epipe::cli
