#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "epipe/base/clock.h"
#include "epipe/base/file.h"
#include "epipe/report/live_report.h"
#include "report/samples.h"
#include "support/temp_folder.h"

namespace epipe::report {
namespace {

using nlohmann::json;
using testing::epoch_line;
using testing::step_line;
using testing::TempFolder;
using testing::write_text;

void append_text(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary | std::ios::app) << text; }

// As a run that is resumed does: another file of that name.
void replace_file(const std::string& path, const std::string& text) { ASSERT_TRUE(write_file(path, {std::as_bytes(std::span(text))})); }

LiveReport live_report(const std::vector<std::string>& folders) {
  std::vector<FollowedRun> runs;
  for (const std::string& folder : folders) {
    auto run = FollowedRun::open(folder);
    if (!run) throw std::runtime_error(run.error().message);
    runs.push_back(std::move(run).value());
  }
  return LiveReport(std::move(runs));
}

// The parts that events tell of, by id.
std::map<std::string, std::string> parts_of(const std::string& events) {
  std::map<std::string, std::string> parts;
  std::istringstream lines(events);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line == "event: part") continue;
    EXPECT_TRUE(line.starts_with("data: ")) << line.substr(0, 80);
    const json part = json::parse(line.substr(6));
    parts[part["id"]] = part["html"];
  }
  return parts;
}

// The page without what only a live one has.
std::string body_of(const std::string& page) {
  const auto from = page.find("<main>");
  return page.substr(from, page.find("</main>") - from);
}

TEST(LiveReport, TellsOfThePartsThatChange) {
  const TempFolder folder;
  const std::string metrics = folder.file("metrics.jsonl");
  write_text(metrics, step_line(0, 0) + step_line(0, 1));
  write_text(folder.file("config.toml"), "model = \"cnn\"\n");
  LiveReport live = live_report({folder.path()});
  std::uint64_t seen = 0;
  EXPECT_GT(parts_of(live.events(seen)).size(), 10U) << "everything at first";
  EXPECT_EQ(live.events(seen), "");
  EXPECT_FALSE(live.refresh());
  append_text(metrics, step_line(0, 2));
  EXPECT_TRUE(live.refresh());
  const auto changed = parts_of(live.events(seen));
  EXPECT_TRUE(changed.contains("chart-train-loss"));
  EXPECT_TRUE(changed.contains("overview"));
  EXPECT_FALSE(changed.contains("chart-val-loss")) << "no epoch has ended";
  EXPECT_FALSE(changed.contains("notes"));
  append_text(metrics, epoch_line(0));
  live.refresh();
  EXPECT_TRUE(parts_of(live.events(seen)).contains("chart-val-loss"));
}

TEST(LiveReport, OfAFinishedRunLooksAsItsReport) {
  const TempFolder folder;
  std::string text;
  for (int step = 0; step < 100; ++step) text += step_line(0, step);
  write_text(folder.file("metrics.jsonl"), text + epoch_line(0));
  write_text(folder.file("trace.json"), "{\"traceEvents\":[" + testing::thread_event(0, "worker 0") + "," +
                                            testing::span_event("F 0 0", "forward", 0, 10, 0, 1) + "]}");
  write_text(folder.file("config.toml"), "model = \"cnn\"\n");
  const LiveReport live = live_report({folder.path()});
  const auto run = read_run(folder.path());
  ASSERT_TRUE(run);
  EXPECT_EQ(body_of(live.page()), body_of(page({run.value()})));
  const LiveReport two = live_report({folder.path(), folder.path()});
  EXPECT_EQ(body_of(two.page()), body_of(page({run.value(), run.value()})));
}

// Line by line, in pieces that end anywhere, or all at once: the same page.
TEST(LiveReport, ReadsLinesWhenTheyAreWhole) {
  const TempFolder folder;
  const std::string metrics = folder.file("metrics.jsonl");
  std::string text;
  for (int step = 0; step < 20; ++step) text += step_line(0, step);
  write_text(metrics, "");
  LiveReport live = live_report({folder.path()});
  for (std::size_t at = 0; at < text.size(); at += 997) {
    append_text(metrics, text.substr(at, 997));
    live.refresh();
  }
  EXPECT_EQ(body_of(live.page()), body_of(live_report({folder.path()}).page()));
  EXPECT_NE(live.page().find("<dt>steps</dt><dd>20</dd>"), std::string::npos);
}

