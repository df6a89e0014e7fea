// What the search finds, against everything there is.
#include "epipe/planner/search.h"

#include <gtest/gtest.h>

#include <functional>

#include "epipe/planner/possible.h"
#include "planner/tables.h"

namespace epipe::planner {
namespace {

using schedule::Direction;

Proposal found(const Inputs& inputs, const SearchConfig& config = {}) {
  auto result = search(inputs, config);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return result.ok() ? std::move(result).value() : Proposal{};
}

// Every choice, whether or not it fits.
void for_every_choice(const Inputs& inputs, const std::function<void(const Choice&)>& visit) {
  const auto place = default_place(inputs);
  const std::size_t codecs = inputs.codecs.size();
  for (std::size_t first = 1; first < inputs.layers.size(); ++first) {
    for (std::size_t second = first + 1; second < inputs.layers.size(); ++second) {
      for (const int chunks : possible_chunks(inputs)) {
        for (std::size_t code = 0; code < codecs * codecs * codecs * codecs; ++code) {
          const std::size_t high = code / (codecs * codecs);
          const std::size_t low = code % (codecs * codecs);
          for (const std::string& name : possible_schedules(inputs, {place})) {
            for (const int in_flight : possible_in_flight(inputs, name, chunks)) {
              visit({{first, second}, place, chunks, {{high / codecs, high % codecs}, {low / codecs, low % codecs}}, name, in_flight});
            }
          }
        }
      }
    }
  }
}

bool fits(const Inputs& inputs, const std::vector<double>& memory) {
  for (std::size_t w = 0; w < memory.size(); ++w) {
    if (memory[w] > inputs.workers[w].memory) return false;
  }
  return true;
}

TEST(Search, FindsTheFastestOfAllChoices) {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    const Inputs inputs = random_inputs(seed, 5);
    Pricer pricer(inputs);
    double fastest = kUnlimited;
    std::uint64_t all = 0;
    for_every_choice(inputs, [&](const Choice& choice) { fastest = std::min(fastest, pricer.best_order(choice).price.seconds), ++all; });
    const Proposal made = found(inputs, {100'000, 5, 0});
    EXPECT_TRUE(made.complete);
    EXPECT_DOUBLE_EQ(made.best.price.seconds, fastest) << "seed " << seed;
    EXPECT_LT(made.simulated, all) << "the bound rules nothing out";
  }
}

TEST(Search, SimulatesEverythingWhereAskedTo) {
  const Inputs inputs = random_inputs(2, 5);
  std::uint64_t all = 0;
  for_every_choice(inputs, [&](const Choice&) { ++all; });
  SearchConfig config;
  config.exhaustive = true;
  const Proposal made = found(inputs, config);
  EXPECT_EQ(made.simulated, all);
  EXPECT_EQ(made.best.choice, found(inputs).best.choice);
}

TEST(Search, TakesTheChoiceThatCodesLessWhereBothAreAsFast) {
  Inputs inputs = random_inputs(3, 6);
  inputs.link = {1e12, 1e12, 0, 0};
  for (const CutCodecs& codecs : found(inputs).best.choice.codecs) EXPECT_EQ(codecs, (CutCodecs{0, 0}));
  inputs.link = {1e5, 1e5, 0, 0};
  for (const CutCodecs& codecs : found(inputs).best.choice.codecs) EXPECT_EQ(codecs, (CutCodecs{1, 1}));
}

TEST(Search, RespectsTheMemoryOfEveryWorker) {
  int tight = 0;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    Inputs inputs = random_inputs(seed, 8);
    const auto free_choice = found(inputs).best;
    inputs.workers[seed % 2].memory = 0.8 * free_choice.price.memory[seed % 2];
    const auto limited = search(inputs);
    if (!limited) continue;
    ++tight;
    EXPECT_TRUE(fits(inputs, limited.value().best.price.memory)) << "seed " << seed;
    for (const Priced& other : limited.value().runners_up) EXPECT_TRUE(fits(inputs, other.price.memory)) << "seed " << seed;
    EXPECT_GE(limited.value().best.price.seconds * 1.02, free_choice.price.seconds);
  }
  EXPECT_GT(tight, 3);
}

TEST(Search, SaysHowMuchMemoryIsMissingWhereNothingFits) {
  Inputs inputs = random_inputs(5, 6);
  inputs.workers[1].memory = 1e8 + 1;  // one byte more than the process without a model
  const auto result = search(inputs);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("the server 1 needs at least"), std::string::npos) << result.error().message;
  EXPECT_NE(result.error().message.find("but has 100.0 MB"), std::string::npos) << result.error().message;
  EXPECT_NE(result.error().message.find("MB are missing"), std::string::npos) << result.error().message;
}

TEST(Search, KeepsLayersWithTheClient) {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    Inputs inputs = random_inputs(seed, 9);
    inputs.layers[2].with_client = true;
    inputs.layers[6].with_client = true;
    const Choice choice = found(inputs).best.choice;
    EXPECT_TRUE(choice.cuts[0] > 2 || choice.cuts[1] <= 2) << "seed " << seed;
    EXPECT_TRUE(choice.cuts[0] > 6 || choice.cuts[1] <= 6) << "seed " << seed;
  }
  Inputs inputs = random_inputs(1, 3);
  inputs.layers[1].with_client = true;
  EXPECT_NE(search(inputs).error().message.find("keep fewer layers"), std::string::npos);
}

