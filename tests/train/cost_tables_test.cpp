// What the planner is told of a model and this machine.
#include "epipe/train/cost_tables.h"

#include <gtest/gtest.h>

#include <thread>

#include "epipe/train/codec_costs.h"
#include "epipe/train/measure_server.h"
#include "support/models.h"

namespace epipe::train {
namespace {

TEST(FitLine, GoesThroughTwoPointsAndNeverBelowZero) {
  const auto line = fit_line({{2, 5}, {4, 9}});
  EXPECT_NEAR(line.fixed, 1, 1e-12);
  EXPECT_NEAR(line.per_one, 2, 1e-12);
  const auto origin = fit_line({{2, 1}, {4, 9}});  // would be -7 at 0
  EXPECT_EQ(origin.fixed, 0);
  EXPECT_NEAR(origin.per_one, 10.0 / 6, 1e-12);
  const auto falling = fit_line({{2, 9}, {4, 5}});
  EXPECT_NEAR(falling.fixed, 7, 1e-12);
  EXPECT_EQ(falling.per_one, 0);
  EXPECT_NEAR(fit_line({{4, 8}}).per_one, 2, 1e-12);
}

class CostTables : public ::testing::Test {
 protected:
  CostTables() {
    config_.model = "cnn";
    config_.batch = 16;
    batches_ = std::make_unique<Batches>(registry_, config_, data::DataSpec::Kind::kImages, 0);
    architecture_ = registry_.models.architecture("cnn", batches_->spec());
  }

  Registry registry_;
  TrainConfig config_;
  std::unique_ptr<Batches> batches_;
  model::Architecture architecture_;
};

TEST_F(CostTables, CountParametersAndWhatCrosses) {
  const ModelTable table = model_table(architecture_, config_, *batches_);
  ASSERT_EQ(table.layers.size(), architecture_.layers.size());
  EXPECT_TRUE(table.batch_norm);
  EXPECT_GT(table.layers.front().flops, 0);
  EXPECT_EQ(table.layers.front().trained, table.layers.front().parameters);
  EXPECT_EQ(table.layers.back().values, static_cast<double>(batches_->spec().classes));
}

TEST_F(CostTables, HaveTimesAndMemoryOfEveryLayerAtSizesDownToTheLeast) {
  const DeviceTable table = device_table(registry_, architecture_, config_, *batches_, torch::kCPU, 4);
  const ModelTable model = model_table(architecture_, config_, *batches_);
  EXPECT_EQ(table.sizes, (std::vector<double>{4, 8, 16}));
  ASSERT_EQ(table.forward.size(), architecture_.layers.size());
  for (std::size_t l = 0; l < table.forward.size(); ++l) {
    ASSERT_EQ(table.forward[l].size(), 3U);
    for (std::size_t size = 0; size < 3; ++size) {
      EXPECT_GT(table.forward[l][size], 0) << l;
      EXPECT_GT(table.backward[l][size], 0) << l;
    }
    EXPECT_GE(table.kept_bytes[l], 3 * model.layers[l].values) << l << ": its outputs are kept, at the least";
  }
}

TEST_F(CostTables, PriceCodecsByWhatTheyWrite) {
  const ModelTable model = model_table(architecture_, config_, *batches_);
  const auto boundaries = boundaries_of(registry_, architecture_, config_, *batches_, model.layers);
  ASSERT_EQ(boundaries.size(), architecture_.layers.size() - 1);
  const auto none = codec_costs("none", boundaries, 1);
  EXPECT_NEAR(none.bits, 32, 0.5);
  EXPECT_NEAR(none.forward[0].bytes.per_one, 4, 1e-6);
  EXPECT_GT(none.forward[0].bytes.fixed, 0);
  EXPECT_FALSE(none.lossy());
  const auto two = codec_costs("auto:2", boundaries, 1);
  ASSERT_EQ(two.forward.size(), architecture_.layers.size());
  ASSERT_EQ(two.backward.size(), architecture_.layers.size());
  EXPECT_LT(two.bits, 2.5);
  EXPECT_GT(two.bits, 0.1);
  EXPECT_GT(two.forward[0].encode.of(1e5), none.forward[0].encode.of(1e5));
  EXPECT_THROW(codec_costs("nonsense", boundaries, 1), std::invalid_argument);
  EXPECT_THROW(codec_costs("conv:20x3", boundaries, 1), std::invalid_argument);
}

TEST(StateBytes, AreGradientAndMoments) {
  EXPECT_EQ(state_bytes({OptimizerConfig::Kind::kSgd}), 4);
  EXPECT_EQ(state_bytes({OptimizerConfig::Kind::kSgd, 0.9}), 8);
  EXPECT_EQ(state_bytes({OptimizerConfig::Kind::kAdamW}), 12);
  EXPECT_GT(update_seconds({OptimizerConfig::Kind::kSgd}), 0);
}

TEST(Cores, AreAtLeastOneAndAtMostThoseOfTheMachine) {
  const double cores = measured_cores();
  EXPECT_GE(cores, 1);
  EXPECT_LE(cores, std::max(1U, std::thread::hardware_concurrency()));
}

TEST(Probe, TakesTheMostWorkForItsBytes) {
  std::vector<planner::Layer> layers(6);
  for (auto& layer : layers) layer.flops = 1, layer.parameters = 1000, layer.values = 100;
  layers[3].flops = 50;
  const ProbePart small = choose_probe(layers, 4 * 1000 + 4 * 10 * 2 * 4 * 200);
  EXPECT_EQ(small.begin, 3U);
  EXPECT_EQ(small.end, 4U);
  const ProbePart all = choose_probe(layers, 1e9);
  EXPECT_EQ(all.begin, 1U);
  EXPECT_EQ(all.end, 5U);
  const ProbePart none_fits = choose_probe(layers, 1);
  EXPECT_EQ(none_fits.end, none_fits.begin + 1);
  layers.resize(2);
  EXPECT_THROW(choose_probe(layers, 1e9), std::invalid_argument);
}

}  // namespace
}  // namespace epipe::train
