// The catalogue of experiments, what a run is called with, and the table of results.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <map>
#include <set>

#include "epipe/experiment/csv.h"
#include "epipe/experiment/files.h"
#include "epipe/experiment/table.h"
#include "report/samples.h"
#include "support/temp_folder.h"

namespace epipe::experiment {
namespace {

using testing::TempFolder;

std::vector<Entry> catalogue() {
  auto all = read_catalogue();
  if (!all) throw std::runtime_error(all.error().message);
  return std::move(all).value();
}

Entry entry(const std::string& id) {
  for (Entry& each : catalogue()) {
    if (each.id == id) return each;
  }
  throw std::runtime_error("no entry " + id);
}

std::string reason(const std::variant<Call, NotRun>& call) {
  const auto* const not_run = std::get_if<NotRun>(&call);
  return not_run == nullptr ? "" : not_run->reason;
}

// Everything an entry may want: data and weights as empty files and folders, four GPUs.
struct Lab {
  Lab() {
    for (const char* folder : {"cifar10", "cifar100", "food101", "imagenet", "glue", "glue/RTE", "glue/CoLA"}) {
      if (::mkdir(root.file(folder).c_str(), 0755) != 0) throw std::runtime_error(folder);
    }
    for (const char* file : {"mobilenet_v2.safetensors", "roberta-base.safetensors"}) std::ofstream(root.file(file)) << "x";
    settings.data_root = settings.weights_root = root.path();
  }
  TempFolder root;
  Settings settings;
  Machine machine{256, true};
};

TEST(Tables, AreReadWhereTheyAreAndSaidToBeMissingWhereTheyWereLookedFor) {
  const TempFolder folder;
  const std::string beside = folder.file("experiments");
  ASSERT_EQ(::mkdir(beside.c_str(), 0777), 0);
  testing::write_text(beside + "/tasks.csv", "task\n");
  testing::write_text(beside + "/README.md", "no table");
  const auto found = read_files({folder.file("nowhere"), beside});
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found.value().size(), 1U);
  EXPECT_EQ(found.value()[0].name, "tasks.csv");
  EXPECT_EQ(found.value()[0].text, "task\n");
  const auto missing = read_files({folder.file("nowhere"), folder.file("elsewhere")});
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("no tasks.csv in " + folder.file("nowhere") + ", " + folder.file("elsewhere")), std::string::npos)
      << missing.error().message;
  EXPECT_NE(table_folders().at(0).find("share/epipe/experiments"), std::string::npos) << "where an installation has them";
}

TEST(Csv, FieldsMayStandInQuotes) {
  const auto records = parse_csv("a,b\n1,\"x, \"\"y\"\"\"\n2,\n", "t.csv");
  ASSERT_TRUE(records) << records.error().message;
  ASSERT_EQ(records.value().size(), 2U);
  EXPECT_EQ(records.value()[0].at("b"), "x, \"y\"");
  EXPECT_EQ(records.value()[1].at("b"), "");
}

TEST(Csv, SaysWhichLineIsWrong) {
  EXPECT_EQ(parse_csv("a,b\n1,2\n1\n", "t.csv").error().message, "t.csv, line 3: expected 2 fields, got 1");
  EXPECT_EQ(parse_csv("a,b\n\"1,2\n", "t.csv").error().message, "t.csv, line 2: a quote is not closed");
}

TEST(Catalogue, HasOneEntryPerPublishedRow) {
  std::map<std::string, int> rows;
  for (const Entry& each : catalogue()) ++rows[each.table];
  const std::map<std::string, int> expected = {
      {"compression_accuracy", 47}, {"dataparallel_time", 16}, {"model_parameters", 5}, {"pipeline_vs_dataparallel", 22},
      {"resnet101_imagenet", 8},    {"roberta_throughput", 9}, {"settings", 2},         {"single_figures", 34}};
  EXPECT_EQ(rows, expected);
}

TEST(Catalogue, RowsPublishedTwiceShareTheirRuns) {
  EXPECT_EQ(entry("acc-cifar10-sort8-c").same_as, "acc-cifar10-sort8");
  EXPECT_EQ(entry("acc-rte-sort4-b").same_as, "acc-rte-sort4");
  EXPECT_EQ(entry("acc-cifar10-sort8").same_as, "acc-cifar10-sort8");
  EXPECT_NE(entry("acc-cifar10-sort16").same_as, entry("acc-cifar10-sort8").same_as);
  EXPECT_EQ(entry("settings-cifar10").same_as, "acc-cifar10-none");
}