TEST(Search, PredictsNoSlowerStepOnAFasterLink) {
  for (unsigned seed = 1; seed <= 15; ++seed) {
    Inputs inputs = random_inputs(seed, 6);
    double before = kUnlimited;
    for (int k = 0; k < 6; ++k) {
      const double seconds = found(inputs, {20'000, 0, 0}).best.price.seconds;
      EXPECT_LE(seconds, before * 1.01) << "seed " << seed << ", " << k;  // frames on a shared link may pass each other
      before = seconds;
      inputs.link.up *= 2;
      inputs.link.down *= 2;
      inputs.link.delay /= 2;
    }
  }
}

TEST(Search, GivesTheSameProposalAgain) {
  const Inputs inputs = random_inputs(7, 12);
  const Proposal one = found(inputs);
  const Proposal two = found(inputs);
  EXPECT_EQ(one.best.choice, two.best.choice);
  ASSERT_EQ(one.runners_up.size(), two.runners_up.size());
  for (std::size_t i = 0; i < one.runners_up.size(); ++i) EXPECT_EQ(one.runners_up[i].choice, two.runners_up[i].choice);
}

TEST(Search, KeepsWhatItIsTold) {
  Inputs inputs = random_inputs(2, 10);
  inputs.constraints.cuts = {{3, 7}};
  inputs.constraints.chunks = 5;
  inputs.constraints.schedule = "gpipe";
  inputs.constraints.forward_codecs = {1};
  inputs.constraints.codec_at = {{1, Direction::kBackward, 0}};
  const Choice choice = found(inputs).best.choice;
  EXPECT_EQ(choice.cuts, (std::vector<std::size_t>{3, 7}));
  EXPECT_EQ(choice.chunks, 5);
  EXPECT_EQ(choice.schedule, "gpipe");
  EXPECT_EQ(choice.codecs[0].forward, 1U);
  EXPECT_EQ(choice.codecs[1].forward, 1U);
  EXPECT_EQ(choice.codecs[1].backward, 0U);
}

TEST(Search, HasMoreInFlightOverADistance) {
  Inputs inputs = equal_inputs(9);
  inputs.constraints.schedule = "1f1b";
  inputs.constraints.chunks = 16;
  inputs.constraints.cuts = {{1, 8}};
  EXPECT_EQ(found(inputs).best.choice.in_flight, 0);
  inputs.link.delay = 0.1;
  EXPECT_GT(found(inputs).best.choice.in_flight, 3);
  inputs.constraints.in_flight = 2;
  EXPECT_EQ(found(inputs).best.choice.in_flight, 2);
}

TEST(Search, MakesNoMicroBatchSmallerThanAllowed) {
  Inputs inputs = random_inputs(4, 6);
  inputs.constraints.least_samples = 8;
  EXPECT_LE(found(inputs).best.choice.chunks, 2);
}

TEST(Search, CutsAChainOfEqualWorkersInTheMiddle) {
  Inputs inputs = equal_inputs(8);
  inputs.ring = false;
  const Choice choice = found(inputs).best.choice;
  EXPECT_EQ(choice.place, (std::vector<int>{0, 1}));
  EXPECT_EQ(choice.cuts, (std::vector<std::size_t>{4}));
}

TEST(Search, GivesEveryServerOfARingAStage) {
  const Choice choice = found(random_inputs(6, 12, 3)).best.choice;
  EXPECT_EQ(choice.place, (std::vector<int>{0, 1, 2, 0}));
  EXPECT_EQ(choice.cuts.size(), 3U);
}

TEST(Search, OfTwoHundredLayersEndsWithinItsSimulations) {
  const Proposal made = found(random_inputs(8, 200));
  EXPECT_LE(made.simulated, 2001U);
  EXPECT_EQ(made.runners_up.size(), 5U);
}

TEST(Search, RefusesRequestsThatContradictEachOther) {
  for (const auto& [change, reason] : std::vector<std::pair<std::function<void(Inputs&)>, std::string>>{
           {[](Inputs& i) { i.link.up = 0; }, "rate up must be more than 0"},
           {[](Inputs& i) {
              i.constraints.cuts = {{1, 2, 3}};
            },
            "3 cuts make 4 stages, but the placement 0,1,0 has 3"},
           {[](Inputs& i) {
              i.constraints.cuts = {{4, 2}};
            },
            "ascending order between 1 and 5, got 2"},
           {[](Inputs& i) { i.constraints.chunks = 17; }, "17 chunks of a batch of 16 samples"},
           {[](Inputs& i) { i.constraints.schedule = "zb-h1"; }, "zb-h1 cannot run on the placement 0,1,0"},
           {[](Inputs& i) {
              i.constraints.place = {{0, 1, 2, 0}};
            },
            "names 3 workers, but there are 2"},
           {[](Inputs& i) { i.workers[0].forward.pop_back(); }, "expected 6 client's forward times"},
           {[](Inputs& i) { i.codecs.clear(); }, "at least one codec"},
           {[](Inputs& i) { i.codecs[1].backward.resize(2); }, "auto:2 costs: expected an entry for each of 6 layers, or one for all"},
           {[](Inputs& i) { i.workers[1].sizes = {1, 1}; }, "server 1's sizes of a micro-batch in ascending order, got 1"},
           {[](Inputs& i) { i.workers[1].sizes = {1}; }, "at each of 1 sizes of a micro-batch, got 2"},
           {[](Inputs& i) {
              i.constraints.codec_at = {{2, Direction::kForward, 0}};
            },
            "for cut 2, but the placement 0,1,0 has 2 cuts"},
           {[](Inputs& i) {
              i.layers.back().with_client = true, i.constraints.place = {{0, 1}};
            },
            "the last layer, layer5, stays with the client, worker 0, but the placement 0,1 ends on worker 1"},
           {[](Inputs& i) {
              i.layers[2].with_client = true, i.constraints.cuts = {{1, 4}};
            },
            "layer 2, layer2, stays with the client, but the cuts 1,4 give it to worker 1"},
           {[](Inputs& i) { i.layers.resize(2), i.workers = random_inputs(1, 2).workers; }, "3 stages need one each: 1 are missing"},
       }) {
    Inputs inputs = random_inputs(1, 6);
    change(inputs);
    const auto result = search(inputs);
    ASSERT_FALSE(result.ok()) << reason;
    EXPECT_NE(result.error().message.find(reason), std::string::npos) << result.error().message;
  }
}

}  // namespace
}  // namespace epipe::planner