TEST(LiveReport, BeginsAnewWhenARunIsResumed) {
  const TempFolder folder;
  const std::string metrics = folder.file("metrics.jsonl");
  std::string text;
  for (int step = 0; step < 10; ++step) text += step_line(0, step);
  write_text(metrics, text);
  LiveReport live = live_report({folder.path()});
  replace_file(metrics, step_line(0, 0));
  EXPECT_TRUE(live.refresh());
  EXPECT_NE(live.page().find("<dt>steps</dt><dd>1</dd>"), std::string::npos);
  append_text(metrics, step_line(0, 1));
  EXPECT_TRUE(live.refresh());
  EXPECT_NE(live.page().find("<dt>steps</dt><dd>2</dd>"), std::string::npos);
}

TEST(LiveReport, SaysWhatIsWrongAndGoesOnWhenItIsRight) {
  const TempFolder folder;
  const std::string metrics = folder.file("metrics.jsonl");
  write_text(metrics, step_line(0, 0));
  LiveReport live = live_report({folder.path()});
  append_text(metrics, "<script>alert(1)</script>\n" + step_line(0, 1));
  EXPECT_TRUE(live.refresh());
  EXPECT_NE(live.page().find("metrics.jsonl, line 2: expected one JSON object"), std::string::npos);
  EXPECT_EQ(live.page().find("<script>alert"), std::string::npos);
  append_text(metrics, step_line(0, 2));
  EXPECT_FALSE(live.refresh()) << "nothing behind it is read";
  replace_file(metrics, step_line(0, 0));
  EXPECT_TRUE(live.refresh());
  EXPECT_EQ(live.page().find("line 2"), std::string::npos);
}

TEST(LiveReport, WaitsForARunThatHasJustBegunAndRefusesWhatIsNone) {
  const TempFolder folder;
  EXPECT_FALSE(FollowedRun::open(folder.path()));
  EXPECT_FALSE(FollowedRun::open(folder.file("missing")));
  write_text(folder.file("config.toml"), "model = \"cnn\"\n");
  LiveReport live = live_report({folder.path()});
  EXPECT_NE(live.page().find("no data"), std::string::npos);
  write_text(folder.file("metrics.jsonl"), step_line(0, 0));
  EXPECT_TRUE(live.refresh());
  write_text(folder.file("metrics.jsonl"), "no JSON\n");
  EXPECT_FALSE(FollowedRun::open(folder.path())) << "at the start it is an error";
}

TEST(LiveReport, EscapesWhatFilesSay) {
  const TempFolder folder;
  const std::string attack = "</script><img src=x onerror=alert(1)>";
  write_text(folder.file("metrics.jsonl"), step_line(0, 0, attack));
  write_text(folder.file("config.toml"), attack);
  const LiveReport live = live_report({folder.path()});
  std::uint64_t seen = 0;
  for (const auto& [id, html] : parts_of(live.events(seen))) EXPECT_EQ(html.find("<img"), std::string::npos) << id;
  EXPECT_EQ(live.page().find("<img"), std::string::npos);
}

TEST(LiveReport, OfALongRunIsRefreshedWithinASecondAndItsPartsStaySmall) {
  const TempFolder folder;
  const std::string metrics = folder.file("metrics.jsonl");
  std::string text;
  for (int step = 0; step < 10'000; ++step) text += step_line(step / 1000, step);
  write_text(metrics, text);
  LiveReport live = live_report({folder.path()});
  std::uint64_t seen = 0;
  (void)live.events(seen);
  append_text(metrics, step_line(9, 10'000));
  const Stopwatch watch;
  EXPECT_TRUE(live.refresh());
  EXPECT_LT(watch.seconds(), 1) << "read once, drawn in time";
  EXPECT_LT(live.events(seen).size(), 500'000U);
}

}  // namespace
}  // namespace epipe::report
