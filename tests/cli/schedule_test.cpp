// epipe schedule, as a user calls it.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "support/program.h"
#include "support/temp_folder.h"

namespace epipe::cli {
namespace {

using testing::Outcome;

Outcome run_schedule(const std::string& flags) { return testing::run_program("schedule " + flags); }

TEST(ScheduleCommand, PrintsTheGridAndWhatItCosts) {
  const Outcome grid = run_schedule("--schedule 1f1b --place 0,1 --chunks 2");
  EXPECT_EQ(grid.code, 0) << grid.output;
  EXPECT_EQ(grid.output,
            "slot      0    1    2    3    4    5\n"
            "worker 0  F0.0 F1.0 .    B0.0 .    B1.0\n"
            "worker 1  .    F0.1 B0.1 F1.1 B1.1 .\n"
            "makespan 6 slots, bubble 33.3 %, peak live activations 2,1 by stage, 2,1 by worker\n");
}

TEST(ScheduleCommand, PrintsNothingButCsvForTools) {
  const Outcome csv = run_schedule("--schedule gpipe --place 0 --chunks 1 --csv");
  EXPECT_EQ(csv.code, 0);
  EXPECT_EQ(csv.output, "worker,slot,kind,micro_batch,stage\n0,0,F,0,0\n0,1,B,0,0\n");
}

TEST(ScheduleCommand, PricesTheScheduleWithTheGivenCosts) {
  const Outcome priced = run_schedule("--schedule gpipe --place 0,1,2 --chunks 8 --costs-forward 1 --costs-backward 2,2,2");
  EXPECT_EQ(priced.code, 0);
  EXPECT_NE(priced.output.find("with these costs: makespan 30, bubble 20.0 %"), std::string::npos) << priced.output;
  EXPECT_NE(priced.output.find("speed-up over one worker 2.40, at most 2.40"), std::string::npos) << priced.output;
}

TEST(ScheduleCommand, PricesASplitBackwardByItsParts) {
  const Outcome priced =
      run_schedule("--schedule zb-h1 --place 0,1,2 --chunks 8 --costs-backward 2 --costs-backward-input 1 --costs-backward-weights 1.5");
  EXPECT_EQ(priced.code, 0);
  EXPECT_NE(priced.output.find("makespan 26 slots, bubble 7.7 %"), std::string::npos) << priced.output;
  EXPECT_NE(priced.output.find("with these costs: makespan 30"), std::string::npos) << priced.output;
}

std::string costs_file(const testing::TempFolder& folder, const std::string& text) {
  std::ofstream(folder.file("costs.json")) << text;
  return " --place 0,1 --chunks 2 --costs " + folder.file("costs.json");
}

TEST(ScheduleCommand, PricesAStepWithLinksCodecsAndSharedCoresFromAFile) {
  const testing::TempFolder folder;
  const std::string text = R"({"forward": [1, 1], "backward": [1, 1], "bytes_forward": [30], "bytes_backward": [0], "bytes_per_second": 10,
                               "encode_forward": [0.5], "latency": 0.25, "machine_of": [0, 0], "cores": [2]})";
  const Outcome priced = run_schedule(costs_file(folder, text));
  EXPECT_EQ(priced.code, 0) << priced.output;
  // F 0 0 | encode | 3 s on the link, twice | latency | F 1 1 | B 0 1 | B 1 1 | latency | B 1 0
  EXPECT_EQ(priced.output.substr(0, 14), "makespan 12 s,") << priced.output;
  EXPECT_NE(run_schedule(costs_file(folder, text) + " --json").output.find(R"("makespan":12.0)"), std::string::npos);
}

TEST(ScheduleCommand, ReadsThePartsOfASplitBackwardFromTheFile) {
  const testing::TempFolder folder;
  const std::string text = R"({"forward": [1, 1], "backward": [2, 2], "backward_input": [1, 1], "backward_weights": [1, 5],
                               "bytes_forward": [0], "bytes_backward": [0], "bytes_per_second": 1})";
  // F 0 0 | F 0 1 | Bi 0 1 | F 1 1 | Bi 1 1 | Bw 0 1 | Bw 1 1
  EXPECT_EQ(run_schedule("--schedule zb-h1" + costs_file(folder, text)).output.substr(0, 14), "makespan 15 s,");
}

