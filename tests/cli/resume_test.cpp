// epipe train --resume: a run goes on with its own config.toml.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "epipe/cli/resume.h"
#include "support/program.h"
#include "support/temp_folder.h"

namespace epipe::cli {
namespace {

using testing::Outcome;

// Hardly one is a default.
constexpr const char* kFlags =
    "--model mlp --batch 32 --lr 0.02 --momentum 0.9 --nesterov --seed 5 --no-shuffle --clip 1 --recompute --chunks 2 --place 0,1,0 "
    "--codec power:2 --codec-at 1:backward=fp16 --epochs 40 --lr-schedule cosine --checkpoint-every 2 ";

class Resume : public ::testing::Test {
 protected:
  Outcome run(const std::string& arguments) const { return testing::run_program(arguments, folder_.path()); }
  std::string content(const std::string& name) const {
    std::ifstream file(folder_.file(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  // The run `name` of so many steps, and what one that was not stopped comes to with more.
  void begin(const std::string& name, int steps) const {
    const Outcome begun = run("train " + std::string(kFlags) + "--max-steps " + std::to_string(steps) + " --run-dir '" + name + "'");
    ASSERT_EQ(begun.code, 0) << begun.output;
  }
  void expect_refused(const std::string& more, const std::string& words) const {
    const Outcome refused = run("train --resume --run-dir a --max-steps 8 " + more);
    EXPECT_EQ(refused.code, 2) << refused.output;
    EXPECT_NE(refused.output.find(words), std::string::npos) << refused.output;
  }

  testing::TempFolder folder_;
};

TEST_F(Resume, TakesEveryFlagThatIsLeftOutFromTheRun) {
  begin("a", 4);
  begin("whole", 8);
  const Outcome resumed = run("train --resume --run-dir a --max-steps 8");
  ASSERT_EQ(resumed.code, 0) << resumed.output;
  EXPECT_NE(resumed.output.find("8 steps"), std::string::npos) << resumed.output;
  EXPECT_FALSE(content("a/model.safetensors").empty());
  EXPECT_EQ(content("a/model.safetensors"), content("whole/model.safetensors"));
  const Outcome over = run("train --run-dir a --resume");
  EXPECT_EQ(over.code, 0) << over.output;
  EXPECT_NE(over.output.find("all 8 steps were done before"), std::string::npos)
      << "the number of steps is the run's, too: " << over.output;
}

TEST_F(Resume, TheCommandThatAStoppedRunPrintsContinuesIt) {
  const std::string name = "my run's";
  const std::string wait =
      "; cd '" + folder_.path() + "'; for i in $(seq 600); do [ -s \"" + name + "/metrics.jsonl\" ] && break; sleep 0.1; done; ";
  const Outcome stopped = run("train " + std::string(kFlags) + "--run-dir \"" + name + "\" & pid=$!" + wait + "kill -INT $pid; wait $pid");
  ASSERT_EQ(stopped.code, 0) << stopped.output;
  const std::string before = "everything is saved; continue with: ";
  const auto at = stopped.output.find(before);
  const auto step = stopped.output.find("stopped after step ");
  ASSERT_NE(at, std::string::npos) << stopped.output;
  ASSERT_NE(step, std::string::npos) << stopped.output;
  const std::string command = stopped.output.substr(at + before.size(), stopped.output.find('\n', at) - at - before.size());
  const int steps = std::stoi(stopped.output.substr(step + 19)) + 3;
  const Outcome resumed = run("--version > /dev/null; " + command + " --max-steps " + std::to_string(steps));
  ASSERT_EQ(resumed.code, 0) << command << '\n' << resumed.output;
  begin("whole", steps);
  EXPECT_EQ(content(name + "/model.safetensors"), content("whole/model.safetensors"));
}

TEST_F(Resume, ARunThatIsInTheWayIsNamedWithTheCommandThatContinuesIt) {
  begin("a", 2);
  const Outcome again = run("train --model mlp --run-dir a");
  EXPECT_EQ(again.code, 1);
  EXPECT_NE(again.output.find("train --resume --run-dir a\n"), std::string::npos) << again.output;
}

TEST_F(Resume, WhatARunCannotChangeIsRefusedWithTheFlagsName) {
  begin("a", 4);
  const std::string config = content("a/config.toml");
  expect_refused("--clip 2", "--clip: 2 here, 1 there; leave these flags out");
  expect_refused("--seed 6",
                 "a resumed run may change --loss-added, --harm, --audit-share, --epochs, --max-steps, --lr, --lr-schedule, --lr-power, "
                 "--warmup");
  expect_refused("--momentum 0.5", "--momentum: 0.5 here, 0.9 there");
  expect_refused("--batch 64", "--batch: 64 here, 32 there");
  expect_refused("--model cnn", "--model: cnn here, mlp there");
  expect_refused("--optimizer adam", "--optimizer: adam here, sgd there");
  expect_refused("--codec fp16", "--codec: ");
  expect_refused("--weight-decay 0.1", "--weight-decay: 0.1 here");
  EXPECT_EQ(content("a/config.toml"), config) << "a refused run changes nothing";
  EXPECT_EQ(run("train --resume --run-dir a --max-steps 5 --checkpoint-every 1 --load-threads 1").code, 0);
}

// The steps of an epoch of the synthetic data at this batch are few.
TEST_F(Resume, AFinishedRunIsExtendedByMoreEpochsAtAnotherLearningRate) {
  const std::string flags = "train --model mlp --batch 256 --momentum 0.9 --place 0,1,0 ";
  ASSERT_EQ(run(flags + "--epochs 1 --lr 0.02 --run-dir a").code, 0);
  const std::string lines = content("a/metrics.jsonl");
  const Outcome extended = run("train --resume --run-dir a --epochs 2 --lr 0.01");
  ASSERT_EQ(extended.code, 0) << extended.output;
  EXPECT_EQ(content("a/metrics.jsonl").substr(0, lines.size()), lines) << "what was written stays";
  EXPECT_NE(content("a/metrics.jsonl").find(R"("lr":0.01)"), std::string::npos);
  EXPECT_NE(content("a/config.toml").find("epochs = 2\n"), std::string::npos);
  EXPECT_NE(extended.output.find("epoch 1: "), std::string::npos) << extended.output;
  ASSERT_EQ(run(flags + "--epochs 2 --lr 0.02 --run-dir b").code, 0);
  EXPECT_NE(content("a/model.safetensors"), content("b/model.safetensors")) << "the other learning rate is used";
  ASSERT_EQ(run(flags + "--epochs 1 --lr 0.02 --run-dir c").code, 0);
  ASSERT_EQ(run("train --resume --run-dir c --epochs 2").code, 0);
  EXPECT_EQ(content("c/model.safetensors"), content("b/model.safetensors")) << "as if it had been planned";
}

TEST_F(Resume, AConfigFileGoesOverTheRunsOwnAndTheCommandLineOverBoth) {
  begin("a", 4);
  std::ofstream(folder_.file("more.toml")) << "[train]\nmax-steps = 6\ncheckpoint-every = 1\nno-shuffle = true\nrecompute = true\n";
  const Outcome file = run("train --resume --run-dir a --config more.toml");
  ASSERT_EQ(file.code, 0) << file.output;
  EXPECT_NE(file.output.find("6 steps"), std::string::npos) << file.output;
  const Outcome line = run("train --resume --run-dir a --config more.toml --max-steps 7");
  ASSERT_EQ(line.code, 0) << line.output;
  EXPECT_NE(line.output.find("7 steps"), std::string::npos) << line.output;
  std::ofstream(folder_.file("other.toml")) << "[train]\nno-shuffle = false\n";
  expect_refused("--config other.toml", "shuffle (--no-shuffle): true here, false there");
}

TEST_F(Resume, AMissingOrForeignConfigFileIsSaid) {
  begin("a", 4);
  const std::string config = content("a/config.toml");
  std::ofstream(folder_.file("a/config.toml")) << "[train]\nlr = \"much\"\n";
  expect_refused("", "a/config.toml, line 2: ");
  std::ofstream(folder_.file("a/config.toml")) << "[train]\nlearning-rate = 1\n";
  expect_refused("", "learning-rate");
  ASSERT_EQ(run("train --model mlp --max-steps 1 --run-dir other").code, 0);
  std::ofstream(folder_.file("a/config.toml")) << content("other/config.toml");
  expect_refused("", "the checkpoint is of another run: ");
  ASSERT_EQ(std::remove(folder_.file("a/config.toml").c_str()), 0);
  expect_refused("", "a has no config.toml: flags that are not given have their defaults");
  const Outcome all = run("train " + std::string(kFlags) + "--max-steps 6 --run-dir a --resume");
  EXPECT_EQ(all.code, 0) << "nothing is missing where all flags are given: " << all.output;
  EXPECT_FALSE(content("a/config.toml").empty());
  const Outcome nothing = run("train --resume --run-dir nothing");
  EXPECT_EQ(nothing.code, 1) << nothing.output;
  EXPECT_NE(nothing.output.find("nothing to resume"), std::string::npos) << nothing.output;
  EXPECT_EQ(run("train --resume").code, 2);
}

TEST_F(Resume, OddPathsSurviveTheConfigFile) {
  for (const std::string name : {"a b", "a#b", "a,b", "a[1]", "a=b", "ä"}) {
    const Outcome begun = run("train --model mlp --batch 32 --max-steps 1 --run-dir '" + name + "'");
    ASSERT_EQ(begun.code, 0) << begun.output;
    const Outcome resumed = run("train --resume --max-steps 2 --run-dir '" + name + "'");
    EXPECT_EQ(resumed.code, 0) << name << '\n' << resumed.output;
  }
}

TEST(ShellWord, IsReadBackByAShell) {
  EXPECT_EQ(shell_word("runs/a-1_2"), "runs/a-1_2");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("my run"), "'my run'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("$HOME"), "'$HOME'");
}

}  // namespace
}  // namespace epipe::cli
