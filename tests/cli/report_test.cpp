// epipe report, as a user calls it.
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "report/samples.h"
#include "support/program.h"
#include "support/temp_folder.h"

namespace epipe::cli {
namespace {

using testing::Outcome;
using testing::run_program;
using testing::TempFolder;

std::string page_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

void make_run(const std::string& path) {
  ASSERT_EQ(::mkdir(path.c_str(), 0777), 0);
  testing::write_text(path + "/metrics.jsonl", testing::step_line(0, 0) + testing::epoch_line(0));
}

TEST(ReportCommand, WritesThePageIntoTheRunAndSaysSo) {
  const TempFolder folder;
  make_run(folder.file("a"));
  const Outcome outcome = run_program("report a", folder.path());
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(outcome.output, "wrote a/report.html\n");
  EXPECT_NE(page_text(folder.file("a/report.html")).find("chart-train-loss"), std::string::npos);
}

TEST(ReportCommand, WritesSeveralRunsIntoAFileOfTheirOwnOrWhereTold) {
  const TempFolder folder;
  make_run(folder.file("a"));
  make_run(folder.file("b"));
  EXPECT_EQ(run_program("report b a", folder.path()).output, "wrote comparison.html\n");
  EXPECT_NE(page_text(folder.file("comparison.html")).find("2 runs"), std::string::npos);
  EXPECT_EQ(page_text(folder.file("b/report.html")), "") << "a run's own page is its own";
  EXPECT_EQ(run_program("report a b -o both.html", folder.path()).output, "wrote both.html\n");
  EXPECT_NE(page_text(folder.file("both.html")).find("2 runs"), std::string::npos);
}

TEST(ReportCommand, FailsWithTheReasonWhereThereIsNoRun) {
  const TempFolder folder;
  make_run(folder.file("a"));
  const Outcome missing = run_program("report a nowhere", folder.path());
  EXPECT_EQ(missing.code, 1);
  EXPECT_NE(missing.output.find("nowhere does not exist"), std::string::npos) << missing.output;
  EXPECT_EQ(page_text(folder.file("a/report.html")), "");
  const Outcome unwritable = run_program("report a -o nowhere/page.html", folder.path());
  EXPECT_EQ(unwritable.code, 1);
  EXPECT_NE(unwritable.output.find("cannot create nowhere/page.html"), std::string::npos) << unwritable.output;
}

TEST(ReportCommand, NeedsARun) { EXPECT_EQ(run_program("report").code, 2); }

}  // namespace
}  // namespace epipe::cli
