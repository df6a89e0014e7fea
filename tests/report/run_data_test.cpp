#include "epipe/report/run_data.h"

#include <gtest/gtest.h>

#include <cmath>

#include "epipe/report/summary.h"
#include "epipe/report/timeline.h"
#include "epipe/report/trace.h"
#include "report/samples.h"
#include "support/temp_folder.h"

namespace epipe::report {
namespace {

using testing::epoch_line;
using testing::span_event;
using testing::step_line;
using testing::TempFolder;
using testing::thread_event;
using testing::write_text;

ReadTrace parsed_trace(const std::string& text) {
  auto trace = parse_trace(text, "trace.json");
  if (!trace) throw std::runtime_error(trace.error().text());
  return std::move(trace).value();
}

std::string trace_of(const std::string& events) { return "{\"traceEvents\":[" + events + "]}"; }

TEST(Trace, KeepsSpansInOrderAndTheirTracksNames) {
  const Trace trace = parsed_trace(trace_of(span_event("late", "wait", 50, 5, 1, 0) + "," + span_event("F 0 1", "forward", 12.5, 80, 0, 3) +
                                            "," + thread_event(0, "worker 0")))
                          .trace;
  ASSERT_EQ(trace.tracks.size(), 2U);
  EXPECT_EQ(trace.tracks[0].name, "worker 0");
  EXPECT_EQ(trace.tracks[1].name, "thread 1");
  ASSERT_EQ(trace.spans.size(), 2U);
  EXPECT_EQ(trace.spans[0].name, "F 0 1");
  EXPECT_EQ(trace.spans[0].activity, activity_of("forward"));
  EXPECT_EQ(trace.spans[0].step, 3);
  EXPECT_EQ(trace.spans[1].track, 1U);
}

TEST(Trace, MayBeABareListAndHoldWhatThePageDoesNotKnow) {
  const ReadTrace read = parsed_trace("[{\"ph\":\"C\",\"name\":\"memory\"}," + span_event("x", "magic", 1, 2, 0, 0) + "]");
  EXPECT_TRUE(read.complete);
  ASSERT_EQ(read.trace.spans.size(), 1U);
  EXPECT_EQ(read.trace.spans[0].activity, kOther);
}

TEST(Trace, CutOffByAKillIsReadAsFarAsItGoes) {
  const std::string first = "{\"traceEvents\":[" + span_event("a", "forward", 1, 2, 0, 0);
  const std::string whole = first + "," + span_event("b", "forward", 3, 2, 0, 0);
  for (std::size_t cut = first.size(); cut < whole.size(); ++cut) {
    const ReadTrace read = parsed_trace(whole.substr(0, cut));
    EXPECT_FALSE(read.complete) << cut;
    EXPECT_EQ(read.trace.spans.size(), 1U) << cut;
  }
}

TEST(Trace, DamageIsAnError) {
  for (const char* bad :
       {"{\"traceEvents\":[}]} and more", "7", "{\"traceEvents\":[{\"ph\":\"X\",\"ts\":\"soon\"}]}", "{\"traceEvents\":[{\"ph\":1}]}"}) {
    const auto trace = parse_trace(bad, "trace.json");
    ASSERT_FALSE(trace.ok()) << bad;
    EXPECT_NE(trace.error().message.find("trace.json"), std::string::npos);
  }
}

TEST(Timeline, ShowsThreeStepsFromTheMiddle) {
  Trace trace;
  trace.tracks = {{0, 0, "worker 0"}};
  for (int step = 0; step < 9; ++step) trace.spans.push_back({"F", 0, 1.7e15 + 10.0 * step, 8, 0, step});
  const Window window = choose_window(trace, 100);
  EXPECT_EQ(window.start, 1.7e15 + 30);
  EXPECT_EQ(window.length(), 28);
  EXPECT_EQ(choose_window(trace, 2).length(), 18);
}

TEST(Timeline, IsShortenedWhereOneStepHoldsTooMuch) {
  Trace trace;
  trace.tracks = {{0, 0, "worker 0"}};
  for (int k = 0; k < 1000; ++k) trace.spans.push_back({"F", 0, 1.0 * k, 1, 0, 0});
  EXPECT_EQ(choose_window(trace, 100).length(), 100);
  EXPECT_EQ(choose_window({}, 100).length(), 0);
}

TEST(RunData, NeedsAFolderWithMetrics) {
  const TempFolder folder;
  for (const std::string& path : {folder.file("nothing"), folder.path()}) {
    const auto run = read_run(path);
    ASSERT_FALSE(run.ok());
    EXPECT_NE(run.error().message.find(path), std::string::npos);
    EXPECT_NE(run.error().message.find("expected the run directory"), std::string::npos);
  }
  write_text(folder.file("file"), "");
  EXPECT_NE(read_run(folder.file("file")).error().message.find("is not a folder"), std::string::npos);
}

TEST(RunData, NeedsNothingButMetrics) {
  const TempFolder folder;
  write_text(folder.file("metrics.jsonl"), "");
  const auto run = read_run(folder.path() + "/.");
  ASSERT_TRUE(run.ok()) << run.error().text();
  EXPECT_EQ(run.value().name, folder.path().substr(folder.path().rfind('/') + 1));
  EXPECT_TRUE(run.value().steps.empty());
}

TEST(RunData, HoldsAllThreeFiles) {
  const TempFolder folder;
  write_text(folder.file("metrics.jsonl"), step_line(0, 0) + epoch_line(0));
  write_text(folder.file("trace.json"), trace_of(span_event("a", "forward", 1, 2, 0, 0)));
  write_text(folder.file("config.toml"), "model = \"cnn\"\n");
  const auto run = read_run(folder.path());
  ASSERT_TRUE(run.ok()) << run.error().text();
  EXPECT_EQ(run.value().steps.size(), 1U);
  EXPECT_EQ(run.value().epochs.size(), 1U);
  EXPECT_EQ(run.value().trace.spans.size(), 1U);
  EXPECT_EQ(run.value().config, "model = \"cnn\"\n");
}

RunData run_of(const std::string& lines) {
  const TempFolder folder;
  write_text(folder.file("metrics.jsonl"), lines);
  auto run = read_run(folder.path());
  if (!run) throw std::runtime_error(run.error().text());
  return std::move(run).value();
}

TEST(Summary, PutsARunInOneRow) {
  const Summary summary =
      summarize(run_of(step_line(0, 0) + step_line(0, 1) + epoch_line(0, 0.6) + step_line(1, 2) + epoch_line(1, 0.5) + step_line(2, 3)));
  EXPECT_EQ(summary.codec, "sort:6+2");
  EXPECT_EQ(summary.top_accuracy, 0.6);
  EXPECT_EQ(summary.final_loss, 1.9);
  EXPECT_EQ(summary.final_val_loss, 1.7);
  EXPECT_EQ(summary.bytes_per_step, 1500);
  EXPECT_EQ(summary.samples_per_s, 512);
  EXPECT_EQ(summary.seconds, 24.125);
}

TEST(Summary, OfARunWithoutAFinishedEpochGoesByItsSteps) {
  const Summary summary = summarize(run_of(step_line(0, 0) + step_line(0, 1)));
  EXPECT_TRUE(std::isnan(summary.top_accuracy));
  EXPECT_EQ(summary.final_loss, 1.0);
  EXPECT_EQ(summary.seconds, 0.25);
}

TEST(Summary, OfAnEmptyRunKnowsNothing) {
  const Summary summary = summarize({});
  EXPECT_EQ(summary.codec, "-");
  EXPECT_TRUE(std::isnan(summary.final_loss));
  EXPECT_TRUE(std::isnan(summary.bytes_per_step));
  EXPECT_TRUE(std::isnan(summary.samples_per_s));
  EXPECT_TRUE(std::isnan(summary.seconds));
}

TEST(Summary, NamesTheCodecOfEachDirectionWhereTheyDiffer) {
  RunData run;
  run.steps.resize(1);
  run.steps[0].cuts = {{0, Direction::kForward, "fp16", 1, 1, 8, 0}, {0, Direction::kBackward, "uniform:8", 1, 1, 8, 0}};
  EXPECT_EQ(summarize(run).codec, "forward fp16, backward uniform:8");
}

TEST(Summary, CountsBitsOverAllValuesOfACut) {
  RunData run;
  run.steps.resize(2);
  run.steps[0].cuts = {{0, Direction::kForward, "ec:2", 10, 10, 8, kUnknown}};
  run.steps[1].cuts = {{0, Direction::kForward, "ec:2", 10, 30, 2.67, kUnknown}};
  const auto cuts = summarize_cuts(run);
  EXPECT_EQ(cuts.at({0, Direction::kForward}).bits_per_value, 4);
}

}  // namespace
}  // namespace epipe::report
