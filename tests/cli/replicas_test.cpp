// epipe train --replicas, as processes.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "epipe/base/clock.h"
#include "epipe/base/file.h"
#include "epipe/transport/c10d/support.h"
#include "epipe/transport/group_config.h"
#include "support/process.h"
#include "support/program.h"
#include "support/temp_folder.h"

namespace epipe::cli {
namespace {

using testing::Outcome;
using testing::Process;

class ReplicasCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!transport::gloo_part().available) GTEST_SKIP() << "gloo is not in this build";
  }
  Outcome run(const std::string& arguments) const { return testing::run_program(arguments, folder_.path()); }
  std::string content(const std::string& name) const {
    std::ifstream file(folder_.file(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  // Until rank 3 has a checkpoint.
  void wait_for_checkpoint(const std::string& run_dir) const {
    const Stopwatch watch;
    while (list_folder(folder_.file(run_dir) + "/checkpoints/worker-3").empty() && watch.seconds() < 60) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  testing::TempFolder folder_;
};

const std::string kLong =
    "--replicas 2 --place 0,1,0 --chunks 2 --batch 16 --codec power:2 --max-steps 80 --checkpoint-every 10 --epochs 9 ";

TEST_F(ReplicasCommand, SaysHowToStartThemWhenTheyAreNot) {
  const Outcome alone = run("train --replicas 3 --place 0,1 --run-dir a");
  EXPECT_EQ(alone.code, 2);
  EXPECT_NE(alone.output.find("epipe launch -n 6 -- train --replicas 3"), std::string::npos) << alone.output;
  const Outcome uneven = run("launch -n 3 -- train --replicas 2 --run-dir a");
  EXPECT_EQ(uneven.code, 2);
  EXPECT_NE(uneven.output.find("take 2 processes, but there are 3 (WORLD_SIZE)"), std::string::npos) << uneven.output;
  EXPECT_EQ(run("train --replicas 2 --connect localhost:1 --run-dir a").code, 2);
  EXPECT_EQ(run("train --replicas 0 --run-dir a").code, 2);
  const Outcome small = run("launch -n 2 -- train --replicas 2 --batch 7 --chunks 4 --run-dir a");
  EXPECT_EQ(small.code, 2);
  EXPECT_NE(small.output.find("leaves one of 2 replicas 3 samples"), std::string::npos) << small.output;
}

TEST_F(ReplicasCommand, TrainLikeOneReplicaWithTheirMicroBatches) {
  const Outcome one = run("train --place 0,1 --chunks 2 --batch 32 --max-steps 4 --run-dir one");
  ASSERT_EQ(one.code, 0) << one.output;
  const Outcome two = run("launch -n 4 -- train --replicas 2 --place 0,1 --chunks 1 --batch 32 --max-steps 4 --run-dir two");
  ASSERT_EQ(two.code, 0) << two.output;
  EXPECT_FALSE(content("one/model.safetensors").empty());
  EXPECT_EQ(content("one/model.safetensors"), content("two/model.safetensors"));
  const Outcome again = run("launch -n 4 -- train --config two/config.toml --run-dir three");
  ASSERT_EQ(again.code, 0) << again.output;
  EXPECT_EQ(content("two/model.safetensors"), content("three/model.safetensors"));
}

TEST_F(ReplicasCommand, AKilledRankIsStartedAgainFromTheLastCommonCheckpoint) {
  ASSERT_EQ(run("launch -n 4 -- train " + kLong + "--run-dir undisturbed").code, 0);
  Process launch({"launch",  "-n",       "4",           "--restarts", "3",
                  "--",      "train",    "--replicas",  "2",          "--place",
                  "0,1,0",   "--chunks", "2",           "--batch",    "16",
                  "--codec", "power:2",  "--max-steps", "80",         "--checkpoint-every",
                  "10",      "--epochs", "9",           "--run-dir",  folder_.file("disturbed")},
                 folder_.file("log"));
  wait_for_checkpoint("disturbed");
  const Outcome killed = run("info > /dev/null; pgrep -P " + std::to_string(launch.pid()) + " | tail -1 | xargs kill -9");
  ASSERT_EQ(killed.code, 0) << killed.output;
  ASSERT_EQ(launch.wait(120), 0) << launch.log();
  EXPECT_NE(launch.log().find("starting all ranks again from the last common checkpoint (1 of 3)"), std::string::npos) << launch.log();
  EXPECT_EQ(content("disturbed/model.safetensors"), content("undisturbed/model.safetensors"));
}

// Without a launcher nobody stops the others: they must notice by themselves, whichever rank it is, long before the timeout.
TEST_F(ReplicasCommand, AKilledRankEndsAllOthersSoon) {
  ::setenv("WORLD_SIZE", "4", 1);
  ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  for (int victim = 0; victim < 4; ++victim) {
    SCOPED_TRACE(::testing::Message() << "victim " << victim);
    const std::string run_dir = "run-" + std::to_string(victim);
    ::setenv("MASTER_PORT", std::to_string(transport::free_port()).c_str(), 1);
    std::vector<std::unique_ptr<Process>> ranks;
    for (int rank = 0; rank < 4; ++rank) {
      ::setenv("RANK", std::to_string(rank).c_str(), 1);
      ranks.push_back(std::make_unique<Process>(
          std::vector<std::string>{"train", "--replicas", "2", "--place", "0,1", "--batch", "16", "--epochs", "999", "--checkpoint-every",
                                   "5", "--timeout", "60", "--run-dir", folder_.file(run_dir)},
          folder_.file(run_dir + "-rank-" + std::to_string(rank) + ".log")));
    }
    wait_for_checkpoint(run_dir);
    ranks[static_cast<std::size_t>(victim)]->signal(SIGKILL);
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      Process& process = *ranks[static_cast<std::size_t>(rank)];
      EXPECT_EQ(process.wait(20), 1) << "rank " << rank << ": " << process.log();
      EXPECT_NE(process.log().find("rank"), std::string::npos) << "rank " << rank << ": " << process.log();
    }
    if (victim > 0) {
      EXPECT_NE(ranks[0]->log().find("rank " + std::to_string(victim)), std::string::npos) << ranks[0]->log();
    }
  }
  for (const char* const name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) ::unsetenv(name);
}

}  // namespace
}  // namespace epipe::cli
