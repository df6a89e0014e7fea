#include "epipe/train/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <map>
#include <thread>

#include "epipe/base/clock.h"
#include "epipe/train/assemble.h"
#include "epipe/train/schedule_costs.h"
#include "epipe/transport/refused.h"

namespace epipe::train {
namespace {

using schedule::Direction;
using schedule::Kind;
using schedule::PerCut;

constexpr std::size_t kProbeEvents = 100'000;
constexpr int kDrySteps = 2;
constexpr std::chrono::milliseconds kProbePause{500};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double smallest(const std::vector<double>& values) { return values.empty() ? 0 : *std::min_element(values.begin(), values.end()); }

// The stage of "F 0 1": its last number; -1: none.
int stage_in(std::string_view name) {
  int stage = -1;
  const std::size_t at = name.rfind(' ');
  if (at == std::string_view::npos) return -1;
  std::from_chars(name.data() + at + 1, name.data() + name.size(), stage);
  return stage;
}

// Drops events of steps before the last one, if the last one was recorded: timelines have a capacity.
std::vector<Tracer::Event> warmed_up(std::vector<Tracer::Event> events) {
  std::map<std::pair<int, std::string_view>, std::uint64_t> last;  // by track and category
  for (const auto& e : events) {
    std::uint64_t& step = last[{e.track, e.category}];
    step = std::max(step, e.step);
  }
  std::erase_if(events, [&](const Tracer::Event& e) { return e.step < last[{e.track, e.category}]; });
  return events;
}

// The times of a step's threads, by worker's stage or by cut.
class StepTimes {
 public:
  explicit StepTimes(std::vector<Tracer::Event> events) : events_(std::move(events)) {
    std::stable_sort(events_.begin(), events_.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  }

  double of_stage(std::string_view category, int stage) const {
    std::vector<double> seconds;
    for (const auto& e : events_) {
      if (e.category == category && stage_in(e.name) == stage) seconds.push_back(e.end - e.begin);
    }
    return median(std::move(seconds));
  }

  double of_codec(std::string_view category, int cut, Direction direction) const {
    std::vector<double> seconds;
    for (const auto& e : spans(category, cut, direction)) seconds.push_back(e.end - e.begin);
    return median(std::move(seconds));
  }

  // The time from the end of encoding to the beginning of decoding, for the frame that waited least.
  double under_way(int cut, Direction direction) const {
    const auto sent = spans("encode", cut, direction);
    const auto got = spans("decode", cut, direction);
    std::vector<double> seconds;
    for (std::size_t i = 0; i < std::min(sent.size(), got.size()); ++i) {
      if (sent[i].step == got[i].step) seconds.push_back(got[i].begin - sent[i].end);
    }
    return std::max(0.0, smallest(seconds));
  }

 private:
  // Tracks are numbered by boundary::track_of().
  std::vector<Tracer::Event> spans(std::string_view category, int cut, Direction direction) const {
    const int track = 100 + 4 * cut + 2 * static_cast<int>(direction) + (category == "decode" ? 1 : 0);
    std::vector<Tracer::Event> all;
    std::copy_if(events_.begin(), events_.end(), std::back_inserter(all),
                 [&](const Tracer::Event& e) { return e.track == track && e.category == category; });
    return all;
  }

  std::vector<Tracer::Event> events_;
};

std::vector<double>& of_direction(PerCut& values, Direction direction) {
  return direction == Direction::kForward ? values.forward : values.backward;
}

// Between two servers neither end is here: assumes that the delay is at most the longer one to here.
double one_way(const Measured& m, const schedule::Placement& placement, std::size_t cut) {
  const auto trip = [&](std::size_t stage) { return m.round_trip[static_cast<std::size_t>(placement.worker_of[stage])]; };
  return placement.crosses(static_cast<int>(cut)) ? std::max(trip(cut), trip(cut + 1)) / 2 : 0;
}

Measured from_times(const StepTimes& times, const pipeline::StepResult& result, std::vector<double> round_trip,
                    const schedule::Placement& placement, int chunks) {
  Measured m;
  m.round_trip = std::move(round_trip);
  for (int j = 0; j < placement.stages(); ++j) {
    m.forward.push_back(times.of_stage("forward", j));
    m.backward.push_back(times.of_stage("backward", j));
  }
  for (std::size_t j = 0; j < result.forward.size(); ++j) {
    const int cut = static_cast<int>(j);
    m.delay.push_back(one_way(m, placement, j));
    for (const Direction direction : schedule::kDirections) {
      const auto& traffic = direction == Direction::kForward ? result.forward[j] : result.backward[j];
      of_direction(m.bytes, direction).push_back(static_cast<double>(traffic.wire_bytes) / chunks);
      of_direction(m.encode, direction).push_back(times.of_codec("encode", cut, direction));
      of_direction(m.decode, direction).push_back(times.of_codec("decode", cut, direction));
      of_direction(m.transfer, direction).push_back(std::max(0.0, times.under_way(cut, direction) - m.delay[j]));
    }
  }
  return m;
}

template <typename Work>
auto retried(double seconds, const std::function<void(const std::string&)>& note, const Work& work) {
  const Stopwatch watch;
  for (bool told = false;; told = true) {
    try {
      return work();
    } catch (const transport::Refused& refused) {
      if (is_final(refused) || watch.seconds() >= seconds) throw;
      if (!told) note(fmt::format("cannot connect: {}; trying for {:.0f} s", refused.what(), seconds));
    } catch (const transport::ConnectionLost& lost) {
      if (watch.seconds() >= seconds) throw;
      if (!told) note(fmt::format("cannot measure: {}; trying for {:.0f} s", lost.what(), seconds));
    }
    std::this_thread::sleep_for(kProbePause);
  }
}

}  // namespace

schedule::Costs Measured::costs() const {
  schedule::Costs costs{forward, backward, transfer.forward, transfer.backward, {}, {}, delay};
  for (std::size_t j = 0; j < delay.size(); ++j) {
    costs.delay[j] += std::max(encode.forward[j] + decode.forward[j], encode.backward[j] + decode.backward[j]);
  }
  return costs;
}

Measured measure(const Registry& registry, const TrainConfig& config, session::PeerConnector& connector) {
  TrainConfig dry = config;
  dry.in_flight.clear();
  dry.delay = 0;  // what an action takes is the same
  dry.resume = false;
  Tracer tracer(kProbeEvents);
  AssembleOptions options;
  options.connector = &connector;
  options.tracer = &tracer;
  options.weights = files_of(config);
  RunParts run = assemble(registry, dry, std::move(options));
  run.coordinator->connect();
  data::LoadedBatch batch = run.batches->training(0)->next();
  pipeline::StepResult result;
  for (int i = 0; i < kDrySteps; ++i) {
    batch.step = static_cast<std::uint64_t>(i);
    result = run.forward_backward(batch, false);
  }
  auto events = tracer.events();
  const auto elsewhere = run.coordinator->timelines(tracer);
  events.insert(events.end(), elsewhere.begin(), elsewhere.end());
  auto trips = run.coordinator->round_trips();
  run.coordinator->end();
  const int chunks = static_cast<int>(std::min<std::int64_t>(run.plan.chunks, batch.batch.size()));
  return from_times(StepTimes(warmed_up(std::move(events))), result, std::move(trips), {run.plan.place}, chunks);
}

bool wants_measuring(const TrainConfig& config) {
  return config.delay == 0 && config.in_flight == kAutoInFlight && config.schedule_costs.empty() && !config.connect.empty() &&
         !config.resume;
}

TrainConfig with_measured_costs(const Registry& registry, TrainConfig config, session::PeerConnector& connector,
                                const std::function<void(const std::string&)>& note) {
  const Measured found = retried(config.reconnect, note, [&] { return measure(registry, config, connector); });
  config.schedule_costs = costs_text(with_late_frames(found.costs()));
  Plan plan;
  static_cast<SharedSettings&>(plan) = config;
  plan.costs = parse_costs(config.schedule_costs, static_cast<int>(plan.place.size()));
  config.in_flight = fmt::to_string(resolve_in_flight(std::string(kAutoInFlight), plan));
  const double longest = *std::max_element(found.round_trip.begin(), found.round_trip.end());
  note(fmt::format("measured: round trip {:.1f} ms; {} micro-batches in flight", 1e3 * longest, config.in_flight));
  return config;
}

}  // namespace epipe::train