TEST(Catalogue, EveryFigureThatIsPublishedIsANumber) {
  for (const Entry& each : catalogue()) {
    for (const auto& [name, value] : each.published) {
      EXPECT_EQ(value.find_first_not_of("0123456789./"), std::string::npos) << each.id << " " << name << " " << value;
    }
    EXPECT_FALSE(describe(each).empty());
  }
  EXPECT_EQ(describe(entry("pipe-cifar10-2gpu-b64-c4").published), "accuracy 95.89 % \u00b1 0.07, 228.57 samples/s, speed-up 0.607");
  EXPECT_EQ(describe(entry("acc-rte-sort8")), "glue/rte, roberta-base, roberta-1, sort:6+2, batch 32 in 4 chunks, 2 workers");
}

TEST(Catalogue, PatternsChooseEntriesAndUnknownOnesAreErrors) {
  const auto all = catalogue();
  EXPECT_EQ(select(all, {}).value().size(), all.size());
  EXPECT_EQ(select(all, {"params-*", "params-vgg13"}).value().size(), 5U);
  EXPECT_NE(select(all, {"acc-mnist-*"}).error().message.find("experiment list"), std::string::npos);
}

TEST(Call, NamesDataWeightsDevicesAndScale) {
  Lab lab;
  lab.settings.scale = 0.1;
  const auto call = std::get<Call>(call_of(entry("acc-rte-sort8"), lab.settings, lab.machine));
  const std::string root = lab.root.path();
  const std::vector<std::string> expected = {"train",
                                             "--data",
                                             "glue/rte:" + root + "/glue/RTE",
                                             "--weights",
                                             root + "/roberta-base.safetensors",
                                             "--model",
                                             "roberta-base",
                                             "--cuts",
                                             "layer.1.attention,layer.11.attention",
                                             "--place",
                                             "0,1,0",
                                             "--max-length",
                                             "128",
                                             "--optimizer",
                                             "adamw",
                                             "--lr-schedule",
                                             "linear",
                                             "--codec",
                                             "sort:6+2",
                                             "--batch",
                                             "32",
                                             "--chunks",
                                             "4",
                                             "--lr",
                                             "2e-5",
                                             "--epochs",
                                             "2",
                                             "--data-part",
                                             "0.1",
                                             "--warmup",
                                             "2",
                                             "--devices",
                                             "cuda:0,cuda:1"};
  EXPECT_EQ(call.words, expected);  // warm-up: a tenth of 2 epochs of 8 batches
  EXPECT_EQ(settings_text(lab.settings, call), "scale 0.1, on cuda:0,cuda:1");
}

TEST(Call, FlagsAfterTheEntrysOwnWin) {
  Lab lab;
  lab.settings.extra = {{"--codec", "ec:2"}, {"--image-size", "64"}};
  const auto call = std::get<Call>(call_of(entry("acc-food101-sort8"), lab.settings, lab.machine));
  EXPECT_EQ(std::count(call.words.begin(), call.words.end(), "--codec"), 1);
  EXPECT_EQ(*(std::find(call.words.begin(), call.words.end(), "--codec") + 1), "ec:2");
  EXPECT_EQ(*(std::find(call.words.begin(), call.words.end(), "--image-size") + 1), "64");
}

TEST(Call, DataParallelIsALaunchOfReplicas) {
  Lab lab;
  lab.settings.devices = {"cpu"};
  const auto call = std::get<Call>(call_of(entry("dp-cifar10-4gpu-b256"), lab.settings, lab.machine));
  const std::vector<std::string> start(call.words.begin(), call.words.begin() + 5);
  EXPECT_EQ(start, (std::vector<std::string>{"launch", "-n", "4", "--", "train"}));
  EXPECT_EQ(*(std::find(call.words.begin(), call.words.end(), "--replicas") + 1), "4");
  EXPECT_EQ(*(std::find(call.words.begin(), call.words.end(), "--devices") + 1), "cpu") << "of each worker of a replica";
  EXPECT_EQ(call.devices, "cpu,cpu,cpu,cpu");
  lab.machine.replicas = false;
  EXPECT_EQ(reason(call_of(entry("dp-cifar10-4gpu-b256"), lab.settings, lab.machine)),
            "this program has no data parallel (train --replicas)");
}

