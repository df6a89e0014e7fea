// The codec auto without a number: what its audits measure, what it makes of them, and that nothing else changes.
#include "epipe/train/auto_rates.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "epipe/train/assemble.h"
#include "train/coordinated.h"

namespace epipe::train {
namespace {

using session::AuditOutcome;
using session::AuditRequest;
using testing::Countdown;
using testing::Machines;
using testing::metrics_in;
using testing::TempFolder;
using testing::Watcher;
using wire::Direction;

constexpr std::int64_t kBatch = 64;

AutoRatesConfig two_cuts(double harm = 0.1) {
  AutoRatesConfig config;
  config.audited = {{0, Direction::kForward}, {1, Direction::kForward}};
  config.cuts = 2;
  config.harm = harm;
  config.loss_added = 0.01;
  config.share = 0.025;
  config.batch = config.batch_here = kBatch;
  return config;
}

data::LoadedBatch batch_at(std::uint64_t step, std::int64_t samples = kBatch) {
  data::LoadedBatch loaded;
  loaded.step = step;
  loaded.samples = samples;
  loaded.batch.samples.resize(static_cast<std::size_t>(samples));
  return loaded;
}

pipeline::StepResult step_of(std::uint64_t bytes_per_cut, std::int64_t samples) {
  pipeline::StepResult step;
  step.forward.resize(2);
  step.backward.resize(2);
  for (auto& traffic : step.forward) traffic.wire_bytes = bytes_per_cut;
  for (auto& traffic : step.forward) traffic.values = 1000;
  step.samples = samples;
  return step;
}

// What cuts whose relative error is error / rate^2 would tell, whose harm is 0.1 / rate^2 times their sensitivity and which add `loss` /
// rate^2 to the loss; a comparison shows what its higher rate takes away of that. No gradient has anything in common with another.
AuditOutcome outcome_of(const AuditRequest& request, std::vector<double> sensitivity, double bias, double error, double loss = 0) {
  AuditOutcome outcome;
  outcome.step = step_of(1000, 8 * static_cast<std::int64_t>(2 * request.passes.size()));
  outcome.parts = 1;
  outcome.curves.resize(4);
  outcome.by_stage = {{{0, 1, 0}}};  // noise 1, of a micro-batch
  outcome.losses = {{{2, 2}, {0, 0}}};
  for (std::size_t k = 0; k < sensitivity.size(); ++k) {
    for (const double rate : request.tried[2 * k]) outcome.curves[2 * k].push_back(error / (rate * rate));
    const double rate = request.passes[0][k].forward;
    const double high = request.passes[k + 1][k].forward;
    const double removed = 1 / (rate * rate) - 1 / (high * high);
    const double square = sensitivity[k] * 0.1 * removed;
    outcome.by_stage.push_back({{bias * square, square, 0}});
    outcome.losses.push_back({{2, 2}, {loss * removed, loss * removed}});
  }
  return outcome;
}

AuditRecord audit(AutoRates& rates, std::uint64_t step, const std::vector<double>& sensitivity, double bias = 0, double error = 1e-5,
                  double loss = 0) {
  const AuditRequest request = rates.request(batch_at(step));
  return rates.take(request, outcome_of(request, sensitivity, bias, error, loss));
}

TEST(AutoRates, AnAuditRaisesOneCutAfterTheOther) {
  const AutoRates rates(two_cuts());
  const AuditRequest request = rates.request(batch_at(7));
  ASSERT_EQ(request.passes.size(), 3U);
  EXPECT_EQ(request.id.step, 7U);
  EXPECT_EQ(request.samples[0].size(), 8);
  EXPECT_EQ(request.samples[1].size(), 8);
  for (std::size_t k = 0; k < 2; ++k) {
    EXPECT_EQ(request.passes[0][k].forward, AutoRates::kFirst);
    EXPECT_EQ(request.passes[0][k].backward, 0) << "nobody chooses it";
    EXPECT_TRUE(request.tried[2 * k + 1].empty());
  }
  EXPECT_EQ(request.passes[1][0].forward, 3 * AutoRates::kFirst);
  EXPECT_EQ(request.passes[1][1].forward, AutoRates::kFirst);
  EXPECT_EQ(request.passes[2][0].forward, 3 * AutoRates::kFirst) << "one after the other";
  EXPECT_EQ(request.passes[2][1].forward, 3 * AutoRates::kFirst);
}

TEST(AutoRates, MoveBitsToTheCutThatMatters) {
  AutoRates rates(two_cuts());
  const AuditRecord found = audit(rates, 0, {10, 0.001});
  ASSERT_TRUE(found.valid);
  EXPECT_NEAR(found.harm, 1.0001, 1e-9);
  EXPECT_GT(rates.rates()[0].forward, 4);
  EXPECT_EQ(rates.rates()[1].forward, AutoRates::kFirst / 2);
  EXPECT_EQ(found.cuts[0].next_rate, rates.rates()[0].forward);
}

TEST(AutoRates, ComeToTheBoundAndStayThere) {
  AutoRates rates(two_cuts(0.1));
  double harm = 0;
  for (std::uint64_t step = 0; step < 6; ++step) harm = audit(rates, step, {1, 1}).harm;
  EXPECT_NEAR(harm, 0.1, 0.01);
  EXPECT_NEAR(rates.rates()[0].forward, std::sqrt(2.0), 0.1);
}

// However little the gradients feel of it.
TEST(AutoRates, ActivationsAddNoMoreToTheLossThanTheyMay) {
  AutoRates rates(two_cuts());
  double added = 0;
  for (std::uint64_t step = 0; step < 6; ++step) added = audit(rates, step, {1e-9, 1e-9}, 0, /*error=*/0.1, /*loss=*/0.02).loss_added;
  EXPECT_NEAR(added, 0.01, 0.001) << "of both together";
  for (std::size_t k = 0; k < 2; ++k) EXPECT_NEAR(rates.rates()[k].forward, std::sqrt(0.02 / 0.005), 0.1);
}

TEST(AutoRates, HarmAsksForMoreThanTheLossDoes) {
  AutoRates rates(two_cuts());
  for (std::uint64_t step = 0; step < 6; ++step) audit(rates, step, {10, 1e-9}, 0, 0.1, 0.02);
  EXPECT_NEAR(rates.rates()[0].forward, std::sqrt(10.0), 0.2) << "for the harm of 0.1";
  EXPECT_NEAR(rates.rates()[1].forward, 2, 0.1) << "for the loss";
}

TEST(AutoRates, NoTensorLosesMoreThanAFifthOfItself) {
  AutoRates rates(two_cuts());
  for (std::uint64_t step = 0; step < 8; ++step) audit(rates, step, {1e-9, 1e-9}, 0, /*error=*/0.1);
  for (std::size_t k = 0; k < 2; ++k) EXPECT_NEAR(rates.rates()[k].forward, std::sqrt(0.1 / AutoRates::kMostError), 0.01);
}

// The two micro-batches disagree: the mean may be wrong by half their difference.
TEST(AutoRates, WhatIsKnownLessWellCountsForMore) {
  const auto rate_with = [](double spread) {
    AutoRates rates(two_cuts());
    const AuditRequest request = rates.request(batch_at(0));
    AuditOutcome outcome = outcome_of(request, {1e-9, 1e-9}, 0, 0.1, 0.02);
    outcome.losses[1].added = {0.02 * (1 + spread), 0.02 * (1 - spread)};
    rates.take(request, outcome);
    return rates.rates()[0].forward;
  };
  EXPECT_NEAR(rate_with(0), 4, 0.2) << "for a quarter of the bound";
  EXPECT_GT(rate_with(0.9), 1.15 * rate_with(0));
}

// A squared error has no nats of its own.
TEST(AutoRates, OtherLossesCountByTheirRelativeGrowth) {
  AutoRatesConfig config = two_cuts();
  config.log_likelihood = false;
  AutoRates rates(config);
  for (std::uint64_t step = 0; step < 6; ++step) audit(rates, step, {1e-9, 1e-9}, 0, 0.1, /*loss=*/0.08);
  EXPECT_NEAR(rates.rates()[0].forward, 2, 0.1) << "0.02 of a loss of 2 at each cut";
}

// The gradient of the first stage is small beside that of the second.
TEST(AutoRates, HarmIsThatOfTheStageWhereItIsMost) {
  AutoRates rates(two_cuts());
  const AuditRequest request = rates.request(batch_at(0));
  AuditOutcome outcome = outcome_of(request, {0, 0}, 0, 1e-5);
  outcome.by_stage = {{{0, 1e-4, 0}, {0, 1, 0}, {0, 0, 0}}, {{0, 5e-5, 0}, {0, 8.0 / 9 * 0.1, 0}, {}}, {{}, {0, 8.0 / 9 * 0.2, 0}, {}}};
  const AuditRecord found = rates.take(request, outcome);
  EXPECT_NEAR(found.cuts[0].harm, 0.5 * 9 / 8, 1e-9);
  EXPECT_NEAR(found.cuts[1].harm, 0.2, 1e-9);
}

TEST(AutoRates, ABiasCountsAsOftenAsMicroBatchesFitInABatch) {
  AutoRates rates(two_cuts());
  const double unbiased = audit(rates, 0, {1, 1}).harm;
  AutoRates biased(two_cuts());
  const AuditRecord found = audit(biased, 0, {1, 1}, /*bias=*/1);
  EXPECT_NEAR(found.harm / unbiased, kBatch / 8, 1e-9);
  EXPECT_NEAR(found.cuts[0].bias, found.cuts[0].harm, 1e-9);
  AutoRates opposed(two_cuts());
  EXPECT_NEAR(audit(opposed, 0, {1, 1}, /*bias=*/-1).harm, unbiased, 1e-9) << "a negative estimate of a square is 0";
}

TEST(AutoRates, FallByHalfAtMostAndRiseFasterAtFirst) {
  AutoRates rates(two_cuts());
  const auto grown_by = [&](std::uint64_t step, double sensitivity) {
    const double before = rates.rates()[0].forward;
    audit(rates, step, {sensitivity, sensitivity});
    return rates.rates()[0].forward / before;
  };
  EXPECT_NEAR(grown_by(0, 1e-6), 0.5, 1e-6);
  EXPECT_NEAR(grown_by(1, 1e6), 4, 1e-6);
  EXPECT_NEAR(grown_by(2, 1e9), 4, 1e-6);
  EXPECT_EQ(rates.rates()[0].forward, AutoRates::kMost);
  for (std::uint64_t step = 4; step < 30; ++step) audit(rates, step, {1e9, 1e9});
  EXPECT_EQ(rates.rates()[0].forward, AutoRates::kMost);
  for (std::uint64_t step = 30; step < 60; ++step) audit(rates, step, {1e-9, 1e-9});
  EXPECT_GE(rates.rates()[0].forward, AutoRates::kLeast);
  EXPECT_LT(rates.rates()[0].forward, 2 * AutoRates::kLeast);
}

TEST(AutoRates, AuditsTakeTheirShareOfBytesSamplesAndSteps) {
  for (const int scarce : {0, 1, 2}) {
    AutoRates rates(two_cuts());
    double trained = 0;
    double audited = 0;
    int audits = 0;
    for (std::uint64_t step = 0; step < 2000; ++step) {
      if (rates.is_due(batch_at(step))) {
        const AuditRequest request = rates.request(batch_at(step));
        AuditOutcome outcome = outcome_of(request, {1, 1}, 0, 1e-5);
        outcome.step = step_of(scarce == 0 ? 100'000 : 1, scarce == 1 ? 300 : 1);
        outcome.parts = scarce == 2 ? 3 : 1;
        rates.take(request, outcome);
        if (audits > 0) audited += scarce == 0 ? 200'000 : scarce == 1 ? 300 : 3;
        ++audits;
      }
      rates.count(step_of(50'000, kBatch));
      trained += scarce == 0 ? 100'000 : scarce == 1 ? kBatch : 1;
      if (audits < 2) continue;
      EXPECT_LE(audited, 0.025 * trained) << "at step " << step;
    }
    EXPECT_GT(audits, 5) << scarce;
  }
}

// Activations of the first cut that a server keeps are not sent again, unless it lost them.
TEST(AutoRates, BytesThatAServerMayKeepMoveNoAudit) {
  const auto audited_steps = [](bool reuses, std::uint64_t first_cut_bytes) {
    AutoRatesConfig config = two_cuts();
    config.reuses = reuses;
    AutoRates rates(config);
    std::vector<std::uint64_t> steps;
    for (std::uint64_t step = 0; step < 500; ++step) {
      if (rates.is_due(batch_at(step))) {
        const AuditRequest request = rates.request(batch_at(step));
        AuditOutcome outcome = outcome_of(request, {1, 1}, 0, 1e-5);
        outcome.step = step_of(50'000, 16);
        outcome.step.forward[0].wire_bytes = 50'000;
        outcome.parts = 1;
        rates.take(request, outcome);
        steps.push_back(step);
      }
      auto trained = step_of(50'000, kBatch);
      trained.forward[0].wire_bytes = first_cut_bytes;
      rates.count(trained);
    }
    return steps;
  };
  EXPECT_GT(audited_steps(true, 0).size(), 2U);
  EXPECT_EQ(audited_steps(true, 0), audited_steps(true, 1'000'000));
  EXPECT_NE(audited_steps(false, 0), audited_steps(false, 1'000'000));
}

// Of a long run the steps to come pay for audits while gradients change fast; all together take their share.
TEST(AutoRates, AuditsComeEarlyWhereLaterStepsPayForThem) {
  const auto audited_steps = [](double steps) {
    AutoRatesConfig config = two_cuts();
    config.steps = steps;
    AutoRates rates(config);
    std::vector<std::uint64_t> audited;
    for (std::uint64_t step = 0; step < static_cast<std::uint64_t>(steps); ++step) {
      if (rates.is_due(batch_at(step))) {
        const AuditRequest request = rates.request(batch_at(step));
        AuditOutcome outcome = outcome_of(request, {1, 1}, 0, 1e-5);
        outcome.step = step_of(1000, 96);
        outcome.parts = 2;
        rates.take(request, outcome);
        audited.push_back(step);
      }
      rates.count(step_of(1000, kBatch));
    }
    return audited;
  };
  const auto in_long_run = audited_steps(4000);
  ASSERT_GT(in_long_run.size(), 8U);
  EXPECT_EQ(std::vector(in_long_run.begin(), in_long_run.begin() + 6), (std::vector<std::uint64_t>{0, 8, 16, 32, 64, 128}));
  EXPECT_LE((in_long_run.size() - 1) * 2, static_cast<std::size_t>(0.025 * 4000));
  EXPECT_GT(in_long_run.back(), 3500U);
  const auto in_short_run = audited_steps(400);
  EXPECT_EQ(in_short_run.size(), 5U);
  EXPECT_GT(in_short_run.back(), 200U) << "not all of them at once";
}

TEST(AutoRates, OnlyBatchesWithEnoughSamplesAreAudited) {
  const AutoRates rates(two_cuts());
  EXPECT_TRUE(rates.is_due(batch_at(0)));
  EXPECT_FALSE(rates.is_due(batch_at(0, 15)));
  AutoRatesConfig single = two_cuts();
  single.batch = single.batch_here = 1;
  EXPECT_FALSE(AutoRates(single).is_due(batch_at(0, 1)));
}

TEST(AutoRates, AnAuditWithoutFiniteGradientsChangesNothingAndIsTriedAgain) {
  AutoRates rates(two_cuts());
  const AuditRequest request = rates.request(batch_at(0));
  AuditOutcome outcome = outcome_of(request, {1, 1}, 0, 1e-5);
  outcome.non_finite = true;
  EXPECT_FALSE(rates.take(request, outcome).valid);
  EXPECT_EQ(rates.rates()[0].forward, AutoRates::kFirst);
  EXPECT_FALSE(rates.is_due(batch_at(0))) << "a replay of the step does not repeat its audit";
  EXPECT_TRUE(rates.is_due(batch_at(1)));
  EXPECT_FALSE(rates.is_due(batch_at(3))) << "and not at every step";
}

TEST(AutoRates, TheirStateIsAllThatTheyDependOn) {
  AutoRates rates(two_cuts());
  audit(rates, 0, {3, 0.1});
  rates.count(step_of(500, kBatch));
  AutoRates restored(two_cuts());
  restored.set_state(rates.state());
  for (AutoRates* const both : {&rates, &restored}) {
    audit(*both, 5, {0.2, 7});
    both->count(step_of(700, kBatch));
  }
  for (std::size_t k = 0; k < 2; ++k) EXPECT_EQ(rates.rates()[k].forward, restored.rates()[k].forward);
  const auto one = rates.state();
  const auto other = restored.state();
  ASSERT_EQ(one.size(), other.size());
  for (const auto& [name, tensor] : one) EXPECT_TRUE(torch::equal(tensor, other.at(name))) << name;
  restored.set_state({});
  EXPECT_EQ(restored.rates()[0].forward, AutoRates::kFirst) << "as a run begins";
}

// With audits before nearly every step.
TrainConfig audited_run(const std::string& codec, const std::string& run_dir) {
  return testing::coordinated_run({0, 1, 0}, codec, run_dir);
}

std::vector<nlohmann::json> audits_in(const std::string& run_dir) { return metrics_in(run_dir, "audit"); }

TEST(AuditedRun, MeasuringChangesNothing) {
  const TempFolder folder;
  for (const std::string schedule : {"gpipe", "1f1b"}) {
    for (const std::string optimizer : {"sgd", "adam"}) {
      auto plain = audited_run("dct:1", folder.file("plain" + schedule + optimizer));
      plain.schedule = schedule;
      plain.optimizer = optimizer;
      plain.recompute = schedule == "1f1b";
      auto measured = plain;
      measured.run_dir = folder.file("measured" + schedule + optimizer);
      measured.audit = true;
      testing::run(plain);
      testing::run(measured);
      testing::expect_equal_weights(plain.run_dir, measured.run_dir);
      EXPECT_TRUE(audits_in(plain.run_dir).empty());
      const auto audits = audits_in(measured.run_dir);
      ASSERT_GE(audits.size(), 2U);
      for (const auto& cut : audits[0].at("cuts")) {
        EXPECT_GT(cut.at("harm").get<double>(), 0);
        EXPECT_EQ(cut.at("rate"), cut.at("next_rate")) << "it measures";
      }
    }
  }
}

// What the sum over cuts stands for: with all of them at high rates at once, the gradients change by about as much. A bit less: a coarse
// step takes away some of the errors that come before it.
TEST(AuditedRun, HarmsOfSeveralCutsAddUp) {
  const TempFolder folder;
  auto config = audited_run("auto", folder.file("run"));
  config.batch = 64;
  RunParts run = assemble(testing::registry(), config, {});
  run.coordinator->connect();
  AuditRequest apart = run.auto_rates->request(run.batches->training(0)->next());
  constexpr double kPresent = 2;
  const auto raised = [](double rate) { return rate > AutoRates::kFirst ? session::kMostRate : kPresent; };
  for (auto& pass : apart.passes) {
    for (auto& cut : pass) cut = {raised(cut.forward), raised(cut.backward)};
  }
  AuditRequest together = apart;
  together.passes = {apart.passes.front(), apart.passes.back()};
  const auto squares = [&](const AuditRequest& request) {
    double sum = 0;
    const AuditOutcome outcome = run.coordinator->audit(request);
    for (std::size_t c = 1; c < outcome.by_stage.size(); ++c) {
      for (const auto& sums : outcome.by_stage[c]) sum += sums.square;
    }
    return sum;
  };
  EXPECT_GT(squares(together), 0);
  const double ratio = squares(apart) / squares(together);
  EXPECT_GT(ratio, 0.9);
  EXPECT_LT(ratio, 1.6);
}

TEST(AuditedRun, CoarserCodingDoesMoreHarm) {
  const TempFolder folder;
  double before = 0;
  for (const std::string codec : {"auto:4", "auto:1", "auto:0.25"}) {
    auto config = audited_run(codec, folder.file(codec));
    config.audit = true;
    config.max_steps = 1;
    testing::run(config);
    const double harm = audits_in(config.run_dir).at(0).at("harm");
    EXPECT_GT(harm, 1.5 * before) << codec;
    before = harm;
  }
}

TEST(AuditedRun, GoesOnWithTheRatesOfItsLastAudit) {
  const TempFolder folder;
  const auto config = audited_run("auto", folder.file("run"));
  testing::run(config);
  const auto audits = audits_in(config.run_dir);
  ASSERT_GE(audits.size(), 3U);
  std::map<std::pair<int, std::string>, double> rates;
  std::size_t next = 0;
  for (const auto& step : metrics_in(config.run_dir, "step")) {
    if (next < audits.size() && audits[next].at("step") == step.at("step")) {
      for (const auto& cut : audits[next].at("cuts")) rates[{cut.at("cut"), cut.at("direction")}] = cut.at("next_rate");
      ++next;
    }
    for (const auto& cut : step.at("cuts")) {
      const double rate = rates.at({cut.at("cut"), cut.at("direction")});
      EXPECT_LE(cut.at("bits_per_value").get<double>(), 1.1 * rate + 0.2) << step.at("step") << cut;
    }
  }
  EXPECT_EQ(next, audits.size());
}

TEST(AuditedRun, ThatIsResumedEndsAsOneThatNeverStopped) {
  const TempFolder folder;
  const auto whole = audited_run("auto", folder.file("whole"));
  testing::run(whole);
  auto stopped = audited_run("auto", folder.file("stopped"));
  testing::run(stopped, 5);
  stopped.resume = true;
  testing::run(stopped);
  testing::expect_equal_weights(whole.run_dir, stopped.run_dir);
  EXPECT_EQ(audits_in(whole.run_dir), audits_in(stopped.run_dir));
}

TEST(AuditedRun, OfSeveralProcessesHasTheAuditsOfOne) {
  const TempFolder folder;
  for (const std::vector<int>& place : {std::vector<int>{0, 1, 0}, std::vector<int>{0, 1, 2}}) {
    const std::string name = place.back() == 0 ? "ring" : "chain";
    auto config = audited_run("auto", folder.file(name + "-one"));
    config.place = place;
    testing::run(config);
    auto several = config;
    several.run_dir = folder.file(name + "-several");
    Countdown never;
    Machines machines(testing::workers_of(place), several.run_dir + "-state", never);
    Watcher watcher;
    train(testing::registry(), several, watcher, watcher.stop, &machines);
    testing::expect_equal_weights(config.run_dir, several.run_dir);
    EXPECT_EQ(audits_in(config.run_dir), audits_in(several.run_dir));
    EXPECT_GE(audits_in(config.run_dir).size(), 2U);
  }
}

TEST(AuditedRun, SimulatedInOneWorkerTrainsInEveryPrecision) {
  const TempFolder folder;
  for (const std::string precision : {"fp32", "bf16"}) {
    auto config = audited_run("auto", folder.file(precision));
    config.place = {0, 0, 0};
    config.chunks = 1;
    config.precision = precision;
    config.loss_scaling = precision == "bf16" ? "on" : "off";
    testing::run(config);
    const auto audits = audits_in(config.run_dir);
    ASSERT_GE(audits.size(), 2U) << precision;
    EXPECT_EQ(audits[0].at("cuts").size(), 4U);
  }
}

TEST(AuditedRun, WithoutGradientsAtACutChoosesTheOthers) {
  const TempFolder folder;
  auto config = audited_run("auto", folder.file("frozen"));
  config.freeze = {"0-2"};
  config.cuts = {"1", "3"};
  testing::run(config);
  const auto audits = audits_in(config.run_dir);
  ASSERT_GE(audits.size(), 1U);
  EXPECT_EQ(audits[0].at("cuts").size(), 2U) << "forward of each: what is before cut 1 is not trained " << audits[0];
}

}  // namespace
}  // namespace epipe::train
