// --follow-link: bits follow a link that a test makes fast and slow, and a run that is disturbed, resumed or repeated has the same weights.
#include "epipe/train/link_follower.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <fstream>
#include <map>
#include <random>
#include <set>

#include "epipe/train/plan_inputs.h"
#include "train/coordinated.h"

namespace epipe::train {
namespace {

using session::LinkMeasurement;
using testing::Countdown;
using testing::Fault;
using testing::Machines;
using testing::metrics_in;
using testing::TempFolder;

constexpr double kFast = 1e12;  // bytes per second
constexpr double kSlow = 1e4;
constexpr std::int64_t kFollowedSteps = 40;

// Fast, then slow from step 10 on, then fast again from step 25 on.
double dropping(std::uint64_t step) { return step >= 10 && step < 25 ? kSlow : kFast; }

TrainConfig followed_run(const std::string& codec, const std::string& run_dir) {
  TrainConfig config = testing::coordinated_run({0, 1, 0}, codec, run_dir);
  config.follow_link = true;
  config.epochs = 10;
  config.max_steps = kFollowedSteps;
  config.checkpoint_every = 7;
  config.audit_share = 0.2;
  return config;
}

// Of the model of these runs, and machines and codecs of given speeds: nothing that is chosen depends on how busy this machine is.
planner::Inputs costs_of(const TrainConfig& config) {
  static std::map<std::string, planner::Inputs> known;
  auto& inputs = known[config.codec];
  if (!inputs.layers.empty()) return inputs;
  PlanRequest request;
  request.config = config;
  request.given = {"codec"};
  request.followed_bits = followed_bits(config);
  request.workers = planner::parse_workers("client:cpu@20GF,server:host:7000@200GF").value();
  request.link = planner::parse_link("rate=10M,delay=1ms").value();
  inputs = plan_inputs(testing::registry(), request);
  for (planner::CodecCosts& codec : inputs.codecs) {
    for (auto* const all : {&codec.forward, &codec.backward}) {
      for (planner::FrameCosts& frame : *all) frame.encode = frame.decode = {};
    }
  }
  inputs.link.carry = inputs.load_seconds = 0;
  return inputs;
}

// Four seconds pass with every step.
class Follower final : public Observer {
 public:
  using Link = std::function<double(std::uint64_t step)>;
  explicit Follower(Link link = dropping) : link_(std::move(link)) {}

  FollowOptions options(const TrainConfig& config) {
    FollowOptions options{costs_of(config)};
    options.seconds = [this] { return 4.0 * static_cast<double>(steps_); };
    options.probe = [this](std::uint64_t, std::uint64_t) { return LinkMeasurement{link_(steps_), link_(steps_), 1e-4}; };
    return options;
  }
  void on_step(const Progress& progress) override {
    ++steps_;
    if (stop_after != 0 && progress.step >= stop_after) stop = true;
  }
  void on_epoch(const EpochResult&) override {}
  void on_note(const std::string&) override {}
  void on_rate_change(const RateChange& change) override { changes.push_back(change); }

  std::uint64_t stop_after = 0;
  std::atomic<bool> stop = false;
  std::vector<RateChange> changes;

 private:
  Link link_;
  std::uint64_t steps_ = 0;  // that were done, those done again included
};

void follow(const TrainConfig& config, Follower& follower, std::uint64_t stop_after = 0) {
  Countdown never;
  Machines machines(2, config.run_dir + "-state", never);
  follower.stop_after = stop_after;
  train(testing::registry(), config, follower, follower.stop, &machines, nullptr, follower.options(config));
}

std::string recorded(const std::string& run_dir) {
  std::ifstream file(run_dir + "/config.toml");
  const std::string key = "rate-changes = \"";
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) return line.substr(key.size(), line.size() - key.size() - 1);
  }
  return "";
}

// In one process, without a link, from what config.toml says.
void expect_that_its_record_repeats(const TrainConfig& config) {
  TrainConfig again = config;
  again.run_dir += "-again";
  again.resume = false;
  again.rate_changes = recorded(config.run_dir);
  ASSERT_NE(again.rate_changes, "");
  testing::run(again);
  testing::expect_equal_weights(config.run_dir, again.run_dir);
  EXPECT_EQ(recorded(again.run_dir), again.rate_changes);
}

double bits_at(const nlohmann::json& step) {
  double bytes = 0;
  double values = 0;
  for (const auto& cut : step.at("cuts")) {
    bytes += cut.at("wire_bytes").get<double>();
    values += cut.at("values").get<double>();
  }
  return 8 * bytes / values;
}

