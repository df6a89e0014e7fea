// Runs with --delay 1: stopped and resumed they end as ones that were not, and what they do not go with is refused by name.
#include <functional>

#include "epipe/train/assemble.h"
#include "support/temp_folder.h"
#include "support/train_run.h"

namespace epipe::train {
namespace {

using testing::TempFolder;

TrainConfig delayed_run(const std::string& run_dir) {
  TrainConfig config = testing::small_run(run_dir);
  config.clip = 0;
  config.delay = 1;
  config.place = {0, 1, 0};
  config.chunks = 4;
  config.codec = "power:2";
  config.data_part = 0.05;
  config.epochs = 3;
  return config;
}

TEST(Delay, AStoppedRunGoesOnToTheSameWeights) {
  const TempFolder folder;
  TrainConfig whole = delayed_run(folder.file("whole"));
  whole.max_steps = 11;
  testing::run(whole);
  TrainConfig stopped = whole;
  stopped.run_dir = folder.file("stopped");
  stopped.checkpoint_every = 4;
  EXPECT_TRUE(testing::run(stopped, 5).stopped);
  stopped.resume = true;
  testing::run(stopped);
  testing::expect_equal_weights(whole.run_dir, stopped.run_dir);
  const auto lines = testing::metrics_in(whole.run_dir, "step");
  const auto resumed = testing::metrics_in(stopped.run_dir, "step");
  ASSERT_EQ(lines.size(), 11U);
  ASSERT_EQ(resumed.size(), 11U);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].at("step"), i);
    EXPECT_EQ(lines[i].at("loss"), resumed[i].at("loss"));
    EXPECT_EQ(lines[i].at("samples"), resumed[i].at("samples"));
  }
}

TEST(Delay, StagesAndWorkersChangeNoWeight) {
  const TempFolder folder;
  TrainConfig one = delayed_run(folder.file("one"));
  one.codec = "none";
  TrainConfig several = one;
  one.place = {0};
  testing::run(one);
  several.run_dir = folder.file("several");
  several.place = {0, 1, 2};
  several.recompute = true;
  testing::run(several);
  testing::expect_equal_weights(one.run_dir, several.run_dir);
  EXPECT_EQ(testing::metrics_in(one.run_dir, "epoch").back().at("val_loss"),
            testing::metrics_in(several.run_dir, "epoch").back().at("val_loss"));
  TrainConfig at_once = one;
  at_once.run_dir = folder.file("at-once");
  at_once.delay = 0;
  testing::run(at_once);
  EXPECT_FALSE(torch::equal(testing::weights_in(one.run_dir).begin()->second, testing::weights_in(at_once.run_dir).begin()->second));
}

// All that crossed the cuts is in the lines, also what the last backwards sent.
TEST(Delay, CountsWhatCrosses) {
  const TempFolder folder;
  const auto bytes_of = [&](int delay) {
    TrainConfig config = delayed_run(folder.file(std::to_string(delay)));
    config.codec = "uniform:8";
    config.delay = delay;
    testing::run(config);
    std::uint64_t sum = 0;
    for (const auto& line : testing::metrics_in(config.run_dir, "epoch")) sum += line.at("wire_bytes").get<std::uint64_t>();
    return sum;
  };
  EXPECT_EQ(bytes_of(1), bytes_of(0));
}

TEST(Delay, SaysWhatItDoesNotGoWith) {
  const TempFolder folder;
  const auto refusal = [&](const std::function<void(TrainConfig&)>& change) -> std::string {
    TrainConfig config = delayed_run(folder.file("refused"));
    change(config);
    try {
      assemble(testing::registry(), config, {});
    } catch (const std::invalid_argument& refused) {
      return refused.what();
    }
    return "taken";
  };
  const auto names = [](const std::string& text, const std::string& what) {
    return text.starts_with("--delay 1 does not go with ") && text.find(what) != std::string::npos &&
           text.find("leave one of the two out") != std::string::npos;
  };
  const std::vector<std::pair<std::string, std::function<void(TrainConfig&)>>> refused = {
      {"--clip", [](auto& c) { c.clip = 1; }},
      {"--replicas", [](auto& c) { c.replicas = 2; }},
      {"--reuse-activations", [](auto& c) { c.reuse_activations = true, c.connect = {"far:1"}; }},
      {"--loss-scaling", [](auto& c) { c.loss_scaling = "on"; }},
      {"--schedule 1f1b", [](auto& c) { c.schedule = "1f1b"; }},
      {"--schedule zb-h1",
       [](auto& c) {
         c.schedule = "zb-h1", c.place = {0, 1, 2};
       }},
      {"--in-flight", [](auto& c) { c.in_flight = "4"; }},
      {"--in-flight", [](auto& c) { c.in_flight = "auto"; }},
      {"auto without a number", [](auto& c) { c.codec = "auto"; }},
      {"--audit", [](auto& c) { c.codec = "dct:1", c.audit = true; }},
      {"linear:4", [](auto& c) { c.codec = "linear:4"; }},
      {"--follow-link", [](auto& c) { c.codec = "dct:2", c.follow_link = true; }},
      {"--rate-changes", [](auto& c) { c.codec = "dct:2", c.rate_changes = "0:2,2,2,2"; }},
  };
  EXPECT_EQ(refusal([](auto&) {}), "taken");
  for (const auto& [what, change] : refused) {
    const std::string text = refusal(change);
    EXPECT_TRUE(names(text, what)) << what << ": " << text;
  }
}

}  // namespace
}  // namespace epipe::train
