// What is lost on the way between the processes of a run is done again, and the weights in the end are those of a run that nothing
// happened to.
#include <array>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <random>

#include "epipe/base/file.h"
#include "support/bad_sample.h"
#include "train/coordinated.h"

namespace epipe::train {
namespace {

using testing::Countdown;
using testing::Fault;
using testing::Machines;
using testing::Watcher;

class CoordinatorFault : public testing::Coordinated {};

// One life of the client; whether it ended by itself.
bool live(TrainConfig& config, Machines& machines) {
  config.resume = !session::Checkpoints(config.run_dir + "/checkpoints").steps().empty();
  Watcher watcher;
  try {
    train(testing::registry(), config, watcher, watcher.stop, &machines);
    return true;
  } catch (const testing::ClientKilled&) {
    return false;
  } catch (const std::exception& error) {
    for (const auto& note : watcher.notes) ADD_FAILURE() << note;
    throw;
  }
}

// How many messages a run takes that nothing happens to.
int messages_of(TrainConfig config, int workers) {
  Countdown never;
  Machines machines(workers, config.run_dir + "/state", never);
  EXPECT_TRUE(live(config, machines));
  return never.messages;
}

// The first life of a round is always disturbed, the further ones of a client that is killed until one is not.
TEST_P(CoordinatorFault, LosesNothingWhateverIsLostAndWhenever) {
  const std::string expected = undisturbed();
  const int rounds = std::getenv("EPIPE_LONG_TESTS") != nullptr ? 12 : 3;  // one of each kind
  const int messages = messages_of(config("several"), workers());
  int faults = 0;
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(::testing::Message() << "round " << round);
    const Fault fault = std::array{Fault::kCutLink, Fault::kKillParticipant, Fault::kKillClient}[static_cast<std::size_t>(round) % 3];
    std::mt19937 random(static_cast<unsigned>(7 + round));
    auto disturbed = config("run-" + std::to_string(round));
    Countdown countdown;
    Machines machines(workers(), disturbed.run_dir + "/state", countdown);
    bool finished = false;
    for (int life = 0; !finished && life < 60; ++life) {
      countdown.start(std::uniform_int_distribution<int>(1, life == 0 ? messages * 9 / 10 : messages)(random), fault);
      finished = live(disturbed, machines);
    }
    ASSERT_TRUE(finished);
    EXPECT_GE(countdown.happened, 1) << "the test must have tested something";
    faults += countdown.happened;
    testing::expect_equal_weights(expected, disturbed.run_dir);
  }
  std::cout << faults << " faults in runs of " << messages << " messages\n";
}

// An infinite pixel makes step 3 a step that is not finite, in the client's own stages and in all others.
TEST_P(CoordinatorFault, SkipsAStepTogetherWhateverIsLost) {
  if (GetParam().delay > 0) GTEST_SKIP() << "no step is skipped with --delay";
  testing::write_data_with_a_bad_sample(folder_.path(), 16 * 8, 16 * 3 + 1);
  const auto configured = [&](const std::string& name) {
    auto over_bad_sample = config(name);
    over_bad_sample.data = "npy:" + folder_.path();
    over_bad_sample.shuffle = false;
    over_bad_sample.loss_scaling = "on";
    return over_bad_sample;
  };
  EXPECT_EQ(testing::run(configured("one")).skipped, 1U);
  const auto several = configured("several");
  Countdown countdown;
  const int peers = workers() - 1;
  const int per_step = 4 * static_cast<int>(several.place.size() - 1) + 4 * peers;  // two chunks, two directions; two commands, two answers
  countdown.start(6 * peers + 3 * per_step + per_step / 2, Fault::kCutLink);        // in the middle of the skipped step
  Machines machines(workers(), folder_.file("state"), countdown);
  Watcher watcher;
  train(testing::registry(), several, watcher, watcher.stop, &machines);
  EXPECT_EQ(countdown.happened, 1);
  testing::expect_equal_weights(folder_.file("one"), several.run_dir);
}

std::string checkpoint_of(const std::string& folder, int step) { return folder + "/step-00000000" + std::to_string(step); }

// One bit of one byte, as a bad disk does it.
void damage(const std::string& checkpoint, const std::string& name) {
  std::fstream file(checkpoint + "/" + name, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(100);
  const int byte = file.get();
  file.seekp(100);
  file.put(static_cast<char>(byte ^ 4));
  ASSERT_TRUE(file.flush());
}

// The first 6 of 8 steps: checkpoints of step 3 and 6 with the client and all workers.
class DamagedCheckpoint : public testing::Coordinated {
 protected:
  std::string state() const { return folder_.file("state"); }
  std::string folder_of(int worker) const {
    return worker == 0 ? folder_.file("several/checkpoints") : state() + "/worker-" + std::to_string(worker);
  }
  void train_six_steps() {
    Watcher watcher;
    watcher.stop_after = 6;
    train(testing::registry(), config("several"), watcher, watcher.stop, &machines_);
    for (int w = 0; w < workers(); ++w) ASSERT_EQ(session::Checkpoints(folder_of(w)).steps(), (std::vector<std::uint64_t>{3, 6}));
  }
  // What the user is told.
  std::vector<std::string> resume() {
    auto resumed = config("several");
    resumed.resume = true;
    Watcher watcher;
    train(testing::registry(), resumed, watcher, watcher.stop, &machines_);
    return watcher.notes;
  }

  Countdown never_;
  Machines machines_{workers(), state(), never_};
};

// With the client, and with the last worker.
TEST_P(DamagedCheckpoint, TheNewestThatAllHaveWholeIsUsed) {
  const std::string expected = undisturbed();
  for (const int where : {0, workers() - 1}) {
    SCOPED_TRACE(::testing::Message() << "worker " << where);
    ASSERT_TRUE(remove_tree(folder_.file("several")));
    ASSERT_TRUE(remove_tree(state()));
    train_six_steps();
    damage(checkpoint_of(folder_of(where), 6), where == 0 ? "optimizer.safetensors" : "model.safetensors");
    const auto notes = resume();
    const std::string name = where == 0 ? "here" : "with worker " + std::to_string(where);
    EXPECT_NE(std::find(notes.begin(), notes.end(),
                        "damaged checkpoints: of step 6 " + name + "; going on from step 3, the newest that all processes have whole"),
              notes.end())
        << ::testing::PrintToString(notes);
    testing::expect_equal_weights(expected, folder_.file("several"));
  }
}

TEST_P(DamagedCheckpoint, WhereNoneIsWholeWithAllTheRunIsRefusedAndNotBegunAnew) {
  train_six_steps();
  damage(checkpoint_of(folder_of(0), 6), "model.safetensors");
  damage(checkpoint_of(folder_of(1), 3), "model.safetensors");
  try {
    resume();
    FAIL();
  } catch (const std::runtime_error& refused) {
    const std::string text = refused.what();
    EXPECT_TRUE(text.starts_with("cannot resume: no checkpoint is with all processes; here: of step 3, worker 1: of step 6")) << text;
    EXPECT_NE(text.find("; damaged checkpoints: of step 6 here, of step 3 with worker 1; begin anew in another --run-dir"),
              std::string::npos)
        << text;
  }
}

INSTANTIATE_TEST_SUITE_P(RingsAndChains, DamagedCheckpoint, testing::rings_and_chains());
INSTANTIATE_TEST_SUITE_P(RingsAndChains, CoordinatorFault, testing::rings_and_chains());

}  // namespace
}  // namespace epipe::train