// 12 MB/s, where a busy machine made one round trip, and one way, longer than they are.
TEST(LinkRates, AreThoseOfTheShortestTimes) {
  const auto found = session::link_rates(1'200'000, 600'000, {{0.11, 0.30, 0.101}, {0.25, 0.06, 0.01}});
  EXPECT_NEAR(found.up, 12e6, 1);
  EXPECT_NEAR(found.down, 12e6, 1);
  EXPECT_EQ(found.round_trip, 0.01);
}

TEST(FollowedRun, TakesTheFewestBitsWhileTheLinkIsSlowAndTheMostWhileItIsFast) {
  const TempFolder folder;
  const auto config = followed_run("auto:2", folder.file("run"));
  Follower follower;
  follow(config, follower);
  ASSERT_EQ(follower.changes.size(), 3U);
  const std::vector<std::pair<std::uint64_t, double>> expected = {{0, 8}, {10, 2}, {25, 8}};
  for (std::size_t i = 0; i < 3; ++i) {
    const RateChange& change = follower.changes[i];
    EXPECT_GE(change.step, expected[i].first) << "not before it happens";
    EXPECT_LE(change.step, expected[i].first + 10) << "five steps and a pause after it happened";
    for (const auto& cut : change.rates) {
      EXPECT_EQ(cut.forward, expected[i].second) << i;
      EXPECT_EQ(cut.backward, expected[i].second) << i;
    }
  }
  const auto lines = metrics_in(config.run_dir, "rates");
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[1].at("step"), follower.changes[1].step);
  EXPECT_DOUBLE_EQ(lines[1].at("up_MBps"), kSlow / 1e6);
  EXPECT_EQ(lines[1].at("cuts").size(), 4U);
  EXPECT_EQ(lines[1].at("cuts")[0].at("rate"), 2);
  const auto steps = metrics_in(config.run_dir, "step");
  ASSERT_EQ(steps.size(), static_cast<std::size_t>(kFollowedSteps));
  EXPECT_GT(bits_at(steps[follower.changes[1].step - 1]), 5);
  EXPECT_LT(bits_at(steps[follower.changes[1].step]), 3);
  EXPECT_GT(bits_at(steps.back()), 5);
}

TEST(FollowedRun, ItsRecordRepeatsIt) {
  const TempFolder folder;
  for (const std::string codec : {"auto:2", "auto"}) {
    const auto config = followed_run(codec, folder.file(codec));
    Follower follower;
    follow(config, follower);
    EXPECT_EQ(follower.changes.size(), 3U);
    expect_that_its_record_repeats(config);
  }
}

// After the drop, before the checkpoint that was due.
TEST(FollowedRun, ThatIsResumedHasTheRatesThatItHad) {
  const TempFolder folder;
  auto config = followed_run("auto:2", folder.file("run"));
  Follower before;
  follow(config, before, 20);
  ASSERT_EQ(before.changes.size(), 2U);
  EXPECT_GE(before.changes[1].step, 14U);
  config.resume = true;
  Follower after([](std::uint64_t) { return kSlow; });
  follow(config, after);
  EXPECT_TRUE(after.changes.empty()) << "the link is as it was when the rates were chosen";
  EXPECT_EQ(metrics_in(config.run_dir, "rates").size(), 2U);
  for (const auto& step : metrics_in(config.run_dir, "step")) {
    if (step.at("step") < before.changes[1].step) continue;
    EXPECT_LT(bits_at(step), 3) << step.at("step");
  }
  expect_that_its_record_repeats(config);
}

TEST(FollowedRun, ThatRepeatsAnotherStillDoesWhenItIsResumed) {
  const TempFolder folder;
  const auto config = followed_run("auto:2", folder.file("run"));
  Follower follower;
  follow(config, follower);
  TrainConfig again = config;
  again.run_dir = folder.file("again");
  again.rate_changes = recorded(config.run_dir);
  testing::run(again, 20);
  again.resume = true;
  testing::run(again);
  testing::expect_equal_weights(config.run_dir, again.run_dir);
}

// Cut links, servers that lose their memory, clients that are killed: what the record says in the end is what was computed.
TEST(FollowedRun, ItsRecordRepeatsItWhateverIsLostOnTheWay) {
  const TempFolder folder;
  int faults = 0;
  for (int round = 0; round < 6; ++round) {
    SCOPED_TRACE(::testing::Message() << "round " << round);
    auto config = followed_run("auto:2", folder.file("run-" + std::to_string(round)));
    std::mt19937 random(static_cast<unsigned>(round));
    Countdown countdown;
    Machines machines(2, config.run_dir + "-state", countdown);
    bool finished = false;
    for (int life = 0; !finished && life < 20; ++life) {
      const Fault fault = std::array{Fault::kCutLink, Fault::kKillParticipant, Fault::kKillClient}[static_cast<std::size_t>(round) % 3];
      if (life < 3) countdown.start(100 + static_cast<int>(random() % 600), fault);
      config.resume = !session::Checkpoints(config.run_dir + "/checkpoints").steps().empty();
      Follower follower;
      try {
        train(testing::registry(), config, follower, follower.stop, &machines, nullptr, follower.options(config));
        finished = true;
      } catch (const testing::ClientKilled&) {
      }
    }
    faults += countdown.happened;
    ASSERT_TRUE(finished);
    expect_that_its_record_repeats(config);
  }
  EXPECT_GE(faults, 6);
}

