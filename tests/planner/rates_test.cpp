// Bits for a link as it is now: as many as it has room for.
#include "epipe/planner/rates.h"

#include <gtest/gtest.h>

#include "planner/tables.h"

namespace epipe::planner {
namespace {

constexpr double kFast = 1e12;
constexpr double kSlow = 1e4;

// Codecs of 2, 4 and 8 bits on layers 1 and 3 of a model whose middle is with the server.
Inputs coded_inputs(unsigned seed, const Link& link) {
  Inputs inputs = random_inputs(seed, 5);
  inputs.link = link;
  inputs.codecs.clear();
  for (const double bits : {2, 4, 8}) inputs.codecs.push_back(codec_of(fmt::format("auto:{}", bits), bits, 200, 1e-9, 1e-9, 1e-6));
  return inputs;
}

Choice ring(std::size_t codec = 0) { return {{1, 4}, {0, 1, 0}, 4, {{codec, codec}, {codec, codec}}, "gpipe", 0}; }

std::vector<AllowedCodecs> all_open() { return {{{0, 1, 2}, {0, 1, 2}}, {{0, 1, 2}, {0, 1, 2}}}; }

TEST(ChooseRates, GivesASlowLinkTheFewestBitsAndAFastOneTheMost) {
  const Inputs slow = coded_inputs(1, {kSlow, kSlow, 0, 0});
  for (const CutCodecs& codecs : choose_rates(slow, ring(2), all_open()).choice.codecs) EXPECT_EQ(codecs, (CutCodecs{0, 0}));
  const Inputs fast = coded_inputs(1, {kFast, kFast, 0, 0});
  for (const CutCodecs& codecs : choose_rates(fast, ring(0), all_open()).choice.codecs) EXPECT_EQ(codecs, (CutCodecs{2, 2}));
}

TEST(ChooseRates, GivesBitsToTheDirectionThatHasRoom) {
  const Inputs inputs = coded_inputs(2, {kFast, kSlow, 0, 0});  // up, down
  const Choice choice = choose_rates(inputs, ring(), all_open()).choice;
  EXPECT_EQ(choice.codecs[0], (CutCodecs{2, 0})) << "activations go up, their gradients come down";
  EXPECT_EQ(choice.codecs[1], (CutCodecs{0, 2}));
}

TEST(ChooseRates, GivesNoneFewerThanItMayHaveAndLeavesAllElseAsItIs) {
  const Inputs inputs = coded_inputs(3, {kSlow, kSlow, 0, 0});
  const Choice before = ring(1);
  const Choice after = choose_rates(inputs, before, {{{2}, {}}, {{1, 2}, {}}}).choice;
  EXPECT_EQ(after.codecs[0], (CutCodecs{2, 1})) << "8 bits are its least; nothing is open backward";
  EXPECT_EQ(after.codecs[1], (CutCodecs{1, 1}));
  Choice rest = after;
  rest.codecs = before.codecs;
  EXPECT_EQ(rest, before);
}

TEST(ChooseRates, IsAsFastAsAnyChoiceOfBitsWithinTwoPercentAndNoBitsMoreWouldBe) {
  int between = 0;
  for (unsigned seed = 1; seed <= 12; ++seed) {
    Inputs inputs = coded_inputs(seed, {2e5 * seed, 4e5 * seed, 0.002, 1e-9});
    const Priced chosen = choose_rates(inputs, ring(), all_open());
    Pricer pricer(inputs);
    double fastest = kUnlimited;
    for (std::size_t code = 0; code < 81; ++code) {
      Choice choice = ring();
      choice.codecs = {{code % 3, code / 3 % 3}, {code / 9 % 3, code / 27}};
      fastest = std::min(fastest, pricer.price(choice).seconds);
    }
    EXPECT_LE(chosen.price.seconds, 1.0201 * fastest) << "seed " << seed;
    double bits = 0;
    for (const CutCodecs& codecs : chosen.choice.codecs) bits += static_cast<double>(codecs.forward + codecs.backward);
    between += bits > 0 && bits < 8 ? 1 : 0;
    for (std::size_t cut = 0; cut < 2; ++cut) {
      for (std::size_t CutCodecs::*codec : {&CutCodecs::forward, &CutCodecs::backward}) {
        Choice raised = chosen.choice;
        if (++(raised.codecs[cut].*codec) > 2) continue;
        EXPECT_GT(pricer.price(raised).seconds, 1.0199 * pricer.price(ring()).seconds) << "seed " << seed;
      }
    }
  }
  EXPECT_GT(between, 3) << "links that are neither slow nor fast";
}

TEST(ChooseRates, TellsTheTimeOfAStepAtThem) {
  const Inputs inputs = coded_inputs(4, {1e6, 1e6, 0.01, 0});
  const Priced chosen = choose_rates(inputs, ring(), all_open());
  EXPECT_DOUBLE_EQ(chosen.price.seconds, Pricer(inputs).price(chosen.choice).seconds);
}

}  // namespace
}  // namespace epipe::planner
