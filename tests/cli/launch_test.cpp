// epipe launch: ranks of a cluster on one machine.
#include <gtest/gtest.h>

#include "epipe/base/file.h"
#include "serve/split.h"
#include "support/listeners.h"

namespace epipe::cli {
namespace {

using testing::Arguments;
using testing::ended_with;
using testing::expected_weights;
using testing::file_bytes;
using testing::joined;
using testing::kRun;
using testing::run_program;
using testing::Split;
using testing::operator+;

TEST(Launch, GivesTheWeightsOfOneProcess) {
  Split split(0);
  for (const auto& [ranks, place] : std::vector<std::pair<std::string, std::string>>{{"2", "0,1,0"}, {"3", "0,1,2"}, {"4", "0,1,2,3"}}) {
    for (const std::string codec : {"none", "sort:6+2", "auto"}) {
      const Arguments arguments = kRun + Arguments{"--codec", codec, "--max-steps", "6"};
      const std::string run_dir = split.file("ranks-" + ranks + codec.substr(0, 4));
      const auto several =
          run_program("launch -n " + ranks + " -- train --place " + place + " --run-dir " + run_dir + " " + joined(arguments));
      ASSERT_EQ(several.code, 0) << several.output;
      EXPECT_NE(several.output.find("[0] "), std::string::npos) << "output is prefixed";
      EXPECT_TRUE(ended_with(run_dir, expected_weights(split, place, arguments))) << place << " " << codec;
    }
  }
}

TEST(Launch, GivesTheWeightsOf1f1bInOneProcessWhereBackwardsAreSplit) {
  Split split(0);
  const Arguments arguments = kRun + Arguments{"--codec", "sort:6+2", "--max-steps", "6"};
  const std::string run_dir = split.file("split");
  const auto several = run_program("launch -n 3 -- train --place 0,1,2 --schedule zb-h1 --run-dir " + run_dir + " " + joined(arguments));
  ASSERT_EQ(several.code, 0) << several.output;
  EXPECT_TRUE(ended_with(run_dir, expected_weights(split, "0,1,2", arguments + Arguments{"--schedule", "1f1b"})));
}

TEST(Launch, ADifferentConfigurationIsNamedWithBothValues) {
  Split split(0);
  const std::string place = " WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(transport::free_port());
  const std::string train = " $EPIPE_PROGRAM train --place 0,1 --max-steps 2 --timeout 10 --run-dir " + split.file("a");
  const auto outcome = run_program("info > /dev/null; (RANK=1" + place + train + " --batch 32 &) ; RANK=0" + place + train + " --batch 16");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.output.find("rank 1 has another configuration: --batch: 32 here, 16 there"), std::string::npos) << outcome.output;
}

// The rendezvous and the ranks' own sockets: nobody outside this machine reaches them.
TEST(Launch, ListensOnLoopbackAlone) {
  Split split(0);
  const std::string run_dir = split.file("ranks");
  testing::Process launch(
      Arguments{"launch", "-n", "3", "--", "train", "--place", "0,1,2", "--run-dir", run_dir, "--max-steps", "100000"} + kRun,
      split.file("launch.log"));
  for (int i = 0; i < 3000 && file_bytes(run_dir + "/metrics.jsonl").empty() && launch.running(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ASSERT_TRUE(launch.running()) << launch.log();
  const auto listeners = testing::listeners_of(launch.pid());
  EXPECT_GE(listeners.size(), 1U) << "the rendezvous is one";
  for (const auto& listener : listeners) EXPECT_TRUE(listener.on_loopback()) << listener.address << ":" << listener.port;
}

TEST(Launch, RankZeroDrawsARandomSeedForAll) {
  Split split(0);
  const std::string command =
      "launch -n 2 -- train --model mlp --seed random --place 0,1 --checkpoint-every 1 --run-dir " + split.file("r");
  const auto begun = run_program(command + " --max-steps 2");
  ASSERT_EQ(begun.code, 0) << begun.output;
  const auto continued = run_program(command + " --max-steps 3 --resume");
  EXPECT_EQ(continued.code, 0) << continued.output;
}

TEST(Launch, ARunContinuesWithTheCommandThatItPrints) {
  Split split(0);
  const Arguments arguments = kRun + Arguments{"--codec", "power:2"};
  const std::string run_dir = split.file("ranks");
  testing::Process launch(Arguments{"launch", "-n", "2", "--", "train", "--place", "0,1,0", "--run-dir", run_dir} + arguments,
                          split.file("launch.log"));
  for (int i = 0; i < 3000 && testing::file_bytes(run_dir + "/metrics.jsonl").empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  launch.signal(SIGINT);
  ASSERT_EQ(launch.wait(120), 0) << launch.log();
  const std::string log = launch.log();
  const auto step = log.find("stopped after step ");
  ASSERT_NE(step, std::string::npos) << log;
  const std::string wanted = "launch -n 2 -- train --resume --run-dir " + run_dir + "\n";
  ASSERT_NE(log.find(wanted), std::string::npos) << log;
  const std::string steps = std::to_string(std::stoi(log.substr(step + 19)) + 3);
  const auto resumed = run_program(wanted.substr(0, wanted.size() - 1) + " --max-steps " + steps);
  ASSERT_EQ(resumed.code, 0) << resumed.output;
  EXPECT_TRUE(ended_with(run_dir, expected_weights(split, "0,1,0", arguments + Arguments{"--max-steps", steps})));
}

TEST(Launch, WrongUsageIsNotTriedAgain) {
  const auto outcome = run_program("launch -n 2 --restarts 2 -- train --place 0,1,0 --codec foo --run-dir a");
  EXPECT_EQ(outcome.code, 2) << outcome.output;
  EXPECT_EQ(outcome.output.find("starting all ranks again"), std::string::npos) << outcome.output;
}

TEST(Launch, AKilledRankIsStartedAgainFromTheLastCommonCheckpoint) {
  Split split(0);
  const Arguments arguments = kRun + Arguments{"--max-steps", "300", "--checkpoint-every", "20", "--codec", "power:2", "--timeout", "20"};
  const std::string run_dir = split.file("ranks");
  testing::Process launch(
      Arguments{"launch", "-n", "2", "--restarts", "3", "--", "train", "--place", "0,1,0", "--run-dir", run_dir} + arguments,
      split.file("launch.log"));
  for (int i = 0; i < 1000 && list_folder(run_dir + "/checkpoints/worker-1").empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto killed = run_program("info > /dev/null; pgrep -P " + std::to_string(launch.pid()) + " | tail -1 | xargs kill -9");
  ASSERT_EQ(killed.code, 0) << killed.output;
  ASSERT_EQ(launch.wait(120), 0) << launch.log();
  EXPECT_NE(launch.log().find("starting all ranks again from the last common checkpoint (1 of 3)"), std::string::npos) << launch.log();
  EXPECT_TRUE(ended_with(run_dir, expected_weights(split, "0,1,0", arguments)));
}

}  // namespace
}  // namespace epipe::cli