TEST(Call, EveryEntryCanRunWhereEverythingIsThereButTheTwoKindsThatCannot) {
  Lab lab;
  lab.settings.devices = {"cuda:0"};
  std::set<std::string> not_run;
  for (const Entry& each : catalogue()) {
    if (!reason(call_of(each, lab.settings, lab.machine)).empty()) not_run.insert(each.id);
  }
  EXPECT_EQ(not_run,
            (std::set<std::string>{"conv-cifar10-260", "network-cifar10-conv", "network-cifar10-none", "network-cifar10-uniform8"}));
  lab.settings.extra = {{"--connect", "server:7000"}};
  EXPECT_EQ(reason(call_of(entry("network-cifar10-conv"), lab.settings, lab.machine)), "");
}

TEST(Call, SaysWhatIsMissing) {
  Lab lab;
  Settings bare;
  EXPECT_EQ(reason(call_of(entry("acc-rte-none"), bare, lab.machine)), "--data-root does not say where glue/rte is");
  bare.data_root = "/nowhere";
  EXPECT_EQ(reason(call_of(entry("acc-rte-none"), bare, lab.machine)), "the data is missing: expected glue/RTE or RTE in /nowhere");
  bare.data_root = lab.root.path();
  EXPECT_NE(reason(call_of(entry("acc-rte-none"), bare, lab.machine)).find("roberta-base.safetensors"), std::string::npos);
  bare.from_scratch = true;
  EXPECT_EQ(reason(call_of(entry("acc-rte-none"), bare, {1, true})),
            "needs 2 GPUs, there are 1; --devices cpu or cuda:0 runs it on one device");
  bare.devices = {"cpu", "cpu"};
  EXPECT_EQ(reason(call_of(entry("pipe-rte-4gpu-b64-c4"), bare, {0, true})), "needs 4 devices, --devices names 2");
  EXPECT_EQ(reason(call_of(entry("acc-rte-none"), bare, {0, true})), "");
}

TEST(Outcome, ComesFromTheLinesOfARun) {
  const std::string epoch = R"({"kind":"epoch","epoch":0,"metric":"matthews","val_metric":-0.25})";
  const std::string text = testing::step_line(0, 0) + testing::step_line(0, 1) + testing::step_line(0, 2) + epoch + "\n";
  const auto read = outcome_of_metrics(text);
  ASSERT_TRUE(read) << read.error().message;
  const Outcome& o = read.value();
  EXPECT_TRUE(o.has_value);
  EXPECT_EQ(o.metric, "matthews");
  EXPECT_DOUBLE_EQ(o.value, -0.25);
  EXPECT_DOUBLE_EQ(o.samples_per_s, 512);
  EXPECT_DOUBLE_EQ(o.seconds_per_batch, 0.125);
  EXPECT_DOUBLE_EQ(o.bits_per_value, 6);  // 1500 bytes for 2000 values
  EXPECT_DOUBLE_EQ(o.wire_bytes_per_step, 1500);
  ASSERT_EQ(o.bandwidth_MBps.size(), 1U);
  EXPECT_NEAR(o.bandwidth_MBps[0], 812, 1e-6);
  EXPECT_NEAR(o.parts.at("forward"), 0.05, 1e-12);
  EXPECT_TRUE(ends_with_epoch(text));
  EXPECT_FALSE(ends_with_epoch(text + testing::step_line(1, 3)));
  EXPECT_FALSE(outcome_of_metrics(""));
  EXPECT_FALSE(outcome_of_metrics(R"({"kind":"step"})"));
}

RunResult result(const std::string& id, std::uint64_t seed, double value, double samples_per_s) {
  RunResult r;
  r.id = id;
  r.seed = seed;
  r.settings = "scale 0.1, on cpu,cpu";
  r.command = "train " + id;
  r.data = "cifar10";
  r.folder = id;
  r.outcome.metric = "accuracy";
  r.outcome.value = value;
  r.outcome.has_value = true;
  r.outcome.steps = 12;
  r.outcome.samples_per_s = samples_per_s;
  r.outcome.seconds_per_batch = 64 / samples_per_s;
  r.outcome.bits_per_value = 8.01;
  r.outcome.bandwidth_MBps = {100, 20};
  r.outcome.parts = {{"forward", 0.25}, {"backward", 0.5}, {"wait", 0.00001}};
  return r;
}