TEST(ScheduleCommand, RefusesACostsFileThatDoesNotFit) {
  const testing::TempFolder folder;
  const std::string start = R"({"forward": [1, 1], "backward": [1, 1], "bytes_forward": [30], )";
  for (const auto& [text, reason] : std::vector<std::pair<std::string, std::string>>{
           {"no JSON", "expected a JSON object"},
           {R"({"forwards": [1]})", "unknown field forwards"},
           {start + R"("bytes_backward": [0, 0], "bytes_per_second": 1})", "expected 1 backward transfer costs"},
           {start + R"("bytes_backward": [0], "bytes_per_second": 0})", "bytes_per_second must be more than 0"},
           {start + R"("bytes_backward": [0], "bytes_per_second": 1, "cores": [1]})", "machine 1 has no number of cores"},
           {start + R"("bytes_backward": "x", "bytes_per_second": 1})", "must be array"},
       }) {
    const Outcome bad = run_schedule(costs_file(folder, text));
    EXPECT_EQ(bad.code, 2) << text;
    EXPECT_NE(bad.output.find(reason), std::string::npos) << bad.output;
  }
}

TEST(ScheduleCommand, OrdersTheActionsForTheCostsWhenAsked) {
  const std::string flags = "--schedule 1f1b --place 0,1,0 --chunks 8 --costs-backward 2 --costs-transfer 1 ";
  EXPECT_NE(run_schedule(flags).output, run_schedule(flags + "--fit").output);
}

TEST(ScheduleCommand, LimitsWhatIsInFlight) {
  const Outcome grid = run_schedule("--schedule gpipe --place 0,1 --chunks 4 --in-flight 2");
  EXPECT_EQ(grid.code, 0) << grid.output;
  EXPECT_NE(grid.output.find("peak live activations 2,"), std::string::npos) << grid.output;
}

// Worker 1 takes 3 for a micro-batch and is 20 away: 64 * 3 and two ways are 232.
TEST(ScheduleCommand, ChoosesWhatIsInFlightForTheDelay) {
  const Outcome far = run_schedule(
      "--schedule 1f1b --place 0,1,0 --chunks 64 --costs-forward 0.1,1,0.1 --costs-backward 0.1,2,0.1 --costs-delay 20 --in-flight auto");
  EXPECT_EQ(far.code, 0) << far.output;
  EXPECT_EQ(far.output.substr(0, 14), "in flight: 39\n") << far.output;
  EXPECT_NE(far.output.find("with these costs: makespan 234.4,"), std::string::npos) << far.output;
}

TEST(ScheduleCommand, ReadsTheDelayOfEachCutFromTheFile) {
  const testing::TempFolder folder;
  const std::string text = R"({"forward": [1, 1], "backward": [1, 1], "bytes_forward": [0], "bytes_backward": [0], "bytes_per_second": 1,
                               "delay": [5]})";
  EXPECT_EQ(run_schedule(costs_file(folder, text)).output.substr(0, 14), "makespan 16 s,");
}

TEST(ScheduleCommand, ExitsWith2AndTheReasonForValuesThatMakeNoSense) {
  for (const auto& [flags, reason] : std::vector<std::pair<std::string, std::string>>{
           {"--schedule zb --place 0,1 --chunks 4", "--schedule: unknown schedule \"zb\"; known are gpipe, 1f1b, zb-h1"},
           {"--schedule zb-h1 --place 0,1,0 --chunks 4", "--place: the schedule zb-h1 is for chains"},
           {"--place 0,1 --chunks 4 --costs-backward-input 1", "--costs: expected 2 backward weights costs, one for each stage, got 0"},
           {"--place 0,2 --chunks 4", "--place: placement 0,2 gives no stage to worker 1"},
           {"--place 0,x --chunks 4", "--place: expected the worker of each stage, as in 0,1,0, got \"0,x\""},
           {"--place 0,1 --chunks 0", "--chunks: the number of micro-batches (chunks) is from 1 to 4096, got 0"},
           {"--place 0,1 --chunks 4 --in-flight 0", "--in-flight: expected auto or a number from 1 to 4096, got 0"},
           {"--place 0,1 --chunks 4 --in-flight 4x", "--in-flight: expected auto or a number from 1 to 4096, got 4x"},
           {"--place 0,1 --chunks 4 --costs-delay 1,2", "--costs: expected 1 delay costs, one for each cut, got 2"},
           {"--place 0,1 --chunks x", "--chunks"},
           {"--place 0,1", "--chunks is required"},
           {"--place 0,1 --chunks 4 --costs-forward 1,2,3", "--costs: expected 2 forward costs, one for each stage, got 3"},
       }) {
    const Outcome bad = run_schedule(flags);
    EXPECT_EQ(bad.code, 2) << flags;
    EXPECT_NE(bad.output.find(reason), std::string::npos) << bad.output;
  }
}

}  // namespace
}  // namespace epipe::cli
