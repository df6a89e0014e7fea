#include "epipe/report/metrics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "report/samples.h"

namespace epipe::report {
namespace {

using testing::epoch_line;
using testing::step_line;

Metrics parsed_metrics(const std::string& text) {
  auto metrics = parse_metrics(text, "metrics.jsonl");
  if (!metrics) throw std::runtime_error(metrics.error().text());
  return std::move(metrics).value();
}

std::string error_of(const std::string& text) {
  const auto metrics = parse_metrics(text, "metrics.jsonl");
  return metrics.ok() ? "" : metrics.error().text();
}

TEST(Metrics, HaveAudits) {
  const std::string audit = R"({"kind":"audit","epoch":0,"step":12,"valid":true,"harm":0.05,"bound":0.1,)"
                            R"("loss_added":0.002,"loss_bound":0.01,"noise":null,"cuts":[)"
                            R"({"cut":1,"direction":"backward","codec":"auto","rate":1.5,"harm":0.05,"loss_added":0.001}]})"
                            "\n";
  const Metrics metrics = parsed_metrics(step_line(0, 11) + audit + step_line(0, 12) + audit);
  ASSERT_EQ(metrics.audits.size(), 1U) << "a resumed run writes it again";
  EXPECT_EQ(metrics.audits[0].step, 12);
  EXPECT_EQ(metrics.audits[0].harm, 0.05);
  EXPECT_EQ(metrics.audits[0].bound, 0.1);
  ASSERT_EQ(metrics.audits[0].cuts.size(), 1U);
  EXPECT_EQ(metrics.audits[0].cuts[0].direction, Direction::kBackward);
  EXPECT_EQ(metrics.audits[0].cuts[0].harm, 0.05);
  EXPECT_EQ(metrics.audits[0].loss_added, 0.002);
  EXPECT_EQ(metrics.audits[0].loss_bound, 0.01);
  EXPECT_EQ(metrics.audits[0].cuts[0].loss_added, 0.001);
  EXPECT_EQ(metrics.steps.size(), 2U);
  EXPECT_NE(error_of(R"({"kind":"audit","epoch":0,"step":"x","cuts":[]})"), "");
}

TEST(Metrics, HaveTheRatesThatWereChosenForALink) {
  const std::string measured = R"({"kind":"rates","epoch":0,"step":12,"up_MBps":12.5,"down_MBps":0.5,"cuts":[]})"
                               "\n";
  const std::string repeated = R"({"kind":"rates","epoch":0,"step":12,"cuts":[]})"
                               "\n";
  const Metrics metrics = parsed_metrics(measured + step_line(0, 12) + measured);
  ASSERT_EQ(metrics.rate_changes.size(), 1U) << "a resumed run writes it again";
  EXPECT_EQ(metrics.rate_changes[0].step, 12);
  EXPECT_EQ(metrics.rate_changes[0].up_MBps, 12.5);
  EXPECT_EQ(metrics.rate_changes[0].down_MBps, 0.5);
  EXPECT_TRUE(std::isnan(parsed_metrics(repeated).rate_changes.at(0).up_MBps));
  EXPECT_NE(error_of(R"({"kind":"rates","epoch":0,"step":"x"})"), "");
}

TEST(Metrics, AreReadFieldByField) {
  const Metrics metrics = parsed_metrics(step_line(0, 12) + epoch_line(0));
  ASSERT_EQ(metrics.steps.size(), 1U);
  const Step& step = metrics.steps[0];
  EXPECT_EQ(step.step, 12);
  EXPECT_DOUBLE_EQ(step.loss, 2.0 / 13);
  EXPECT_EQ(step.samples, 64);
  ASSERT_EQ(step.cuts.size(), 2U);
  EXPECT_EQ(step.cuts[0].codec, "sort:6+2");
  EXPECT_EQ(step.cuts[0].rel_error, 4.5e-05);
  EXPECT_EQ(step.cuts[1].direction, Direction::kBackward);
  EXPECT_EQ(step.cuts[1].wire_bytes, 500);
  ASSERT_EQ(step.workers.size(), 1U);
  EXPECT_EQ(step.workers[0].seconds[activity_of("backward")], 0.06);
  EXPECT_EQ(step.workers[0].peak_memory_bytes, 123456789);
  ASSERT_EQ(metrics.epochs.size(), 1U);
  EXPECT_EQ(metrics.epochs[0].val_accuracy, 0.45);
  EXPECT_TRUE(metrics.notes.empty());
}

TEST(Metrics, AnErrorThatWasNotMeasuredIsUnknown) { EXPECT_TRUE(std::isnan(parsed_metrics(step_line(0, 0)).steps[0].cuts[1].rel_error)); }

TEST(Metrics, FieldsThatAreMissingAreUnknown) {
  const Metrics metrics = parsed_metrics("{\"kind\":\"step\",\"step\":3,\"cuts\":null}\n{\"kind\":\"epoch\",\"epoch\":1}\n");
  EXPECT_TRUE(std::isnan(metrics.steps.at(0).loss));
  EXPECT_TRUE(metrics.steps[0].cuts.empty());
  EXPECT_TRUE(std::isnan(metrics.epochs.at(0).val_loss));
}

TEST(Metrics, ALastLineCutOffByAKillIsLeftOutAndSaid) {
  const std::string whole = step_line(0, 0) + step_line(0, 1);
  for (std::size_t cut = step_line(0, 0).size() + 1; cut + 1 < whole.size(); ++cut) {
    const Metrics metrics = parsed_metrics(whole.substr(0, cut));
    ASSERT_EQ(metrics.steps.size(), 1U) << cut;
    ASSERT_EQ(metrics.notes.size(), 1U) << cut;
    EXPECT_NE(metrics.notes[0].find("line 2"), std::string::npos) << metrics.notes[0];
  }
}

TEST(Metrics, ALastLineThatLacksOnlyItsEndIsRead) {
  const std::string line = step_line(0, 0);
  const Metrics metrics = parsed_metrics(line.substr(0, line.size() - 1));
  EXPECT_EQ(metrics.steps.size(), 1U);
  EXPECT_TRUE(metrics.notes.empty());
}

TEST(Metrics, ADamagedLineIsAnErrorThatNamesFileAndLine) {
  const std::string good = step_line(0, 0);
  EXPECT_NE(error_of(good + "{\"kind\":\"st\n" + good).find("metrics.jsonl, line 2"), std::string::npos);
  EXPECT_NE(error_of(good + good + "[1,2]\n").find("line 3: expected an object, got array"), std::string::npos);
  EXPECT_NE(error_of("{\"kind\":7}\n").find("\"kind\" to be text"), std::string::npos);
  EXPECT_NE(error_of("{\"kind\":\"step\",\"loss\":\"low\"}\n").find("\"loss\" to be a number, got string"), std::string::npos);
  EXPECT_NE(error_of("{\"kind\":\"step\",\"step\":-1}\n").find("\"step\" to be a whole number"), std::string::npos);
  EXPECT_NE(error_of("{\"kind\":\"step\",\"step\":1.5}\n").find("\"step\" to be a whole number"), std::string::npos);
  EXPECT_NE(error_of("{\"kind\":\"step\",\"step\":1e300}\n").find("\"step\" to be a whole number"), std::string::npos);
  EXPECT_NE(error_of("{\"kind\":\"step\",\"cuts\":{}}\n").find("\"cuts\" to be a list"), std::string::npos);
  EXPECT_NE(error_of("{\"kind\":\"step\",\"cuts\":[7]}\n").find("expected an object"), std::string::npos);
  EXPECT_NE(error_of("{\"kind\":\"step\",\"cuts\":[{\"cut\":0,\"direction\":\"up\"}]}\n").find("forward or backward"), std::string::npos);
  EXPECT_NE(error_of("{\"kind\":\"step\",\"workers\":[{\"worker\":1e9}]}\n").find("\"worker\" below"), std::string::npos);
  EXPECT_NE(error_of("{\"kind\":\"step\",\"loss\":1e999}\n").find("line 1"), std::string::npos);
}

TEST(Metrics, LinesOfOtherKindsAndEmptyOnesAreSkipped) {
  const Metrics metrics = parsed_metrics("{\"kind\":\"start\",\"loss\":\"none yet\"}\n\n \r\n" + step_line(0, 0));
  EXPECT_EQ(metrics.steps.size(), 1U);
}

TEST(Metrics, StepsThatAResumedRunRepeatedCountOnce) {
  const Metrics metrics = parsed_metrics(step_line(0, 0) + step_line(0, 1, "none") + epoch_line(0, 0.1) + step_line(1, 2, "none") +
                                         step_line(0, 1) + epoch_line(0, 0.2) + step_line(1, 2));
  ASSERT_EQ(metrics.steps.size(), 3U);
  for (int k = 0; k < 3; ++k) {
    EXPECT_EQ(metrics.steps[static_cast<std::size_t>(k)].step, k);
    EXPECT_EQ(metrics.steps[static_cast<std::size_t>(k)].cuts[0].codec, "sort:6+2");
  }
  ASSERT_EQ(metrics.epochs.size(), 1U);
  EXPECT_EQ(metrics.epochs[0].val_accuracy, 0.2);
}

TEST(Metrics, ALossThatIsNoNumberIsSaid) {
  const Metrics metrics =
      parsed_metrics(step_line(0, 0) + "{\"kind\":\"step\",\"step\":1,\"loss\":null}\n{\"kind\":\"step\",\"step\":2,\"loss\":null}\n");
  ASSERT_EQ(metrics.notes.size(), 1U);
  EXPECT_EQ(metrics.notes[0], "The loss of 2 of 3 steps is not a number, first at step 1.");
}

}  // namespace
}  // namespace epipe::report
