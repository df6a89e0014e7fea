// epipe train and epipe eval, as a user calls them.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include "support/program.h"
#include "support/temp_folder.h"

namespace epipe::cli {
namespace {

using testing::Outcome;

class TrainCommand : public ::testing::Test {
 protected:
  Outcome run(const std::string& arguments) const { return testing::run_program(arguments, folder_.path()); }
  std::string content(const std::string& name) const {
    std::ifstream file(folder_.file(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  testing::TempFolder folder_;
};

TEST_F(TrainCommand, ARunCanBeRepeatedFromItsConfigFile) {
  const Outcome first =
      run("train --model cnn --place 0,1,0 --chunks 4 --codec sort:6+2 --codec-at 1:backward=topk:0.1 --max-steps 4 --run-dir a");
  ASSERT_EQ(first.code, 0) << first.output;
  const Outcome again = run("train --config a/config.toml --run-dir b");
  ASSERT_EQ(again.code, 0) << again.output;
  EXPECT_FALSE(content("a/model.safetensors").empty());
  EXPECT_EQ(content("a/model.safetensors"), content("b/model.safetensors"));
  EXPECT_NE(content("a/config.toml").find("cuts = [\"features."), std::string::npos) << "chosen cuts are recorded";
  const Outcome overridden = run("train --config a/config.toml --run-dir c --max-steps 5");
  ASSERT_EQ(overridden.code, 0) << overridden.output;
  EXPECT_NE(overridden.output.find("5 steps"), std::string::npos) << overridden.output;
}

TEST_F(TrainCommand, ARandomSeedIsRecordedAndContinuedWith) {
  const auto seed_in = [&](const std::string& run_dir) {
    const std::string text = content(run_dir + "/config.toml");
    const auto at = text.find("\nseed = ") + 8;
    return text.substr(at, text.find('\n', at) - at);
  };
  const std::string flags = "train --model mlp --seed random --checkpoint-every 1 ";
  for (const char* const name : {"a", "b"}) ASSERT_EQ(run(flags + "--max-steps 2 --run-dir " + name).code, 0);
  const std::string seed = seed_in("a");
  EXPECT_GT(seed.size(), 15U) << "64 bits: " << seed;
  EXPECT_NE(seed, seed_in("b"));
  const Outcome continued = run(flags + "--max-steps 4 --resume --run-dir a");
  ASSERT_EQ(continued.code, 0) << continued.output;
  EXPECT_EQ(seed_in("a"), seed);
  ASSERT_EQ(run("train --model mlp --checkpoint-every 1 --max-steps 4 --run-dir c --seed " + seed).code, 0);
  EXPECT_EQ(content("c/model.safetensors"), content("a/model.safetensors"));
  for (const char* const wrong : {"x", "-1", "1.5", "18446744073709551616", "Random"}) {
    const Outcome refused = run(std::string("train --model mlp --run-dir d --seed=") + wrong);
    EXPECT_EQ(refused.code, 2) << wrong;
    EXPECT_NE(refused.output.find("or random, got"), std::string::npos) << refused.output;
  }
}

TEST_F(TrainCommand, OneWorkerSimulatesTheCompressionOfSeveral) {
  for (const std::string codec : {"sort:3+1", "topk:0.1", "ec:2", "power:2"}) {
    const std::string flags = "train --model cnn --chunks 4 --schedule 1f1b --max-steps 4 --codec " + codec;
    const Outcome simulated = run(flags + " --place 0,0,0 --run-dir simulated-" + codec);
    const Outcome real = run(flags + " --place 0,1,0 --run-dir real-" + codec);
    ASSERT_EQ(simulated.code, 0) << simulated.output;
    ASSERT_EQ(real.code, 0) << real.output;
    EXPECT_EQ(content("simulated-" + codec + "/model.safetensors"), content("real-" + codec + "/model.safetensors")) << codec;
    EXPECT_NE(content("simulated-" + codec + "/metrics.jsonl").find("\"wire_bytes\""), std::string::npos) << codec;
  }
}

TEST_F(TrainCommand, APartOfTheDataMakesAShorterEpoch) {
  const auto steps = [&](const std::string& part) {
    EXPECT_EQ(run("train --model mlp --batch 32 --data-part " + part + " --run-dir part-" + part).code, 0);
    const std::string text = content("part-" + part + "/metrics.jsonl");
    return std::count(text.begin(), text.end(), '\n') - 1;  // and the epoch's line
  };
  EXPECT_EQ(steps("0.25"), 2 * steps("0.125"));
  EXPECT_EQ(run("train --model mlp --data-part 0 --run-dir b").code, 2);
  EXPECT_EQ(run("train --model mlp --data-part 1.5 --run-dir b").code, 2);
}

TEST_F(TrainCommand, EvaluatesWhatItTrained) {
  ASSERT_EQ(run("train --model mlp --epochs 1 --lr 0.02 --momentum 0.9 --run-dir a").code, 0);
  const Outcome eval = run("eval --model mlp --weights a/model.safetensors");
  EXPECT_EQ(eval.code, 0) << eval.output;
  EXPECT_NE(eval.output.find("accuracy 0."), std::string::npos) << eval.output;
  const Outcome other = run("eval --model cnn --weights a/model.safetensors");
  EXPECT_EQ(other.code, 1);
  EXPECT_NE(other.output.find("features.0.conv.weight"), std::string::npos) << "missing weights are named: " << other.output;
  EXPECT_EQ(run("eval --model mlp --weights missing.safetensors").code, 1);
}

// A shell sends the signal once the first checkpoint is there.
TEST_F(TrainCommand, AnInterruptSavesAndLeavesCleanly) {
  const std::string script = "train --model cnn --epochs 500 --checkpoint-every 5 --run-dir a & pid=$!; cd '" + folder_.path() +
                             "'; for i in $(seq 200); do ls a/checkpoints/step-* >/dev/null 2>&1 && break; sleep 0.1; done; "
                             "kill -INT $pid; wait $pid";
  const Outcome stopped = run(script);
  EXPECT_EQ(stopped.code, 0) << stopped.output;
  EXPECT_NE(stopped.output.find("train --resume --run-dir a"), std::string::npos) << stopped.output;
  const Outcome resumed = run("train --model cnn --epochs 500 --checkpoint-every 5 --run-dir a --resume --max-steps 1");
  EXPECT_EQ(resumed.code, 0) << resumed.output;
}

TEST_F(TrainCommand, MistakesInAConfigFileAreWrongUsage) {
  for (const auto& [text, named] :
       {std::pair("[train]\nlrr = 0.1\n", "train.lrr"), {"lr = 0.1\n", "lr"}, {"[train\nlr = 0.1\n", "[train"}}) {
    std::ofstream(folder_.file("c.toml")) << text;
    const Outcome outcome = run("train --config c.toml --max-steps 1 --run-dir a");
    EXPECT_EQ(outcome.code, 2) << text << outcome.output;
    EXPECT_NE(outcome.output.find(named), std::string::npos) << outcome.output;
  }
}

TEST_F(TrainCommand, ARunThatIsOverIsLeftAsItIs) {
  const std::string flags = "train --model mlp --max-steps 4 --run-dir a";
  ASSERT_EQ(run(flags).code, 0);
  const std::string trace = content("a/trace.json");
  const std::string metrics = content("a/metrics.jsonl");
  const Outcome again = run(flags + " --resume");
  EXPECT_EQ(again.code, 0) << again.output;
  EXPECT_NE(again.output.find("all 4 steps were done before"), std::string::npos) << again.output;
  EXPECT_EQ(content("a/trace.json"), trace);
  EXPECT_EQ(content("a/metrics.jsonl"), metrics);
}

TEST_F(TrainCommand, ARefusedResumeChangesNothing) {
  ASSERT_EQ(run("train --model mlp --max-steps 4 --run-dir a").code, 0);
  const std::string config = content("a/config.toml");
  const Outcome refused = run("train --model cnn --max-steps 5 --run-dir a --resume");
  EXPECT_EQ(refused.code, 2) << refused.output;
  EXPECT_EQ(content("a/config.toml"), config);
}

// What a kill leaves behind, and what somebody put beside it.
TEST_F(TrainCommand, OtherFoldersBesideCheckpointsAreNoCheckpoints) {
  ASSERT_EQ(std::system(("mkdir -p " + folder_.file("a/checkpoints/unfinished") + " " + folder_.file("a/checkpoints/step-best")).c_str()),
            0);
  const Outcome begun = run("train --model mlp --max-steps 2 --run-dir a");
  EXPECT_EQ(begun.code, 0) << begun.output;
  const Outcome resumed = run("train --model mlp --max-steps 3 --run-dir a --resume");
  EXPECT_EQ(resumed.code, 0) << resumed.output;
  EXPECT_NE(resumed.output.find("3 steps"), std::string::npos) << resumed.output;
}

TEST_F(TrainCommand, ADamagedCheckpointIsPassedOverAndNamed) {
  ASSERT_EQ(run("train --model mlp --max-steps 6 --run-dir whole").code, 0);
  ASSERT_EQ(run("train --model mlp --checkpoint-every 2 --max-steps 4 --run-dir a").code, 0);
  std::ofstream(folder_.file("a/checkpoints/step-000000004/model.safetensors")) << "no tensors";
  const Outcome resumed = run("train --model mlp --checkpoint-every 2 --max-steps 6 --run-dir a --resume");
  EXPECT_EQ(resumed.code, 0) << resumed.output;
  EXPECT_NE(resumed.output.find("damaged checkpoints: of step 4 here; going on from step 2, the newest that all processes have whole"),
            std::string::npos)
      << resumed.output;
  EXPECT_TRUE(content("a/model.safetensors") == content("whole/model.safetensors"));
}

TEST_F(TrainCommand, ARunWhoseCheckpointsAreAllDamagedIsNotBegunAnew) {
  ASSERT_EQ(run("train --model mlp --checkpoint-every 2 --max-steps 4 --run-dir a").code, 0);
  for (const char* const step : {"2", "4"}) {
    std::ofstream(folder_.file(std::string("a/checkpoints/step-00000000") + step + "/optimizer.safetensors")) << "no tensors";
  }
  const std::string metrics = content("a/metrics.jsonl");
  const Outcome refused = run("train --model mlp --max-steps 6 --run-dir a --resume");
  EXPECT_EQ(refused.code, 1) << refused.output;
  EXPECT_NE(
      refused.output.find("cannot resume: no checkpoint is with all processes; here: none; damaged checkpoints: of step 4 and 2 here; "
                          "begin anew in another --run-dir"),
      std::string::npos)
      << refused.output;
  EXPECT_EQ(content("a/metrics.jsonl"), metrics);
}

// The modes are those of a user whose umask protects nothing.
TEST_F(TrainCommand, WhatARunWritesIsItsUsersAlone) {
  const Outcome trained =
      run("info > /dev/null; umask 0; $EPIPE_PROGRAM train --model mlp --place 0,1,0 --checkpoint-every 2 --max-steps 4 --run-dir a "
          "> train.log 2>&1 || exit 9; find a -printf '%y%m %p\\n'");
  ASSERT_EQ(trained.code, 0) << trained.output;
  int files = 0;
  std::istringstream lines(trained.output);
  for (std::string line; std::getline(lines, line); ++files) {
    EXPECT_TRUE(line.starts_with("d700 ") || line.starts_with("f600 ")) << line;
  }
  EXPECT_GT(files, 12) << "config, metrics, trace, report, weights, and two checkpoints with their files: " << trained.output;
}

TEST_F(TrainCommand, TwoProcessesDoNotShareARunFolder) {
  const Outcome second =
      run("train --model cnn --epochs 500 --run-dir a > first.log & pid=$!; cd '" + folder_.path() +
          "'; for i in $(seq 200); do [ -s a/metrics.jsonl ] && break; sleep 0.1; done; "
          "$EPIPE_PROGRAM train --model cnn --max-steps 2 --run-dir a 2>&1; code=$?; kill -INT $pid; wait $pid || exit 9; exit $code");
  EXPECT_EQ(second.code, 1) << second.output;
  EXPECT_NE(second.output.find("another process is at work in a"), std::string::npos) << second.output;
}

TEST_F(TrainCommand, ADivergedRunFails) {
  const Outcome outcome = run("train --model mlp --lr 1e30 --max-steps 8 --run-dir a");
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  EXPECT_NE(outcome.output.find("the loss is"), std::string::npos) << outcome.output;
}

TEST_F(TrainCommand, ACodecWithoutACutIsRefusedWithWhatToDo) {
  const Outcome refused = run("train --model mlp --codec dct:1 --max-steps 1 --run-dir a");
  EXPECT_EQ(refused.code, 2) << refused.output;
  EXPECT_NE(refused.output.find("--codec dct:1 codes what crosses a cut, but there is none: cut the model with --cuts or --place"),
            std::string::npos)
      << refused.output;
  for (const std::string flag : {"--codec-backward fp16", "--codec-at 0:forward=fp16"}) {
    EXPECT_EQ(run("train --model mlp --max-steps 1 --run-dir a " + flag).code, 2) << flag;
  }
  EXPECT_EQ(run("train --model mlp --codec none --max-steps 1 --run-dir a").code, 0);
  EXPECT_EQ(run("train --config a/config.toml --run-dir b").code, 0) << "what a run wrote can be read";
  EXPECT_EQ(run("train --model mlp --codec fp16 --cuts 1 --max-steps 1 --run-dir c").code, 0);
  EXPECT_EQ(run("train --model mlp --codec fp16 --place 0,0 --max-steps 1 --run-dir d").code, 0);
}

TEST_F(TrainCommand, GivesTheSameWeightsWhateverTheCodecThreads) {
  const std::string base = "train --model cnn --place 0,1,0 --batch 128 --max-steps 3 --codec-forward dct:1 --codec-backward sort:6+2 ";
  ASSERT_EQ(run(base + "--codec-threads 1 --run-dir a").code, 0);
  ASSERT_EQ(run(base + "--codec-threads 3 --run-dir b").code, 0);
  EXPECT_EQ(content("a/model.safetensors"), content("b/model.safetensors"));
  EXPECT_NE(content("b/config.toml").find("codec-threads = 3"), std::string::npos);
  EXPECT_EQ(run(base + "--codec-threads 0 --run-dir c").code, 2);
}

TEST_F(TrainCommand, ExitsWith2ForWrongUsageAnd1ForWhatGoesWrongLater) {
  for (const std::string arguments : {"train",
                                      "train --model foo --run-dir a",
                                      "train --cuts 9 --run-dir a",
                                      "train --codec sort:6 --place 0,1 --run-dir a",
                                      "train --chunks 100 --run-dir a",
                                      "train --schedule zigzag --run-dir a",
                                      "train --place 0,1,0 --schedule zb-h1 --run-dir a",
                                      "train --place 0,2 --run-dir a",
                                      "train --codec-at 1=none --run-dir a",
                                      "train --codec dct:zero --run-dir a",
                                      "train --codec-forward conv:x --run-dir a",
                                      "train --codec-backward topk:2 --run-dir a",
                                      "train --codec-at 0:forward=srt:1 --run-dir a",
                                      "train --codec dct:1 --run-dir a",
                                      "train --codec-forward fp16 --run-dir a",
                                      "train --codec-backward conv:8x2 --run-dir a",
                                      "train --codec-at 0:forward=fp16 --run-dir a",
                                      "eval --model cnn --weights w --codec dct:1",
                                      "train --config missing.toml --run-dir a",
                                      "train --lr nan --run-dir a",
                                      "train --place 0,1,0 --codec auto:2 --follow-link --run-dir a",
                                      "train --place 0,1,0 --codec auto:2 --rate-changes 0:2,2,2 --run-dir a",
                                      "train --devices gpu --run-dir a",
                                      "serve --insecure --device gpu",
                                      "serve --insecure --device cuda:99",
                                      "eval --model cnn"}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments << '\n' << outcome.output;
  }
  EXPECT_EQ(run("train --model cnn --resume --run-dir nothing").code, 1);
  ASSERT_EQ(run("train --model mlp --max-steps 1 --run-dir a").code, 0);
  const Outcome again = run("train --model mlp --max-steps 1 --run-dir a");
  EXPECT_EQ(again.code, 1);
  EXPECT_NE(again.output.find("already holds a run"), std::string::npos) << again.output;
}

}  // namespace
}  // namespace epipe::cli
