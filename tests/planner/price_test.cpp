// What a choice costs, and what no choice can cost.
#include "epipe/planner/price.h"

#include <gtest/gtest.h>

#include "epipe/planner/bound.h"
#include "epipe/planner/possible.h"
#include "planner/tables.h"

namespace epipe::planner {
namespace {

Choice ring_of(std::size_t first, std::size_t second, int chunks, const std::string& schedule = "gpipe") {
  return {{first, second}, {0, 1, 0}, chunks, {{0, 0}, {0, 0}}, schedule, 0};
}

TEST(Price, OfOneMicroBatchIsTheSumOfItsRoad) {
  Inputs inputs = equal_inputs(4);
  inputs.link = {1e6, 5e5, 0.25, 0};
  // 4 layers of 16 samples forward and backward; 64000 bytes up and down, twice each; four delays.
  const Price price = Pricer(inputs).price(ring_of(1, 3, 1));
  EXPECT_NEAR(price.seconds, 4 * 16 * 3e-3 + 2 * 0.064 + 2 * 0.128 + 4 * 0.25, 1e-9);
  EXPECT_NEAR(price.samples_per_s, 16 / price.seconds, 1e-9);
  EXPECT_DOUBLE_EQ(price.bytes_up, 128000);
  EXPECT_DOUBLE_EQ(price.bytes_down, 128000);
}

TEST(Price, CountsWeightsOptimizerAndLiveActivations) {
  Inputs inputs = equal_inputs(4);
  inputs.state_bytes = 8;
  for (Layer& layer : inputs.layers) layer.parameters = layer.trained = 100, layer.kept_bytes = 10;
  inputs.layers[1].trained = 50;
  const Price all_live = Pricer(inputs).price(ring_of(1, 3, 4));
  EXPECT_DOUBLE_EQ(all_live.memory[1], 1e8 + 2 * 400 + 8 * 150 + 16 * 20);
  const Price few_live = Pricer(inputs).price(ring_of(1, 3, 4, "1f1b"));
  EXPECT_DOUBLE_EQ(few_live.memory[1], 1e8 + 2 * 400 + 8 * 150 + 8 * 20);  // two of four micro-batches
  inputs.recompute = true;
  EXPECT_DOUBLE_EQ(Pricer(inputs).price(ring_of(1, 3, 4)).memory[1], 1e8 + 2 * 400 + 8 * 150 + 16 * 4000);
}

TEST(Price, HasNoGradientsInFrontOfTheFirstTrainedLayer) {
  Inputs inputs = equal_inputs(4);
  inputs.first_trained = 2;
  const Price price = Pricer(inputs).price(ring_of(1, 3, 1));
  EXPECT_DOUBLE_EQ(price.bytes_down, 64000);  // forward of the second cut; no gradient at the first
  EXPECT_NEAR(price.seconds, 16 * (4 * 1e-3 + 2 * 2e-3), 1e-9);
}

TEST(Price, IsAtLeastTheTimeToLoadTheData) {
  Inputs inputs = equal_inputs(4);
  inputs.cores = {2, 2};
  inputs.load_seconds = 1;
  EXPECT_DOUBLE_EQ(Pricer(inputs).price(ring_of(1, 3, 4)).seconds, 8);
  EXPECT_EQ(bindings(inputs, ring_of(1, 3, 4)).front().resource, "data");
}

TEST(Price, AddsTheOptimizerOfTheClientAndWhatTheServersIsLater) {
  Inputs inputs = equal_inputs(4);
  const double without = Pricer(inputs).price(ring_of(1, 3, 1)).seconds;
  for (Layer& layer : inputs.layers) layer.trained = 1e6;
  inputs.workers[0].update = 1e-9;
  EXPECT_NEAR(Pricer(inputs).price(ring_of(1, 3, 1)).seconds, without + 2e-3, 1e-9);
  inputs.workers[1].update = 1e-9;  // while the client is at its first layer
  EXPECT_NEAR(Pricer(inputs).price(ring_of(1, 3, 1)).seconds, without + 2e-3, 1e-9);
  inputs.workers[1].update = 1e-7;
  EXPECT_NEAR(Pricer(inputs).price(ring_of(1, 3, 1)).seconds, without + 0.2 - 16e-3, 1e-9);
}

// Caches hold a small micro-batch: four of 4 samples may take less, or more, than one of 16.
TEST(Price, TakesWhatLayersTakeAtTheSizeOfTheMicroBatch) {
  Inputs inputs = equal_inputs(4);
  for (Worker& worker : inputs.workers) {
    worker.sizes = {2, 8, 16};
    worker.forward.assign(4, {1e-3, 3e-3, 11e-3});
    worker.backward.assign(4, {0, 0, 0});
  }
  const auto seconds = [&](int chunks, double batch) {
    inputs.batch = batch;
    return Pricer(inputs).price(ring_of(1, 3, chunks)).seconds;
  };
  EXPECT_NEAR(seconds(1, 16), 4 * 11e-3, 1e-9);
  EXPECT_NEAR(seconds(1, 4), 4 * (1e-3 + 2e-3 / 3), 1e-9) << "between two sizes";
  EXPECT_NEAR(seconds(1, 24), 4 * 19e-3, 1e-9) << "beyond the largest";
  EXPECT_NEAR(seconds(1, 1), 4 * (1e-3 - 1e-3 / 3), 1e-9) << "below the smallest";
  for (Worker& worker : inputs.workers) worker.sizes = {8}, worker.forward.assign(4, {3e-3}), worker.backward.assign(4, {0});
  EXPECT_NEAR(seconds(1, 4), 4 * 1.5e-3, 1e-9) << "a single size, in proportion";
}

TEST(Price, AddsUpTheGradientsOfAllMicroBatchesButTheFirst) {
  Inputs inputs = equal_inputs(4);
  for (Layer& layer : inputs.layers) layer.trained = 1e6;
  inputs.workers[1].forward.assign(4, {0, 1});  // the server is busy all the time
  inputs.workers[1].backward.assign(4, {0, 1});
  const auto seconds = [&](int chunks) { return Pricer(inputs).price(ring_of(1, 3, chunks)).seconds; };
  const double one = seconds(1);
  const double four = seconds(4);
  inputs.workers[1].accumulate = 1e-9;
  EXPECT_NEAR(seconds(1), one, 1e-9);
  EXPECT_NEAR(seconds(4), four + 3 * 2e-3, 1e-9) << "two layers";
}

TEST(Price, ChargesEveryMessage) {
  Inputs inputs = equal_inputs(4);
  const double before = Pricer(inputs).price(ring_of(1, 3, 1)).seconds;
  inputs.link.frame = 0.1;
  EXPECT_NEAR(Pricer(inputs).price(ring_of(1, 3, 1)).seconds, before + 4 * 0.1, 1e-9) << "two cuts, there and back";
  inputs.link.server_ends = 3;
  EXPECT_NEAR(Pricer(inputs).price(ring_of(1, 3, 1)).seconds, before + 4 * 0.3, 1e-9) << "one of whose ends is a server's";
}

TEST(Price, CountsWhatAStepTakesAroundItsActions) {
  Inputs inputs = equal_inputs(4);
  const double before = Pricer(inputs).price(ring_of(1, 3, 1)).seconds;
  inputs.step_seconds = 0.1;
  EXPECT_NEAR(Pricer(inputs).price(ring_of(1, 3, 1)).seconds, before + 0.1, 1e-9);
}

// Gradients are other tensors than activations, and those of one layer others than those of the next.
TEST(Price, TakesACodecAtItsLayerAndDirection) {
  Inputs inputs = equal_inputs(4);
  inputs.batch = 1;
  inputs.codecs[0].forward.assign(4, {});
  inputs.codecs[0].forward[0].encode.fixed = 1;  // behind layer 0
  inputs.codecs[0].forward[2].decode.fixed = 2;
  inputs.codecs[0].backward.assign(4, {});
  inputs.codecs[0].backward[1].encode.fixed = 4;
  const auto codecs = [&](std::size_t first, std::size_t second) {
    Choice choice = ring_of(first, second, 1);
    Inputs free = inputs;
    free.codecs = {codec_of("none", 32, 0, 0, 0, 0)};
    return Pricer(inputs).price(choice).seconds - Pricer(free).price(choice).seconds;
  };
  EXPECT_NEAR(codecs(1, 3), 3, 1e-9);
  EXPECT_NEAR(codecs(2, 3), 6, 1e-9);
}

// 16 micro-batches in a ring with a server 0.1 s away.
TEST(Order, IsForTheDelayWhereThatIsFaster) {
  Inputs inputs = random_inputs(1, 6);
  inputs.batch = 64;
  inputs.link = {1e7, 1e7, 0.1, 0};
  inputs.codecs = {codec_of("auto:2", 2, 200, 1e-9, 1e-9, 1e-6)};
  const Choice choice{{1, 5}, {0, 1, 0}, 16, {{0, 0}, {0, 0}}, "1f1b", 8};
  Pricer pricer(inputs);
  const Priced best = pricer.best_order(choice);
  EXPECT_LT(best.price.seconds, 0.9 * pricer.price(choice).seconds);
  EXPECT_EQ(best.choice.costs, schedule::rounded(best.choice.costs)) << "as a run's settings say it";
  EXPECT_DOUBLE_EQ(pricer.price(best.choice).seconds, best.price.seconds) << "the choice says all";
  inputs.link.delay = 0;
  Pricer near(inputs);
  const Priced here = near.best_order({{1, 5}, {0, 1, 0}, 1, {{0, 0}, {0, 0}}, "gpipe", 0});
  EXPECT_TRUE(here.choice.costs.forward.empty()) << "one micro-batch has one order";
}

TEST(Bindings, NameWhatIsSlow) {
  const auto binds = [](const std::function<void(Inputs&)>& change) {
    Inputs inputs = equal_inputs(6);
    change(inputs);
    return bindings(inputs, ring_of(2, 4, 4)).front().resource;
  };
  EXPECT_EQ(binds([](Inputs& i) { i.link.up = 1e5; }), "up");
  EXPECT_EQ(binds([](Inputs& i) { i.link.down = 1e5; }), "down");
  EXPECT_EQ(binds([](Inputs& i) { i.link.delay = 10; }), "latency");
  EXPECT_EQ(binds([](Inputs& i) { i.codecs[0].forward[0].encode.per_one = 1e-4; }), "codec");
  EXPECT_EQ(binds([](Inputs& i) { i.workers[0].backward.assign(6, {0, 1}); }), "client");
  EXPECT_EQ(binds([](Inputs& i) { i.workers[1].forward.assign(6, {0, 1}); }), "server 1");
}

TEST(Bound, IsNeverAboveTheSimulation) {
  for (unsigned seed = 1; seed <= 30; ++seed) {
    Inputs inputs = random_inputs(seed, 7);
    inputs.ring = seed % 2 == 0;
    Pricer pricer(inputs);
    const auto place = default_place(inputs);
    for (const std::string& name : possible_schedules(inputs, {place})) {
      for (const int chunks : possible_chunks(inputs)) {
        Choice choice{{2, 5}, place, chunks, {{0, 1}, {1, 0}}, name, 0};
        choice.cuts.resize(place.size() - 1);
        choice.codecs.resize(choice.cuts.size());
        const double least = least_seconds(inputs, stage_costs(inputs, pricer.sums(), choice), chunks, name == "zb-h1");
        EXPECT_LE(least, pricer.price(choice).seconds * (1 + 1e-9)) << name << " seed " << seed << " chunks " << chunks;
      }
    }
  }
}

TEST(Bound, IsTheSimulationOfOneMicroBatch) {
  const Inputs inputs = equal_inputs(6);
  Pricer pricer(inputs);
  const Choice choice = ring_of(2, 4, 1);
  EXPECT_NEAR(least_seconds(inputs, stage_costs(inputs, pricer.sums(), choice), 1), pricer.price(choice).seconds, 1e-9);
}

}  // namespace
}  // namespace epipe::planner
