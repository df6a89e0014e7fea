// A pipeline whose workers are in several processes: here each "process" is a Pipeline of its own with its own copy of the model.
#include <gtest/gtest.h>

#include <future>
#include <map>

#include "epipe/transport/inproc/inproc.h"
#include "support/training.h"

namespace epipe::pipeline {
namespace {

using namespace epipe::testing;

// The ends of the links of all cuts, until their process takes them.
class Network {
 public:
  std::unique_ptr<transport::Link> take(int cut, int worker, int peer) {
    const std::lock_guard lock(mutex_);
    auto& ends = ends_[cut];
    if (ends.empty()) {
      auto [one, other] = transport::make_inproc_link(16);
      ends[worker] = std::move(one);
      ends[peer] = std::move(other);
    }
    return std::move(ends[worker]);
  }

 private:
  std::mutex mutex_;
  std::map<int, std::map<int, std::unique_ptr<transport::Link>>> ends_;
};

struct Process {
  model::Model model;
  std::unique_ptr<Pipeline> pipeline;
};

Process make_process(PipelineConfig config, int own, Network& network) {
  for (int w = 0; w < config.placement.workers(); ++w) {
    if (w != own) config.remote.workers.push_back(w);
  }
  config.remote.link = [&network, own](int cut, int peer) { return network.take(cut, own, peer); };
  config.remote.timeout = std::chrono::seconds(20);
  Process process{make_model("cnn", kImages, 7), nullptr};
  process.pipeline = std::make_unique<Pipeline>(process.model.layers, config, classification_loss);
  return process;
}

// What process `own` may see of the batch: inputs where the first stage is, targets where the last one is.
Batch visible(const Batch& batch, const PipelineConfig& config, int own) {
  Batch part = batch;
  if (config.placement.worker_of.front() != own) part.inputs.clear();
  if (config.placement.worker_of.back() != own) part.targets = torch::Tensor();
  return part;
}

struct PlacedSchedule {
  std::vector<int> placement;
  std::string schedule = "gpipe";

  friend void PrintTo(const PlacedSchedule& c, std::ostream* out) {
    *out << schedule::to_string(schedule::Placement{c.placement}) << ", " << c.schedule;
  }
};

class Placements : public ::testing::TestWithParam<PlacedSchedule> {};

TEST_P(Placements, InSeveralProcessesComputeWhatOneProcessComputes) {
  const std::vector<int>& placement = GetParam().placement;
  PipelineConfig config;
  config.placement = {placement};
  config.schedule = GetParam().schedule;
  for (std::size_t j = 1; j < placement.size(); ++j) config.cuts.push_back(j);
  config.chunks = 3;
  config.codecs.assign(config.cuts.size(), {"sort:6+2", "sort:6+2"});
  const auto batch = random_batch(kImages, 8, 11);

  const auto whole = make_model("cnn", kImages, 7);
  Pipeline one(whole.layers, config, classification_loss);
  const auto expected = one.train_step(batch, {0, 5});

  Network network;
  std::vector<Process> processes;
  for (int w = 0; w < config.placement.workers(); ++w) processes.push_back(make_process(config, w, network));
  std::vector<std::future<StepResult>> steps;
  for (int w = 0; w < config.placement.workers(); ++w) {
    steps.push_back(std::async(std::launch::async, [&, w] {
      return processes[static_cast<std::size_t>(w)].pipeline->train_step(visible(batch, config, w), {0, 5});
    }));
  }
  double loss = 0;
  std::uint64_t bytes = 0;
  for (auto& step : steps) {
    const auto result = step.get();
    loss += result.loss;
    for (const auto& traffic : result.forward) bytes += traffic.wire_bytes;
  }
  EXPECT_EQ(loss, expected.loss);
  std::uint64_t expected_bytes = 0;
  for (const auto& traffic : expected.forward) expected_bytes += traffic.wire_bytes;
  EXPECT_EQ(bytes, expected_bytes);

  for (std::size_t j = 0; j < placement.size(); ++j) {
    const std::size_t end = j + 1 < placement.size() ? config.cuts[j] : whole.layers.size();
    const auto& own = processes[static_cast<std::size_t>(placement[j])].model.layers;
    for (std::size_t l = j == 0 ? 0 : config.cuts[j - 1]; l < end; ++l) {
      const auto want = whole.layers[l]->parameters();
      const auto got = own[l]->parameters();
      for (std::size_t p = 0; p < want.size(); ++p) EXPECT_TRUE(torch::equal(got[p].grad(), want[p].grad())) << "layer " << l;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(ChainsAndRings, Placements,
                         ::testing::Values(PlacedSchedule{{0, 1}}, PlacedSchedule{{0, 1, 0}}, PlacedSchedule{{0, 1, 2}},
                                           PlacedSchedule{{0, 1, 2, 0}}, PlacedSchedule{{0, 1}, "zb-h1"},
                                           PlacedSchedule{{0, 1, 2}, "zb-h1"}));

TEST(RemoteWorkers, APeerThatNeverSendsIsAnErrorWithinTheDeadline) {
  PipelineConfig config;
  config.placement = {{0, 1, 0}};
  config.cuts = {1, 2};
  config.remote.workers = {1};
  std::vector<std::unique_ptr<transport::Link>> silent;
  config.remote.link = [&](int, int) {
    auto [here, there] = transport::make_inproc_link(4);
    silent.push_back(std::move(there));
    return std::move(here);
  };
  config.remote.timeout = std::chrono::milliseconds(100);
  const auto model = make_model("cnn", kImages, 7);
  Pipeline pipeline(model.layers, config, classification_loss);
  EXPECT_THROW(pipeline.train_step(random_batch(kImages, 4, 1), {}), transport::TimedOut);
}

}  // namespace
}  // namespace epipe::pipeline
