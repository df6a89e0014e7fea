// Processes killed at random moments, each in turn: the weights in the end are those of a run that nothing happened to.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <random>
#include <utility>

#include "epipe/base/clock.h"
#include "epipe/base/file.h"
#include "serve/split.h"

namespace epipe::serve {
namespace {

using testing::Arguments;
using testing::ended_with;
using testing::file_bytes;
using testing::run_program;
using testing::Split;
using testing::operator+;

bool is_long() { return std::getenv("EPIPE_LONG_TESTS") != nullptr; }

// Checkpoints at every other step, so that many kills meet one that is being written; no pause between gradients and commit but the
// link's.
const Arguments kFaultRun = {"--chunks",
                             "2",
                             "--batch",
                             "32",
                             "--seed",
                             "9",
                             "--momentum",
                             "0.9",
                             "--codec",
                             "power:2",
                             "--clip",
                             "1",
                             "--max-steps",
                             is_long() ? "300" : "100",
                             "--epochs",
                             "100",
                             "--checkpoint-every",
                             "2"};

// The same with gradients that are applied one step late, for which --clip is left out.
Arguments delayed() {
  Arguments run = kFaultRun;
  const auto clip = std::find(run.begin(), run.end(), "--clip");
  run.erase(clip, clip + 2);
  return run + Arguments{"--delay", "1"};
}

std::string undisturbed_weights(const Split& split, const std::string& place, const Arguments& flags = kFaultRun) {
  std::string arguments;
  for (const auto& argument : flags) arguments += argument + " ";
  const auto one = run_program("train --place " + place + " --run-dir " + split.file("one") + " " + arguments);
  EXPECT_EQ(one.code, 0) << one.output;
  return file_bytes(split.file("one/model.safetensors"));
}

// Kills one of client and servers after the other, `kills` times, then lets the client finish. Three of four kills come some steps after
// the one before, wherever in a step or a checkpoint that is, the fourth sooner, while processes start and connect.
class Reaper {
 public:
  Reaper(Split& split, int servers, unsigned seed, Arguments flags = kFaultRun)
      : split_(split), servers_(servers), random_(seed), flags_(std::move(flags)) {}

  void run(int kills) {
    for (int s = 0; s < servers_; ++s) split_.start_server(s, {"--timeout", "10"});
    start_client();
    while (killed_ < kills && client_->running()) {
      random_() % 4 == 0 ? pause(1.0) : wait_for_steps();
      if (client_->running()) kill_next();
    }
    for (std::size_t before = 0; !client_->wait(120);) {
      const std::size_t now = file_bytes(split_.file("run/metrics.jsonl")).size();
      if (std::exchange(before, now) == now) FAIL() << "hangs: " << client_->log();
    }
    ASSERT_EQ(client_->wait(0), 0) << client_->log();
    std::cout << killed_ << " processes killed\n";
  }
  int killed() const { return killed_; }

 private:
  void start_client() {
    const bool resume = !list_folder(split_.file("run/checkpoints")).empty();
    client_ = nullptr;
    client_ = split_.start_client(split_.file("run"), flags_ + (resume ? Arguments{"--resume"} : Arguments{}));
  }
  std::size_t steps() const {
    const std::string lines = file_bytes(split_.file("run/metrics.jsonl"));
    return static_cast<std::size_t>(std::count(lines.begin(), lines.end(), '\n'));
  }
  void pause(double longest) { client_->wait(std::uniform_real_distribution<double>(0, longest)(random_)); }
  // Until the run is some steps further, and a moment more; a run that stands still is killed all the same, and found in the end.
  void wait_for_steps() {
    const std::size_t enough = steps() + std::uniform_int_distribution<std::size_t>(1, 8)(random_);
    for (const Stopwatch watch; steps() < enough && watch.seconds() < 20 && client_->running();) client_->wait(0.005);
    pause(0.05);
  }
  void kill_next() {
    const int victim = killed_++ % (servers_ + 1);
    if (victim == servers_) {
      client_->signal(SIGKILL);
      client_->wait(10);
      start_client();
    } else {
      split_.server(victim).signal(SIGKILL);
      split_.server(victim).wait(10);
      split_.start_server(victim, {"--timeout", "10"});
    }
  }

  Split& split_;
  int servers_;
  std::mt19937 random_;
  Arguments flags_;
  std::unique_ptr<testing::Process> client_;
  int killed_ = 0;
};

TEST(Fault, KillingClientAndServerChangesNothing) {
  Split split(1);
  const std::string expected = undisturbed_weights(split, "0,1,0");
  Reaper reaper(split, 1, 1);
  reaper.run(is_long() ? 30 : 4);
  EXPECT_GE(reaper.killed(), is_long() ? 25 : 2) << "the run ended before it was disturbed";
  EXPECT_TRUE(ended_with(split.file("run"), expected));
}

TEST(Fault, KillingOneOfSeveralServersChangesNothing) {
  Split split(2);
  const std::string expected = undisturbed_weights(split, "0,1,2,0");
  Reaper reaper(split, 2, 2);
  reaper.run(is_long() ? 30 : 3);
  EXPECT_GE(reaper.killed(), is_long() ? 25 : 2) << "the run ended before it was disturbed";
  EXPECT_TRUE(ended_with(split.file("run"), expected));
}

TEST(Fault, KillingClientAndServersChangesNothingWithADelay) {
  Split split(2);
  const std::string expected = undisturbed_weights(split, "0,1,2,0", delayed());
  Reaper reaper(split, 2, 3, delayed());
  reaper.run(is_long() ? 30 : 4);
  EXPECT_GE(reaper.killed(), is_long() ? 25 : 2) << "the run ended before it was disturbed";
  EXPECT_TRUE(ended_with(split.file("run"), expected));
}

}  // namespace
}  // namespace epipe::serve
