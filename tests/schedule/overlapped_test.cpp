// The lists of workers whose steps overlap, run against each other without time.
#include "epipe/schedule/overlapped.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "epipe/schedule/placement.h"

namespace epipe::schedule {
namespace {

struct Item {
  enum class What { kAction, kStepDone, kCommit };
  What what;
  std::uint64_t step;
  Action action{};
};

// What every worker does in a run: `chunks` of each step, and after which steps the pipeline drains.
struct Story {
  Placement placement;
  std::vector<int> chunks;
  std::vector<bool> drains;
  int first_trained = 0;
  bool early = true;
};

class Worker {
 public:
  Worker(const Story& story, int worker) : story_(story), worker_(worker) {
    for (std::uint64_t k = 0; k < story.chunks.size(); ++k) {
      const bool follows = k > 0 && !story.drains[k - 1];
      overlapped(k, true, follows);
      if (story.early && worker != 0) early(k);
      if (follows) items.push_back({Item::What::kCommit, k - 1});
      if (!story.drains[k]) continue;
      overlapped(k + 1, false, true);
      items.push_back({Item::What::kCommit, k});
    }
  }
  std::vector<Item> items{};

 private:
  void overlapped(std::uint64_t k, bool newer, bool older) {
    const OverlappedRequest request{story_.placement, story_.first_trained, newer ? story_.chunks[k] : 0, older ? story_.chunks[k - 1] : 0,
                                    story_.early};
    for (const auto& one : overlapped_actions(request, worker_)) {
      items.push_back({Item::What::kAction, one.older ? k - 1 : k, one.action});
    }
    if (older) items.push_back({Item::What::kStepDone, k - 1});
  }
  void early(std::uint64_t k) {
    for (const Action& action : early_backwards(story_.placement, story_.first_trained, story_.chunks[k], worker_)) {
      items.push_back({Item::What::kAction, k, action});
    }
  }

  const Story& story_;
  int worker_;
};

// Runs all lists to their end: an action waits for what it takes, a commit until every worker has the step's gradients.
class Lists {
 public:
  explicit Lists(const Story& story) : story_(story) {
    for (int w = 0; w < story.placement.workers(); ++w) lists_.push_back(Worker(story, w).items);
    next_.resize(lists_.size());
  }

  void to_the_end() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t w = 0; w < lists_.size(); ++w) {
        while (next_[w] < lists_[w].size() && can_run(lists_[w][next_[w]])) {
          run(lists_[w][next_[w]++]);
          moved = true;
        }
      }
    }
    for (std::size_t w = 0; w < lists_.size(); ++w) ASSERT_EQ(next_[w], lists_[w].size()) << "worker " << w << " waits forever";
  }
  int count(Kind kind, int stage) const { return runs_.contains({kind, stage}) ? runs_.at({kind, stage}) : 0; }
  int most_waiting() const { return most_waiting_; }

 private:
  bool can_run(const Item& item) const {
    if (item.what == Item::What::kStepDone) return true;
    if (item.what == Item::What::kCommit) return done_.contains(item.step) && done_.at(item.step) == story_.placement.workers();
    const auto [kind, i, j] = item.action;
    const int before = kind == Kind::kForward ? j - 1 : j + 1;
    if (before < 0) return true;
    if (before == story_.placement.stages()) return ended_.contains({Kind::kForward, j, item.step, i});
    return ended_.contains({kind, before, item.step, i});
  }
  void run(const Item& item) {
    if (item.what == Item::What::kStepDone) ++done_[item.step];
    if (item.what != Item::What::kAction) return;
    const auto [kind, i, j] = item.action;
    const auto place = std::pair{item.step, i};
    auto& last = last_[{kind, j}];
    EXPECT_TRUE(count(kind, j) == 0 || last < place) << "micro-batches ascend, step after step";
    last = place;
    ended_[{kind, j, item.step, i}] = true;
    ++runs_[{kind, j}];
    const int before = kind == Kind::kForward ? j - 1 : j + 1;
    const int after = kind == Kind::kForward ? j + 1 : j - 1;
    for (const int from : {before, j}) {
      const int to = from == j ? after : j;
      const bool carried = kind == Kind::kForward || std::min(from, to) >= story_.first_trained;
      if (std::min(from, to) < 0 || std::max(from, to) == story_.placement.stages() || !carried) continue;
      most_waiting_ = std::max(most_waiting_, count(kind, from) - count(kind, to));
    }
  }

  Story story_;
  std::vector<std::vector<Item>> lists_;
  std::vector<std::size_t> next_;
  std::map<std::uint64_t, int> done_;
  std::map<std::tuple<Kind, int, std::uint64_t, int>, bool> ended_;
  std::map<std::pair<Kind, int>, int> runs_;
  std::map<std::pair<Kind, int>, std::pair<std::uint64_t, int>> last_;
  int most_waiting_ = 0;
};

const std::vector<std::vector<int>> kPlacements = {{0},       {0, 0},       {0, 1},          {0, 1, 0},       {0, 1, 2},      {0, 1, 2, 0},
                                                   {0, 0, 1}, {0, 1, 1, 0}, {0, 1, 0, 1, 0}, {0, 1, 2, 1, 0}, {0, 1, 2, 3, 4}};

TEST(Overlapped, EveryStepEndsOnEveryPlacement) {
  for (const auto& place : kPlacements) {
    for (const bool early : {false, true}) {
      for (int first_trained = 0; first_trained < static_cast<int>(place.size()); ++first_trained) {
        SCOPED_TRACE(to_string(Placement{place}) + (early ? " early" : ""));
        const Story story{{place}, {6, 6, 1, 6, 5, 6}, {false, false, true, false, true, true}, first_trained, early};
        Lists run(story);
        run.to_the_end();
        for (int j = 0; j < static_cast<int>(place.size()); ++j) {
          EXPECT_EQ(run.count(Kind::kForward, j), 30);
          EXPECT_EQ(run.count(Kind::kBackward, j), j < first_trained ? 0 : 30);
        }
        EXPECT_LE(run.most_waiting(), overlapped_capacity(6));
      }
    }
  }
}

std::string text(const std::vector<OverlappedAction>& actions) {
  std::string all;
  for (const auto& [action, older] : actions) all += to_string(action) + (older ? "- " : " ");
  return all;
}

// The grid of overlapped.h.
TEST(Overlapped, AFarWorkerWaitsForACommitWithBackwards) {
  const Placement ring{{0, 1, 0}};
  EXPECT_EQ(early_count(4), 3);
  EXPECT_EQ(early_backwards(ring, 0, 4, 1),
            (std::vector<Action>{{Kind::kBackward, 0, 1}, {Kind::kBackward, 1, 1}, {Kind::kBackward, 2, 1}}));
  EXPECT_TRUE(early_backwards(ring, 0, 4, 0).empty()) << "who decides the commit does not wait for it";
  EXPECT_EQ(text(overlapped_actions({ring, 0, 4, 4, true}, 1)), "F 0 1 F 1 1 F 2 1 F 3 1 B 3 1- ");
  EXPECT_EQ(text(overlapped_actions({ring, 0, 2, 4, true}, 0)), "F 0 0 F 1 0 B 0 0- B 1 0- B 2 0- F 0 2 B 0 2 F 1 2 B 1 2 B 3 0- ");
  EXPECT_EQ(text(overlapped_actions({ring, 0, 0, 4, true}, 1)), "B 3 1- ") << "draining";
  EXPECT_EQ(text(overlapped_actions({ring, 0, 2, 2, false}, 1)), "F 0 1 F 1 1 B 0 1- B 1 1- ");
}

}  // namespace
}  // namespace epipe::schedule
