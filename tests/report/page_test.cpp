#include "epipe/report/page.h"

#include <gtest/gtest.h>

#include "report/samples.h"
#include "report/xml.h"

namespace epipe::report {
namespace {

RunData sample_run(const std::string& name, int steps = 200) {
  RunData run;
  run.name = name;
  run.folder = "runs/" + name;
  run.config = "model = \"cnn\"\n";
  for (int s = 0; s < steps; ++s) {
    Step step;
    step.step = s;
    step.epoch = s / 50;
    step.loss = 2.0 / (1 + s) + (s % 7) * 0.01;
    step.accuracy = 0.5 + (s % 5) * 0.05;
    step.samples = 64;
    step.seconds = 0.1;
    for (int cut = 0; cut < 2; ++cut) {
      step.cuts.push_back({cut, Direction::kForward, "sort:6+2", 1e5, 1e5, 8, s % 3 == 0 ? 0 : 1e-4 + s * 1e-6});
      step.cuts.push_back({cut, Direction::kBackward, "sort:6+2", 1e5, 1e5, 8, kUnknown});
    }
    for (int worker = 0; worker < 2; ++worker) {
      WorkerStep time;
      time.worker = worker;
      for (std::size_t a = 0; a < kOther; ++a) time.seconds[a] = 0.001 * static_cast<double>(a + 1);
      step.workers.push_back(time);
    }
    run.steps.push_back(std::move(step));
  }
  for (int e = 0; e < steps / 50; ++e) run.epochs.push_back({e, 1.0 / (1 + e), 0.6, 1.1 / (1 + e), 0.55, 5, 640});
  run.trace.tracks = {{0, 0, "worker 0"}, {0, 100, "encoder"}};
  for (int k = 0; k < 40; ++k)
    run.trace.spans.push_back({"F 0 1", static_cast<std::size_t>(k) % kOther, 100.0 * k, 90, static_cast<std::size_t>(k % 2), k / 4});
  return run;
}

const std::vector<std::string> kCharts = {"chart-train-loss", "chart-val-loss", "chart-train-accuracy", "chart-val-accuracy", "chart-bytes",
                                          "chart-time",       "chart-error",    "chart-bits",           "chart-timeline-0"};

// From the figure's start tag to its end tag; empty when there is none.
std::string figure_of(const std::string& html, const std::string& id) {
  const std::size_t start = html.find("<figure id=\"" + id + "\"");
  return start == std::string::npos ? "" : html.substr(start, html.find("</figure>", start) - start);
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

void expect_well_formed_pictures(const std::string& html) {
  std::size_t pictures = 0;
  for (std::size_t at = html.find("<svg"); at != std::string::npos; at = html.find("<svg", at + 1), ++pictures) {
    const std::size_t end = html.find("</svg>", at) + 6;
    EXPECT_EQ(testing::xml_problem(std::string_view(html).substr(at, end - at)), "");
  }
  EXPECT_EQ(pictures, count(html, "</svg>"));
  EXPECT_EQ(html.find("nan"), std::string::npos) << "a position that is no number";
  EXPECT_EQ(html.find("\"inf"), std::string::npos);
}

TEST(Page, DrawsEveryChartOfARun) {
  const std::string html = page({sample_run("first")});
  for (const std::string& id : kCharts) {
    const std::string figure = figure_of(html, id);
    EXPECT_GT(count(figure, "<path") + count(figure, "<rect"), 0U) << id;
    EXPECT_EQ(count(figure, "<h2>"), 1U) << id;
    EXPECT_GT(count(figure, "class=\"key\""), 0U) << id;
    EXPECT_GT(count(figure, "class=\"label mid\""), 0U) << id;
  }
  expect_well_formed_pictures(html);
}

TEST(Page, DrawsTheHarmOfRunsThatHaveAudits) {
  auto audited = sample_run("audited");
  for (int a = 0; a < 5; ++a) {
    audited.audits.push_back(
        {0, 40 * a, 0.2 / (1 + a), 0.1, 0.02 / (1 + a), 0.01, {{0, Direction::kForward, 0.15, 0.01}, {0, Direction::kBackward, 0.05}}});
  }
  for (const auto& runs : {std::vector<RunData>{audited}, std::vector<RunData>{audited, sample_run("other")}}) {
    const std::string html = page(runs);
    EXPECT_GE(count(figure_of(html, "chart-harm"), "<path"), 4U);
    EXPECT_GE(count(figure_of(html, "chart-loss-added"), "<path"), 3U);
    expect_well_formed_pictures(html);
  }
  EXPECT_EQ(figure_of(page({sample_run("other")}), "chart-harm"), "");
}

TEST(Page, DrawsTheLinkThatRatesFollowed) {
  auto followed = sample_run("followed");
  followed.rate_changes = {{0, 0, 12.5, 12.5}, {0, 40, 0.6, 0.5}, {0, 90, 12, 12.5}};
  auto repeated = sample_run("repeated");
  repeated.rate_changes = {{0, 0}, {0, 40}};
  for (const auto& runs : {std::vector<RunData>{followed}, std::vector<RunData>{followed, repeated}}) {
    const std::string html = page(runs);
    EXPECT_EQ(count(figure_of(html, "chart-link"), "<path"), 2U) << "up and down";
    expect_well_formed_pictures(html);
  }
  EXPECT_EQ(figure_of(page({repeated}), "chart-link"), "") << "nothing was measured";
}

TEST(Page, NeedsNothingFromOutside) {
  const std::string html = page({sample_run("first"), sample_run("second")});
  for (const char* outside : {"src=", "href=", "@import", "url(", "https://"}) EXPECT_EQ(html.find(outside), std::string::npos) << outside;
}

TEST(Page, PutsSeveralRunsSideBySide) {
  auto half = sample_run("second");
  for (Step& step : half.steps) {
    for (CutStep& cut : step.cuts) cut.wire_bytes /= 2;
  }
  const std::string html = page({sample_run("first"), half, sample_run("third", 0)});
  for (const std::string& id : kCharts) EXPECT_GT(count(figure_of(html, id), "<path") + count(figure_of(html, id), "<rect"), 0U) << id;
  EXPECT_GT(count(figure_of(html, "chart-train-loss"), "run-1"), 0U);
  EXPECT_EQ(count(html, "<th scope=\"row\">"), 3U);
  EXPECT_NE(html.find("<td>0.5 ×</td>"), std::string::npos);
  expect_well_formed_pictures(html);
}

TEST(Page, SaysNoDataForAnEmptyRun) {
  const std::string html = page({RunData{}});
  for (const std::string& id : kCharts) EXPECT_NE(figure_of(html, id).find("no data"), std::string::npos) << id;
  EXPECT_EQ(count(html, "<svg"), 0U);
}

TEST(Page, DrawsRunsOfOneStepOfZerosOnlyAndOfFewFields) {
  auto zeros = sample_run("zeros", 50);
  for (Step& step : zeros.steps) {
    step.loss = step.accuracy = step.seconds = 0;
    for (CutStep& cut : step.cuts) cut.wire_bytes = cut.bits_per_value = cut.rel_error = 0;
  }
  auto bare = sample_run("bare", 50);
  for (Step& step : bare.steps) {
    for (CutStep& cut : step.cuts) cut.values = cut.bits_per_value = kUnknown;
  }
  for (const RunData& run : {sample_run("one", 1), zeros, bare}) {
    const std::string html = page({run});
    expect_well_formed_pictures(html);
    EXPECT_GT(count(figure_of(html, "chart-error"), "<path"), 0U);
  }
}

TEST(Page, EscapesEveryTextThatComesFromFiles) {
  const std::string attack = "</title></script><script>alert(\"x\")</script><img onerror='y' x=\xff";
  auto run = sample_run(attack);
  run.folder = run.config = attack;
  run.notes = {attack};
  for (Step& step : run.steps) {
    for (CutStep& cut : step.cuts) cut.codec = attack;
  }
  for (Track& track : run.trace.tracks) track.name = attack;
  for (Span& span : run.trace.spans) span.name = attack;
  for (const std::string& html : {page({run}), page({run, run, sample_run("plain")})}) {
    EXPECT_EQ(count(html, "<script>"), 1U);
    EXPECT_EQ(count(html, "</script>"), 1U);
    EXPECT_EQ(count(html, "<img"), 0U);
    EXPECT_EQ(count(html, "alert(\"x\")"), 0U);
    EXPECT_EQ(count(html, "\xff"), 0U);
    EXPECT_GT(count(html, "alert(&quot;x&quot;)"), 0U);
    expect_well_formed_pictures(html);
  }
}

TEST(Page, TellsRunsOfTheSameNameApart) {
  auto other = sample_run("cnn");
  other.folder = "elsewhere/cnn";
  const std::string html = page({sample_run("cnn"), other, other});
  EXPECT_NE(html.find("</i>runs/cnn</th>"), std::string::npos);
  EXPECT_NE(html.find("</i>elsewhere/cnn (2)</th>"), std::string::npos);
  EXPECT_NE(html.find("</i>elsewhere/cnn (3)</th>"), std::string::npos);
}

TEST(Page, StaysSmallForLongRuns) {
  auto run = sample_run("long", 100000);
  while (run.trace.spans.size() < 50000) {
    Span span = run.trace.spans.back();
    span.start_us += 100;
    run.trace.spans.push_back(span);
  }
  EXPECT_LT(page({run}).size(), 2'000'000U);
  EXPECT_LT(page(std::vector<RunData>(6, run)).size(), 2'000'000U);
}

}  // namespace
}  // namespace epipe::report