// A slow link takes nothing that harm asks for: the run is the same as one that follows no link.
TEST(FollowedRun, OnASlowLinkHarmAloneDecides) {
  const TempFolder folder;
  auto config = followed_run("auto", folder.file("followed"));
  Follower follower([](std::uint64_t) { return kSlow; });
  follow(config, follower);
  ASSERT_EQ(follower.changes.size(), 1U);
  for (const auto& cut : follower.changes[0].rates) EXPECT_EQ(cut.forward + cut.backward, 0);
  auto alone = config;
  alone.run_dir = folder.file("alone");
  alone.follow_link = false;
  testing::run(alone);
  testing::expect_equal_weights(config.run_dir, alone.run_dir);
}

TEST(FollowedRun, OnAFastLinkHasNoFewerBitsThanHarmAsksFor) {
  const TempFolder folder;
  const auto config = followed_run("auto", folder.file("run"));
  Follower follower([](std::uint64_t) { return kFast; });
  follow(config, follower);
  ASSERT_GE(metrics_in(config.run_dir, "audit").size(), 1U);
  for (const auto& cut : follower.changes.at(0).rates) EXPECT_EQ(cut.forward, 8);
  for (const auto& step : metrics_in(config.run_dir, "step")) EXPECT_GT(bits_at(step), 5) << step.at("step");
}

// Whatever a server makes the link look like, by answering late or early, bits stay between what the codec says and the most there are.
TEST(FollowedRun, NoLinkAndNoServerCanTakeBitsBelowTheBoundOrAboveTheMost) {
  const TempFolder folder;
  std::mt19937 random(1);
  for (int round = 0; round < 3; ++round) {
    const auto config = followed_run("auto:2", folder.file(std::to_string(round)));
    Follower follower([&random, level = 1.0](std::uint64_t step) mutable {
      if (step % 12 == 0) level = std::pow(10.0, std::uniform_real_distribution<double>(-3, 15)(random));
      return level;
    });
    follow(config, follower);
    const std::set<double> declared = {2, 4, 8};
    for (const RateChange& change : follower.changes) {
      for (const auto& cut : change.rates) {
        EXPECT_TRUE(declared.contains(cut.forward)) << cut.forward;
        EXPECT_TRUE(declared.contains(cut.backward)) << cut.backward;
      }
    }
    for (const auto& step : metrics_in(config.run_dir, "step")) EXPECT_GT(bits_at(step), 1.5) << step.at("step");
  }
}

TEST(FollowedRun, LeavesCodecsWithoutBitsAlone) {
  const TempFolder folder;
  auto config = followed_run("uniform:8", folder.file("one"));
  config.codec_at = {{0, true, "auto:2"}};
  Follower follower;
  follow(config, follower);
  ASSERT_EQ(follower.changes.size(), 3U);
  EXPECT_EQ(follower.changes[0].rates[0].forward, 8);
  EXPECT_EQ(follower.changes[0].rates[0].backward, 0);
  EXPECT_EQ(follower.changes[0].rates[1].forward, 0);
  expect_that_its_record_repeats(config);

  Follower nothing;
  EXPECT_THROW(follow(followed_run("uniform:8", folder.file("none")), nothing), std::invalid_argument);
}

// Over links of this process, which are fast: by its own probes.
TEST(FollowedRun, ProbesTheLinkByItself) {
  const TempFolder folder;
  auto config = followed_run("auto:2", folder.file("run"));
  config.max_steps = 3;
  Countdown never;
  Machines machines(2, folder.file("state"), never);
  Follower follower;
  train(testing::registry(), config, follower, follower.stop, &machines, nullptr, FollowOptions{costs_of(config)});
  ASSERT_EQ(follower.changes.size(), 1U);
  ASSERT_TRUE(follower.changes[0].link);
  EXPECT_GT(follower.changes[0].link->up, 1e6);
  EXPECT_GT(follower.changes[0].link->down, 1e6);
  EXPECT_GT(follower.changes[0].link->round_trip, 0);
  EXPECT_LT(follower.changes[0].link->round_trip, 1);
}

}  // namespace
}  // namespace epipe::train
