#include "epipe/schedule/validate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "schedule/placements.h"

namespace epipe::schedule {
namespace {

constexpr Action F(int i, int j) { return {Kind::kForward, i, j}; }
constexpr Action B(int i, int j) { return {Kind::kBackward, i, j}; }

// Two stages on two workers, two micro-batches:   0  F0 F1 .  .  B0 B1
//                                                 1  .  F0 F1 B0 B1 .
Schedule good() { return make("gpipe", "0,1", 2); }

std::string validation_error(const Schedule& schedule, int queue_capacity = 2) {
  const auto result = validate(schedule, queue_capacity);
  return result ? "" : result.error().message;
}

TEST(Validate, AcceptsAGoodSchedule) {
  ASSERT_EQ(good().per_worker[0], (std::vector<Action>{F(0, 0), F(1, 0), B(0, 0), B(1, 0)}));
  EXPECT_EQ(validation_error(good(), 1), "");
}

TEST(Validate, RefusesAMissingAction) {
  auto schedule = good();
  schedule.per_worker[1].pop_back();
  EXPECT_EQ(validation_error(schedule), "worker 1: B 1 1 is missing");
}

TEST(Validate, RefusesAnActionThatRunsTwice) {
  auto schedule = good();
  schedule.per_worker[0].push_back(F(1, 0));
  EXPECT_EQ(validation_error(schedule), "worker 0, action 4 (F 1 0): runs a second time; action 1 is the same");
}

TEST(Validate, RefusesAnActionOnTheWrongWorker) {
  auto schedule = good();
  schedule.per_worker[1][1] = F(1, 0);
  EXPECT_EQ(validation_error(schedule), "worker 1, action 1 (F 1 0): stage 0 is on worker 0");
}

TEST(Validate, RefusesMicroBatchesAndStagesThatDoNotExist) {
  for (const Action& action : {F(2, 0), F(-1, 0), B(0, 2), B(0, -1)}) {
    auto schedule = good();
    schedule.per_worker[0][0] = action;
    EXPECT_EQ(validation_error(schedule), "worker 0, action 0 (" + to_string(action) + "): there are 2 micro-batches and 2 stages");
  }
}

TEST(Validate, RefusesABackwardBeforeItsForward) {
  auto schedule = good();
  schedule.per_worker[1] = {B(0, 1), F(0, 1), F(1, 1), B(1, 1)};
  EXPECT_EQ(validation_error(schedule), "worker 1, action 0 (B 0 1): comes before F 0 1, action 1; a forward comes before its backward");
}

TEST(Validate, RefusesForwardsOutOfOrder) {
  auto schedule = good();
  std::swap(schedule.per_worker[0][0], schedule.per_worker[0][1]);
  EXPECT_EQ(validation_error(schedule), "worker 0, action 0 (F 1 0): comes before F 0 0, action 1; micro-batches run in ascending order");
}

TEST(Validate, RefusesBackwardsOutOfOrder) {
  auto schedule = good();
  std::swap(schedule.per_worker[1][2], schedule.per_worker[1][3]);
  EXPECT_EQ(validation_error(schedule), "worker 1, action 2 (B 1 1): comes before B 0 1, action 3; micro-batches run in ascending order");
}

// Two stages on two workers, two micro-batches:   0  F0 F1  .   B0 ==  B1 ==
//                                                 1  .  F0  Bi0 F1 Bi1 Bw0 Bw1
Schedule good_split() { return make("zb-h1", "0,1", 2); }
constexpr Action Bi(int i, int j) { return {Kind::kBackwardInput, i, j}; }
constexpr Action Bw(int i, int j) { return {Kind::kBackwardWeights, i, j}; }

TEST(Validate, AcceptsASplitBackward) {
  ASSERT_EQ(good_split().per_worker[1], (std::vector<Action>{F(0, 1), Bi(0, 1), F(1, 1), Bi(1, 1), Bw(0, 1), Bw(1, 1)}));
  EXPECT_EQ(validation_error(good_split(), 1), "");
}

TEST(Validate, RefusesAMissingWeightGradient) {
  auto schedule = good_split();
  schedule.per_worker[1].pop_back();
  EXPECT_EQ(validation_error(schedule), "worker 1: Bw 1 1 is missing");
}

TEST(Validate, RefusesAWholeBackwardOnAStageThatSplitsItAndTheReverse) {
  auto schedule = good_split();
  schedule.per_worker[1][1] = B(0, 1);
  EXPECT_EQ(validation_error(schedule), "worker 1, action 1 (B 0 1): stage 1 runs F, Bi, Bw");
  schedule = good_split();
  schedule.per_worker[0][2] = Bw(0, 0);
  EXPECT_EQ(validation_error(schedule), "worker 0, action 2 (Bw 0 0): stage 0 runs F, B");
}

TEST(Validate, RefusesInputGradientsBeforeTheirForward) {
  auto schedule = good_split();
  schedule.per_worker[1] = {Bi(0, 1), F(0, 1), F(1, 1), Bi(1, 1), Bw(0, 1), Bw(1, 1)};
  EXPECT_EQ(validation_error(schedule), "worker 1, action 0 (Bi 0 1): comes before F 0 1, action 1; a forward comes before its backward");
}

TEST(Validate, RefusesWeightGradientsBeforeThatOfTheInput) {
  auto schedule = good_split();
  schedule.per_worker[1] = {F(0, 1), Bi(0, 1), F(1, 1), Bw(0, 1), Bw(1, 1), Bi(1, 1)};
  EXPECT_EQ(validation_error(schedule),
            "worker 1, action 4 (Bw 1 1): comes before Bi 1 1, action 5; the gradient of the input comes before those of the weights");
}

TEST(Validate, RefusesWeightGradientsOutOfOrder) {
  auto schedule = good_split();
  std::swap(schedule.per_worker[1][4], schedule.per_worker[1][5]);
  EXPECT_EQ(validation_error(schedule), "worker 1, action 4 (Bw 1 1): comes before Bw 0 1, action 5; micro-batches run in ascending order");
}

// Bi frees nothing: the activations are there until Bw.
TEST(Validate, CountsAMicroBatchAsLiveUntilItsWeightGradients) {
  auto schedule = good_split();
  schedule.live_limit = {2, 1};
  EXPECT_EQ(validation_error(schedule), "worker 1, action 2 (F 1 1): stage 1 would hold 2 live micro-batches; its limit is 1");
}

TEST(Validate, NamesTheInputGradientThatAWorkerWaitsFor) {
  auto schedule = good_split();
  schedule.per_worker[0] = {F(0, 0), B(0, 0), F(1, 0), B(1, 0)};
  schedule.per_worker[1] = {F(0, 1), F(1, 1), Bi(0, 1), Bi(1, 1), Bw(0, 1), Bw(1, 1)};
  EXPECT_EQ(validation_error(schedule),
            "worker 0, action 1 (B 0 0): deadlock: waits for Bi 0 1; worker 1, action 1 (F 1 1): waits for F 1 0");
}

TEST(Validate, RefusesAForwardBeforeThatOfAnEarlierStageOnTheSameWorker) {
  auto schedule = make("1f1b", "0,0", 1);
  schedule.per_worker[0] = {F(0, 1), F(0, 0), B(0, 1), B(0, 0)};
  EXPECT_EQ(validation_error(schedule), "worker 0, action 0 (F 0 1): comes before F 0 0, action 1; its input depends on it");
}

TEST(Validate, RefusesABackwardBeforeThatOfALaterStageOnTheSameWorker) {
  auto schedule = make("1f1b", "0,1,0", 1);
  schedule.per_worker[0] = {F(0, 0), F(0, 2), B(0, 0), B(0, 2)};
  EXPECT_EQ(validation_error(schedule), "worker 0, action 2 (B 0 0): comes before B 0 2, action 3; its input depends on it");
}

TEST(Validate, RefusesMoreLiveMicroBatchesThanTheLimit) {
  auto schedule = good();
  schedule.live_limit = {2, 1};
  EXPECT_EQ(validation_error(schedule), "worker 1, action 1 (F 1 1): stage 1 would hold 2 live micro-batches; its limit is 1");
}

// gpipe holds all m micro-batches, so it breaks the promise of 1f1b.
TEST(Validate, RefusesTheOrderOfGpipeUnderTheLimitsOf1f1b) {
  auto schedule = make("gpipe", "0,1,2", 6);
  schedule.live_limit = make("1f1b", "0,1,2", 6).live_limit;
  EXPECT_EQ(validation_error(schedule), "worker 0, action 3 (F 3 0): stage 0 would hold 4 live micro-batches; its limit is 3");
}

TEST(Validate, RefusesWorkersThatWaitForEachOther) {
  auto schedule = good();
  schedule.per_worker[0] = {F(0, 0), B(0, 0), F(1, 0), B(1, 0)};
  EXPECT_EQ(validation_error(schedule, 100),
            "worker 0, action 1 (B 0 0): deadlock: waits for B 0 1; worker 1, action 1 (F 1 1): waits for F 1 0");
}

// Worker 0 sends all 8 before it takes any back: they must fit into two queues and the hands of worker 1.
TEST(Validate, RefusesAnOrderThatNeedsLargerQueuesAndAcceptsItWithThem) {
  Schedule schedule = make("gpipe", "0,1,0", 8);
  auto& list = schedule.per_worker[0];
  std::stable_sort(list.begin(), list.begin() + 16, [](const Action& a, const Action& b) { return a.stage < b.stage; });
  EXPECT_EQ(validation_error(schedule, 1),
            "worker 0, action 3 (F 3 0): deadlock: waits for room in the queue of cut 0, which holds 1; "
            "worker 1, action 1 (F 1 1): waits for room in the queue of cut 1, which holds 1");
  EXPECT_NE(validation_error(schedule, 3), "");
  EXPECT_EQ(validation_error(schedule, 4), "");
}

TEST(Validate, RefusesAScheduleThatLacksAWorkerAStageOrAMicroBatch) {
  auto schedule = good();
  schedule.per_worker.pop_back();
  EXPECT_EQ(validation_error(schedule), "expected a list of actions for each of 2 workers, got 1");
  schedule = good();
  schedule.live_limit.pop_back();
  EXPECT_EQ(validation_error(schedule), "expected a live limit for each of 2 stages, got 1");
  schedule = good();
  schedule.split.pop_back();
  EXPECT_EQ(validation_error(schedule), "expected whether the backward is split for each of 2 stages, got 1");
  schedule = good();
  schedule.chunks = 0;
  EXPECT_EQ(validation_error(schedule), "the number of micro-batches (chunks) is from 1 to 4096, got 0");
  schedule = good();
  schedule.placement.worker_of = {0, 2};
  EXPECT_EQ(validation_error(schedule), "placement 0,2 gives no stage to worker 1; number the workers 0 to 2 without gaps");
}

TEST(Validate, RefusesQueuesWithoutRoom) { EXPECT_EQ(validation_error(good(), 0), "a queue holds at least 1 frame, got 0"); }

}  // namespace
}  // namespace epipe::schedule
