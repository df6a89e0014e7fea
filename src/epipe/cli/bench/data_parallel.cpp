#include "epipe/cli/bench/data_parallel.h"

#include <array>
#include <future>

#include "epipe/base/clock.h"
#include "epipe/base/median.h"
#include "epipe/pipeline/chunks.h"
#include "epipe/session/reducer.h"
#include "epipe/train/loss.h"
#include "epipe/transport/measure_link.h"

namespace epipe::cli {
namespace {

using transport::Group;

constexpr std::size_t kBucketBytes = std::size_t{4} << 20;  // the default of epipe train

std::array<std::unique_ptr<Group>, 2> two_ranks() {
  transport::GroupConfig config;
  config.size = 2;
  config.master_port = transport::free_port();
  auto second = std::async(std::launch::async, [config]() mutable {
    config.rank = 1;
    return transport::make_group(config);
  });
  auto first = transport::make_group(config);
  return {std::move(first), second.get()};
}

double loopback_MBps(std::array<std::unique_ptr<Group>, 2>& ranks, std::size_t bytes) {
  const auto here = ranks[0]->link(1, 0);
  const auto there = ranks[1]->link(0, 0);
  auto served = std::async(std::launch::async, [&] { transport::serve_measurement(*there, std::chrono::seconds(10)); });
  const auto speed = transport::measure_link(*here, {bytes}, 0.3, std::chrono::seconds(10));
  here->close();
  served.wait();
  return speed.at(0).send_MBps;
}

class Replica {
 public:
  Replica(const Subject& subject, int index, int chunks, std::unique_ptr<Group> group)
      : batch_(pipeline::slice(subject.batch, pipeline::split(subject.batch.size(), 2)[static_cast<std::size_t>(index)])),
        samples_(subject.batch.size()),
        model_(model_of(subject)),
        reducer_(std::move(group), model_.layers, kBucketBytes, nullptr),
        pipeline_(model_.layers, config(chunks), train::make_loss(subject.data)) {}

  pipeline::StepResult step() {
    auto result = pipeline_.train_step(batch_, {0, step_++, 0, false, samples_});
    pipeline_.commit_batch();
    return result;
  }

 private:
  pipeline::PipelineConfig config(int chunks) {
    pipeline::PipelineConfig config;
    config.chunks = chunks;
    config.exchange = &reducer_;
    return config;
  }

  layer::Batch batch_;
  std::int64_t samples_;
  model::Model model_;
  session::Reducer reducer_;
  pipeline::Pipeline pipeline_;
  std::uint64_t step_ = 0;
};

}  // namespace

DataParallel measure_data_parallel(const Subject& subject, int chunks, int rounds) {
  DataParallel result;
  pipeline::PipelineConfig one;
  one.chunks = chunks;
  Steps alone(subject, one);
  auto ranks = two_ranks();
  auto rate_ranks = two_ranks();
  Replica first(subject, 0, std::max(1, chunks / 2), std::move(ranks[0]));
  Replica second(subject, 1, std::max(1, chunks / 2), std::move(ranks[1]));
  std::vector<double> alone_seconds;
  std::vector<double> together_seconds;
  std::vector<double> wait_seconds;
  for (int round = 0; round < rounds + 2; ++round) {  // alternating, so that both see the same machine
    const double a = alone.time_one();
    const Stopwatch watch;
    auto other = std::async(std::launch::async, [&] { second.step(); });
    const auto done = first.step();
    other.get();
    const double b = watch.seconds();
    result.sent_bytes = done.workers[0].all_reduce_bytes;
    if (round < 2) continue;  // warm up
    alone_seconds.push_back(a);
    together_seconds.push_back(b);
    wait_seconds.push_back(done.workers[0].all_reduce);
  }
  result.loopback_MBps = loopback_MBps(rate_ranks, result.sent_bytes);
  result.one_ms = 1e3 * median(alone_seconds);
  result.two_ms = 1e3 * median(together_seconds);
  result.wait_ms = 1e3 * median(wait_seconds);
  result.bound_ms = result.one_ms / 2 + static_cast<double>(result.sent_bytes) / 1e3 / result.loopback_MBps;
  return result;
}

}  // namespace epipe::cli
