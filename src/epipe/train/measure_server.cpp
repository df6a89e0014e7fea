#include "epipe/train/measure_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "epipe/base/clock.h"
#include "epipe/base/median.h"
#include "epipe/session/servers.h"
#include "epipe/train/assemble.h"
#include "epipe/transport/connector.h"
#include "epipe/transport/measure_link.h"

namespace epipe::train {
namespace {

constexpr transport::Timeout kMeasureTimeout = std::chrono::seconds(60);
constexpr std::size_t kSmallMessage = 64;
constexpr std::size_t kLargestMessage = std::size_t{1} << 20;
constexpr double kMeasureSeconds = 0.2;   // for each size and direction
constexpr double kQuickMessage = 0.05;    // seconds: if a message is faster, a larger one is measured
constexpr int kProbeSteps = 3;            // of each size at least, after one warm-up step
constexpr int kMostProbeSteps = 15;
constexpr double kStepsSeconds = 0.3;     // of each size, for more than the least
constexpr std::int64_t kProbeSamples[] = {2, 8};

// A train of messages takes a round trip in addition to the time for its bytes.
double payload_rate(const transport::LinkSpeed& speed, double megabytes_per_s, double round_trip) {
  const double bytes = static_cast<double>(speed.bytes) * speed.messages;
  const double seconds = bytes / (1e6 * megabytes_per_s);
  return bytes / std::max(seconds - round_trip, 0.1 * seconds);
}

// The next size: what takes kQuickMessage at this rate, and 8 times more at least, for the first messages after a pause are slow.
std::size_t larger(std::size_t bytes, double rate) {
  const auto quick = static_cast<std::size_t>(std::min(kQuickMessage * rate, static_cast<double>(kLargestMessage)));
  return std::max(8 * bytes, quick);
}

double bytes_of_part(const std::vector<planner::Layer>& layers, std::size_t begin, std::size_t end) {
  double bytes = 0;
  for (std::size_t l = begin; l < end; ++l) bytes += 4 * layers[l].parameters;
  const double crossing = 2 * 4 * (layers[begin - 1].values + layers[end - 1].values);
  for (const std::int64_t samples : kProbeSamples) bytes += (kProbeSteps + 1) * crossing * static_cast<double>(samples);
  return bytes;
}

// A session that trains a few samples at a time and keeps nothing.
TrainConfig probe_config(const TrainConfig& config, const ProbePart& part) {
  TrainConfig probe = config;
  probe.cuts = {fmt::to_string(part.begin), fmt::to_string(part.end)};
  probe.place = {0, 1, 0};
  probe.chunks = 1;
  probe.schedule = "gpipe";
  probe.codec = "none";
  probe.codec_forward.clear();
  probe.codec_backward.clear();
  probe.codec_at.clear();
  probe.resume = false;
  probe.replicas = 1;
  probe.clip = 0;
  probe.run_dir = (std::filesystem::temp_directory_path() / "epipe-probe-writes-nothing").string();
  return probe;
}

layer::Batch probe_batch(const Batches& batches, std::int64_t samples) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(std::min(samples, batches.training_data().size())));
  std::iota(ids.begin(), ids.end(), 0);
  return batches.training_data().batch(ids);
}

// What one size of a micro-batch showed: medians of its steps.
struct ProbedSize {
  double samples = 0;
  double forward = 0;  // of the server
  double backward = 0;
  double around = 0;
};

ProbedSize probe_size(session::Coordinator& coordinator, const layer::Batch& batch, std::uint64_t& step) {
  std::vector<double> forward;
  std::vector<double> backward;
  std::vector<double> around;
  const Stopwatch all;
  for (int round = 0; round <= kProbeSteps || (round <= kMostProbeSteps && all.seconds() < kStepsSeconds); ++round, ++step) {
    const Stopwatch watch;
    const auto done = coordinator.forward_backward(batch, {.step = step, .chunks = 1}, 0);
    coordinator.commit(step, 0);
    const double seconds = watch.seconds();
    if (round == 0) continue;
    const auto& own = done.workers.at(0);
    const auto& server = done.workers.at(1);
    forward.push_back(server.forward);
    backward.push_back(server.backward);
    around.push_back(std::max(0.0, seconds - own.forward - own.backward - own.wait));
  }
  return {static_cast<double>(batch.size()), median(forward), median(backward), median(around)};
}

ProbeTimes times_of(const std::vector<ProbedSize>& sizes) {
  ProbeTimes times;
  for (const ProbedSize& size : sizes) {
    times.sizes.push_back(size.samples);
    times.forward.push_back(size.forward);
    times.backward.push_back(size.backward);
  }
  times.around = sizes.back().around;
  return times;
}

}  // namespace

planner::Link measure_link(const transport::ConnectConfig& dial) {
  transport::Connector connector(dial);
  const auto channel = connector.open({{"channel", "measure"}});
  const auto measured = [&](std::size_t bytes) { return transport::measure_link(*channel, {bytes}, kMeasureSeconds, kMeasureTimeout)[0]; };
  const transport::LinkSpeed small = measured(kSmallMessage);
  const double round_trip = small.round_trip_seconds;
  planner::Link link;
  link.frame = small.lone_cpu_seconds;
  link.server_ends = kServerEnds;
  link.delay = std::max(0.0, round_trip / 2 - kServerEnds * link.frame);
  for (std::size_t bytes = std::size_t{1} << 14; bytes <= kLargestMessage; bytes = larger(bytes, std::min(link.up, link.down))) {
    const auto speed = measured(bytes);
    link.up = payload_rate(speed, speed.send_MBps, round_trip);
    link.down = payload_rate(speed, speed.recv_MBps, round_trip);
    link.carry = std::max(0.0, speed.cpu_seconds - small.cpu_seconds) / static_cast<double>(bytes);
    if (static_cast<double>(bytes) / std::min(link.up, link.down) > kQuickMessage) break;
  }
  return link;
}

ProbePart choose_probe(const std::vector<planner::Layer>& layers, double most_bytes) {
  if (layers.size() < 3) throw std::invalid_argument(fmt::format("expected a model of at least 3 layers, got {}", layers.size()));
  ProbePart best{1, 2};
  double most_flops = -1;
  double fewest_bytes = planner::kUnlimited;
  for (std::size_t begin = 1; begin + 1 < layers.size(); ++begin) {
    double flops = 0;
    for (std::size_t end = begin + 1; end < layers.size(); ++end) {
      flops += layers[end - 1].flops;
      const double bytes = bytes_of_part(layers, begin, end);
      const bool fits = bytes <= most_bytes;
      if (fits ? flops > most_flops : most_flops < 0 && flops > 0 && bytes < fewest_bytes) {
        best = {begin, end};
        if (fits) most_flops = flops;
        fewest_bytes = bytes;
      }
    }
  }
  return best;
}

ProbeTimes probe_server(const Registry& registry, const TrainConfig& config, const ProbePart& part, const transport::ConnectConfig& dial) {
  session::Servers servers({dial.address}, dial, session::new_session_key());
  const TrainConfig probe = probe_config(config, part);
  AssembleOptions options;
  options.connector = &servers;
  RunParts run = assemble(registry, probe, std::move(options));
  run.coordinator->connect();
  std::vector<ProbedSize> sizes;
  std::uint64_t step = 0;
  for (const std::int64_t samples : kProbeSamples) {
    sizes.push_back(probe_size(*run.coordinator, probe_batch(*run.batches, std::min(samples, config.batch)), step));
  }
  run.coordinator->end();
  return times_of(sizes);
}

}  // namespace epipe::train