TEST(Results, AreReadBackAsTheyWereWrittenAndACutOffLineIsLeftOut) {
  TempFolder folder;
  const std::string path = folder.file("results.jsonl");
  EXPECT_TRUE(read_results(path).value().empty());
  RunResult failed = result("b", 1, 0, 1);
  failed.failed = "epipe: no";
  ASSERT_TRUE(append_result(path, result("a", 0, 0.5, 10)));
  ASSERT_TRUE(append_result(path, failed));
  std::ofstream(path, std::ios::app) << "{\"id\":\"c";
  const auto read = read_results(path);
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read.value().size(), 2U);
  EXPECT_EQ(to_line(read.value()[0]), to_line(result("a", 0, 0.5, 10)));
  EXPECT_EQ(read.value()[1].failed, "epipe: no");
  std::ofstream(path) << "nonsense\n";
  EXPECT_NE(read_results(path).error().message.find("line 1"), std::string::npos);
}

TEST(Table, ShowsOursNextToTheirsAndWhyTheRestWasNotRun) {
  const std::vector<Entry> entries = {entry("pipe-cifar10-2gpu-b64-c4"), entry("dp-cifar10-2gpu-b64"), entry("conv-cifar10-260"),
                                      entry("acc-rte-none"), entry("resnet101-dp-256")};
  RunResult dp = result("dp-cifar10-2gpu-b64", 0, 0.95, 80);
  dp.outcome.bits_per_value = -1;
  dp.outcome.bandwidth_MBps.clear();
  RunResult failed = result("acc-rte-none", 0, 0, 1);
  failed.failed = "epipe: out | of memory";
  RunResult imagenet = result("resnet101-dp-256", 0, 0.75, 10);
  const auto rows = make_rows(
      entries, {result("pipe-cifar10-2gpu-b64-c4", 0, 0.9, 40), dp, result("pipe-cifar10-2gpu-b64-c4", 1, 0.92, 44), failed, imagenet}, {},
      {});
  EXPECT_EQ(
      to_markdown(rows),
      "| id | what | published | ours | bits/value | samples/s | s/batch | speed-up | MB/s by cut | s per step by part, all workers | on "
      "|\n"
      "|---|---|---|---|---|---|---|---|---|---|---|\n"
      "| pipe-cifar10-2gpu-b64-c4 | cifar10, mobilenet_v2, mobilenet-client, none, batch 64 in 4 chunks, 2 workers | accuracy 95.89 % "
      "\u00b1 0.07, 228.57 samples/s, speed-up 0.607 "
      "| accuracy 91.00 \u00b1 1.41 (2 seeds) | 8.01 | 42.0 | 1.53 | 0.525 | 100 / 20 | backward 0.5, forward 0.25 | cifar10, scale 0.1, "
      "on cpu,cpu |\n"
      "| dp-cifar10-2gpu-b64 | cifar10, mobilenet_v2, sgd, batch 64, data parallel on 2 | accuracy 95.83 % \u00b1 0.04, 376.47 samples/s, "
      "speed-up 1 "
      "| accuracy 95.00 (1 seed) | - | 80.0 | 0.8 | 1 | - | backward 0.5, forward 0.25 | cifar10, scale 0.1, on cpu,cpu |\n"
      "| resnet101-dp-256 | images, resnet101, sgd, batch 256, data parallel on 2 | top-1 error 22.02 % \u00b1 0.11, 180.344 samples/s, "
      "speed-up 1 "
      "| top-1 error 25.00 (1 seed) | 8.01 | 10.0 | 6.4 | 1 | 100 / 20 | backward 0.5, forward 0.25 | cifar10, scale 0.1, on cpu,cpu |\n"
      "\n| not run | what | published | reason |\n|---|---|---|---|\n"
      "| conv-cifar10-260 | cifar10, mobilenet_v2, mobilenet-client, codec not published, batch 256 in 8 chunks, 2 workers | accuracy "
      "95.73 %, ratio 0.26 "
      "| the layers that give this ratio are not published |\n"
      "| acc-rte-none | glue/rte, roberta-base, roberta-1, none, batch 32 in 4 chunks, 2 workers | accuracy 78.9 %, ratio 1 | failed: "
      "epipe: out \\| of memory |\n");
}

TEST(Table, AsJsonHasOneObjectPerRow) {
  const auto rows = make_rows({entry("acc-cifar10-sort8-b")}, {result("acc-cifar10-sort8", 0, 0.9, 40)}, {}, {});
  const std::string line = to_json_lines(rows);
  EXPECT_NE(line.find(R"("published":{"accuracy":"95.7","sd":"0.03","ratio":"0.25"})"), std::string::npos) << line;
  EXPECT_NE(line.find(R"("mean":90.0)"), std::string::npos) << line;
}

}  // namespace
}  // namespace epipe::experiment
