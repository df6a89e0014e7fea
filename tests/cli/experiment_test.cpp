// epipe experiment and epipe inspect, as a user calls them.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>

#include "support/program.h"
#include "support/temp_folder.h"

namespace epipe::cli {
namespace {

using nlohmann::json;
using testing::Outcome;

class CommandInFolder : public ::testing::Test {
 protected:
  Outcome run(const std::string& arguments) const { return testing::run_program(arguments, folder_.path()); }
  std::string content(const std::string& name) const {
    std::ifstream file(folder_.file(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  static bool has(const Outcome& outcome, const std::string& text) { return outcome.output.find(text) != std::string::npos; }

  testing::TempFolder folder_;
};

class ExperimentCommand : public CommandInFolder {};
class InspectCommand : public CommandInFolder {};

// A small model on generated images in place of MobileNetV2 on CIFAR-10.
constexpr const char* kSmall = "-- --data synthetic --model cnn --cuts 1,3 --image-size 0 --augment none --batch 32 --data-part 0.25";

TEST_F(ExperimentCommand, RunsOnceAndShowsItsResultNextToThePublishedOne) {
  const std::string command = std::string(
                                  "experiment run acc-cifar10-sort8 acc-cifar10-sort8-b params-mobilenet --out o --devices cpu "
                                  "--from-scratch --seeds 2 --max-steps 3 ") +
                              kSmall;
  const Outcome first = run(command);
  ASSERT_EQ(first.code, 0) << first.output;
  EXPECT_TRUE(has(first, "acc-cifar10-sort8-b seed 1: already there")) << first.output;
  const Outcome again = run(command);
  ASSERT_EQ(again.code, 0) << again.output;
  EXPECT_TRUE(has(again, "acc-cifar10-sort8 seed 0: already there")) << again.output;
  EXPECT_FALSE(has(again, "running")) << again.output;
  const Outcome table = run("experiment table --out o 'acc-cifar10-*' 'params-*'");
  ASSERT_EQ(table.code, 0) << table.output;
  EXPECT_TRUE(has(table, "| acc-cifar10-sort8 | ")) << table.output;
  EXPECT_TRUE(has(table, "accuracy 95.68 %")) << table.output;
  EXPECT_TRUE(has(table, "(2 seeds)")) << table.output;
  EXPECT_TRUE(has(table, "at most 3 steps, on cpu,cpu, from scratch, --data synthetic")) << table.output;
  EXPECT_TRUE(has(table, "2.24 million parameters")) << table.output;
  EXPECT_TRUE(has(table, "--data-root does not say where cifar10 is")) << table.output;
}

TEST_F(ExperimentCommand, AFailedRunIsSaidAndTriedAgain) {
  const std::string command = "experiment run acc-cifar10-none --out o --devices cpu --from-scratch -- --data synthetic --model cnn";
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Outcome outcome = run(command);  // a cnn has no layer features.1 ... classifier with 224 pixels of synthetic data
    EXPECT_EQ(outcome.code, 1) << outcome.output;
    EXPECT_TRUE(has(outcome, "acc-cifar10-none seed 0: failed: ")) << outcome.output;
  }
  EXPECT_TRUE(has(run("experiment table acc-cifar10-none --out o"), "failed: ")) << content("o/results.jsonl");
}

TEST_F(ExperimentCommand, ListsEverythingWithTheReasonWhyItCannotRun) {
  const Outcome list = run("experiment list");
  ASSERT_EQ(list.code, 0) << list.output;
  EXPECT_TRUE(has(list, "acc-cola-sort8")) << list.output;
  EXPECT_TRUE(has(list, "not run: --data-root does not say where glue/cola is")) << list.output;
  EXPECT_TRUE(has(list, "Matthews 63.2 ± 0.12")) << list.output;
  const Outcome lines = run("experiment list params-vgg13 --json");
  EXPECT_EQ(json::parse(lines.output).at("published").at("parameters_M"), "133.05") << lines.output;
}

TEST_F(ExperimentCommand, PrintsTheCommandOfADryRun) {
  const Outcome outcome = run("experiment run network-cifar10-conv --dry-run --from-scratch -- --connect server:7000 --data cifar10:DIR");
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(has(outcome, "epipe train ")) << outcome.output;
  EXPECT_TRUE(has(outcome, "--codec-at 0:forward=conv:20x3 --codec-at 1:forward=conv:320x1")) << outcome.output;
  EXPECT_TRUE(has(outcome, "--connect server:7000")) << outcome.output;
}

TEST_F(ExperimentCommand, ExitsWith2ForWrongUsage) {
  for (const std::string arguments :
       {"experiment", "experiment run --out o", "experiment run no-such-thing --out o", "experiment run params-vgg13",
        "experiment run params-vgg13 --scale 2 --out o", "experiment run params-vgg13 --seeds 0 --out o",
        "experiment run params-vgg13 --out o -- --seed 3", "experiment table", "experiment list no-such-thing"}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments << '\n' << outcome.output;
  }
}

TEST_F(InspectCommand, CountsEveryValueOnceAndMeasuresEveryCodec) {
  const Outcome outcome =
      run("inspect --model cnn --place 0,1,0 --chunks 2 --batch 16 --steps 2 --codecs none,sort:6+2,topk:0.1 --dump tensors --run-dir r");
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  const json inspection = json::parse(content("r/inspect.json"));
  ASSERT_EQ(inspection.at("cuts").size(), 4U);
  for (const json& cut : inspection.at("cuts")) {
    const auto sum = [&](const char* name) {
      const auto counts = cut.at(name).get<std::vector<std::int64_t>>();
      return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    };
    const auto values = cut.at("values").get<std::int64_t>();
    EXPECT_EQ(sum("histogram"), values);
    EXPECT_EQ(sum("log2_histogram") + cut.at("zeros").get<std::int64_t>(), values);
    std::int64_t micro_batch = 1;
    for (const std::int64_t extent : cut.at("shape")) micro_batch *= extent;
    EXPECT_EQ(values, 4 * micro_batch) << "two steps of two micro-batches";
    EXPECT_EQ(cut.at("codecs").at(0).at("rel_error"), 0);
    EXPECT_GT(cut.at("codecs").at(1).at("rel_error").get<double>(), 0);
    EXPECT_LT(cut.at("codecs").at(1).at("rel_error").get<double>(), cut.at("codecs").at(2).at("rel_error").get<double>());
    EXPECT_NEAR(cut.at("codecs").at(1).at("bits_per_value").get<double>(), 8, 0.5);
  }
  const std::string page = content("r/report.html");
  for (const char* id : {"chart-values-0", "chart-magnitudes-0", "inspection-moments-0", "inspection-codecs-0"}) {
    EXPECT_NE(page.find(std::string("<figure id=\"") + id), std::string::npos) << id;
  }
  const Outcome measured = run("codec measure --codec sort:6+2 tensors/step1_cut1_backward_1.npy --json");
  EXPECT_EQ(measured.code, 0) << measured.output;
}

TEST_F(InspectCommand, TakesARunsConfigurationAndAddsToItsReport) {
  ASSERT_EQ(
      run("train --model cnn --place 0,1,0 --chunks 2 --codec sort:6+2 --codec-at 1:backward=topk:0.1 --max-steps 2 --run-dir a").code, 0);
  const Outcome outcome = run("inspect a --steps 1 --batch 8 --codecs ec:2");
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  const json inspection = json::parse(content("a/inspect.json"));
  EXPECT_EQ(inspection.at("steps"), 1);
  EXPECT_EQ(inspection.at("cuts").at(0).at("shape").at(0), 4) << "8 samples in 2 chunks";
  const std::string page = content("a/report.html");
  EXPECT_NE(page.find("inspection-codecs-0"), std::string::npos);
  EXPECT_NE(page.find("chart-time"), std::string::npos) << "what the report held before is still there";
  EXPECT_EQ(run("report a").code, 0);
  EXPECT_NE(content("a/report.html").find("inspection-codecs-0"), std::string::npos);
}

TEST_F(InspectCommand, SaysWhatIsWrong) {
  EXPECT_EQ(run("inspect --model cnn --place 0,1 --codecs sort:6 --run-dir r").code, 2);
  const Outcome whole = run("inspect --model cnn --run-dir r");
  EXPECT_EQ(whole.code, 2);
  EXPECT_TRUE(has(whole, "--cuts")) << whole.output;
  EXPECT_EQ(run("inspect --model cnn --place 0,1").code, 2) << "nowhere to write to";
  EXPECT_EQ(run("inspect nothing").code, 1);
}

}  // namespace
}  // namespace epipe::cli
