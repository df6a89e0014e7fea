// epipe plan, as a user calls it; with everything given, so that nothing is measured over a network.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/program.h"
#include "support/temp_folder.h"

namespace epipe::cli {
namespace {

using nlohmann::json;
using testing::Outcome;

const std::string kMachines = " --workers client:cpu@2GF,server:host:7000@200GF";
const std::string kSlowLink = " --link up=10M,down=100M,delay=20ms";
const std::string kMlp = "--model mlp --batch 32 ";

Outcome run_plan(const std::string& flags) { return testing::run_program("plan " + flags); }

json planned(const std::string& flags) {
  const Outcome outcome = run_plan(flags + " --json");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  return json::parse(outcome.output, nullptr, false);
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(PlanCommand, SaysWhatItChoseAndWhatItRestsOn) {
  const Outcome plan = run_plan(kMlp + kMachines + kSlowLink);
  ASSERT_EQ(plan.code, 0) << plan.output;
  for (const std::string text :
       {"up             9.5 Mbit/s of payload", "20 ms one way", "client         2 GFLOP/s", "given", "--place 0,1,0",
        "samples/s: a step of 32 samples takes", "memory: client", "binds:", "Runners-up", "worker 1"}) {
    EXPECT_NE(plan.output.find(text), std::string::npos) << text << "\n" << plan.output;
  }
}

TEST(PlanCommand, PrintsOneObjectForPrograms) {
  const json plan = planned(kMlp + kMachines + kSlowLink);
  for (const char* field : {"cuts", "place", "schedule", "chunks", "codec", "codec_at", "in_flight", "schedule_costs"}) {
    EXPECT_TRUE(plan.at("flags").contains(field)) << field;
  }
  const json& predicted = plan.at("predicted");
  EXPECT_GT(predicted.at("samples_per_s").get<double>(), 0);
  EXPECT_DOUBLE_EQ(predicted.at("bytes_per_step").get<double>(),
                   predicted.at("bytes_up").get<double>() + predicted.at("bytes_down").get<double>());
  EXPECT_GT(predicted.at("memory").at("client").get<double>(), 0);
  EXPECT_GT(predicted.at("memory").at("server").get<double>(), 0);
  EXPECT_GE(plan.at("binds").at(0).at("gain").get<double>(), plan.at("binds").at(1).at("gain").get<double>());
  EXPECT_FALSE(plan.at("runners_up").empty());
  EXPECT_TRUE(plan.at("runners_up").at(0).at("predicted").contains("samples_per_s"));
  EXPECT_TRUE(plan.at("inputs").contains("layers"));
  EXPECT_FALSE(plan.at("facts").empty());
}

TEST(PlanCommand, PrintsFlagsThatTrainTakes) {
  const testing::TempFolder folder;
  const json plan = planned(kMlp + kMachines + kSlowLink);
  const auto trained =
      testing::run_program("train " + kMlp + plan.at("command").get<std::string>() + " --max-steps 2 --run-dir " + folder.file("run"));
  EXPECT_EQ(trained.code, 0) << trained.output;
}

// How much accuracy coding may cost is for the run to keep: the plan only says so.
TEST(PlanCommand, HandsTheBoundOfHarmToCodecsThatChooseTheirBits) {
  const testing::TempFolder folder;
  const json plan = planned(kMlp + kMachines + " --link up=100k,down=100k,delay=0 --harm 0.05");
  EXPECT_EQ(plan.at("flags").at("codec"), "auto") << plan.at("flags");
  EXPECT_EQ(plan.at("flags").at("harm"), 0.05);
  EXPECT_NE(plan.at("command").get<std::string>().find("--harm 0.05"), std::string::npos);
  const auto trained =
      testing::run_program("train " + kMlp + plan.at("command").get<std::string>() + " --max-steps 1 --run-dir " + folder.file("run"));
  EXPECT_EQ(trained.code, 0) << trained.output;
}

// What train records is what the plan says, flag by flag, for fast and slow links, one and several servers, and a chain.
TEST(PlanCommand, IsThePlanThatTrainReaches) {
  const std::string two_servers = " --workers client:cpu@2GF,server:host:7000@200GF,server:other:7000@200GF";
  for (const std::string& request :
       {kMachines + " --link up=100k,down=10M,delay=0", kMachines + " --link up=10G,down=10G,delay=0",
        kMachines + " --link up=100M,down=100M,delay=200ms --schedule 1f1b --in-flight 4 --chunks 16 --codec none",
        two_servers + " --link up=1M,down=10M,delay=5ms", std::string(" --workers cpu@2GF,cpu@2GF"),
        kMachines + kSlowLink + " --codec-forward ec:2 --codec-backward uniform:8"}) {
    const testing::TempFolder folder;
    const json plan = planned(kMlp + request);
    const std::string command = plan.at("command");
    const auto trained = testing::run_program("train " + kMlp + command + " --max-steps 1 --run-dir " + folder.file("run"));
    ASSERT_EQ(trained.code, 0) << command << "\n" << trained.output;
    // A plan for the recorded settings changes none of them.
    const auto recorded = testing::run_program("train --config " + folder.file("run/config.toml") + " --max-steps 1 --run-dir " +
                                               folder.file("again"));
    ASSERT_EQ(recorded.code, 0) << recorded.output;
    const std::string config = text_of(folder.file("run/config.toml"));
    const json& flags = plan.at("flags");
    std::string cuts;
    for (const std::string cut : flags.at("cuts")) cuts += (cuts.empty() ? "\"" : ",\"") + cut + "\"";
    for (const std::string& line :
         {"cuts = [" + cuts + "]", "place = " + flags.at("place").dump(), "schedule = " + flags.at("schedule").dump(),
          "chunks = " + flags.at("chunks").dump(), "codec = " + flags.at("codec").dump()}) {
      EXPECT_NE(config.find(line), std::string::npos) << line << "\n" << config;
    }
    for (const std::string at : flags.at("codec_at")) EXPECT_NE(config.find(at), std::string::npos) << at << "\n" << config;
    const auto expect = [&](const std::string& text) { EXPECT_NE(config.find(text), std::string::npos) << text << "\n" << config; };
    if (flags.at("in_flight").is_number()) expect("in-flight = \"" + flags.at("in_flight").dump());
    if (flags.at("schedule_costs").is_string()) expect(flags.at("schedule_costs").dump());
  }
}

TEST(PlanCommand, OrdersTheActionsForAFarServer) {
  const testing::TempFolder folder;
  const json plan =
      planned(kMlp + kMachines + " --link up=100M,down=100M,delay=200ms --cuts 1,3 --chunks 16 --schedule 1f1b --in-flight 4 --codec none");
  ASSERT_TRUE(plan.at("flags").at("schedule_costs").is_string()) << plan.at("flags");
  const std::string costs = plan.at("flags").at("schedule_costs").get<std::string>();
  EXPECT_NE(costs.find("delay=0.2"), std::string::npos) << costs;
  const auto trained =
      testing::run_program("train " + kMlp + plan.at("command").get<std::string>() + " --max-steps 1 --run-dir " + folder.file("run"));
  ASSERT_EQ(trained.code, 0) << trained.output;
  const std::string recorded = text_of(folder.file("run/config.toml"));
  EXPECT_NE(recorded.find(costs), std::string::npos) << recorded;
  EXPECT_TRUE(planned(kMlp + kMachines + kSlowLink + " --chunks 1").at("flags").at("schedule_costs").is_null()) << "one micro-batch";
}

TEST(PlanCommand, KeepsTheFlagsItIsGiven) {
  const json plan = planned(kMlp + kMachines + kSlowLink + " --cuts 1,3 --chunks 2 --schedule gpipe --codec uniform:8");
  EXPECT_EQ(plan.at("flags").at("cuts").size(), 2U);
  EXPECT_EQ(plan.at("inputs").at("layers").at(1).at("name"), plan.at("flags").at("cuts").at(0));
  EXPECT_EQ(plan.at("flags").at("chunks"), 2);
  EXPECT_EQ(plan.at("flags").at("schedule"), "gpipe");
  EXPECT_EQ(plan.at("flags").at("codec"), "uniform:8");
  EXPECT_TRUE(plan.at("flags").at("codec_at").empty());
  EXPECT_EQ(planned(kMlp + kMachines + kSlowLink + " --keep 1").at("inputs").at("layers").at(1).at("with_client"), true);
}

TEST(PlanCommand, PlansAgainWithTheTablesOfAFile) {
  const testing::TempFolder folder;
  const json plan = planned(kMlp + kMachines + kSlowLink);
  std::ofstream(folder.file("plan.json")) << plan.dump();
  const json again = planned("--costs " + folder.file("plan.json"));
  EXPECT_EQ(again.at("flags"), plan.at("flags"));
  EXPECT_EQ(again.at("predicted"), plan.at("predicted"));
  const json slower = planned("--costs " + folder.file("plan.json") + " --link up=100k,down=100k");
  EXPECT_LT(slower.at("predicted").at("samples_per_s").get<double>(), plan.at("predicted").at("samples_per_s").get<double>());
  EXPECT_EQ(slower.at("inputs").at("link").at("delay"), plan.at("inputs").at("link").at("delay"));
}

TEST(PlanCommand, CutsAChainForWorkersOfThisMachine) {
  const json plan = planned(kMlp + " --workers cpu@2GF,cpu@2GF");
  EXPECT_EQ(plan.at("flags").at("place"), (json{0, 1}));
}

TEST(PlanCommand, MeasuresWhatIsNotGiven) {
  const Outcome plan = run_plan(kMlp + " --workers client:cpu,server:host:7000@200GF" + kSlowLink);
  ASSERT_EQ(plan.code, 0) << plan.output;
  EXPECT_NE(plan.output.find("measuring mlp on cpu"), std::string::npos) << plan.output;
  const auto client = plan.output.find("  client ");
  ASSERT_NE(client, std::string::npos);
  EXPECT_NE(plan.output.substr(client, plan.output.find('\n', client) - client).find("measured"), std::string::npos) << plan.output;
}

TEST(PlanCommand, ExitsWithTheReasonWhereNoPlanIsPossible) {
  const std::string small = " --workers client:cpu@2GF,server:host:7000@200GF/10MB";
  for (const auto& [flags, code, reason] : std::vector<std::tuple<std::string, int, std::string>>{
           {kMlp + kMachines + " --link up=0,down=1M,delay=0", 2, "a link of rate 0 carries nothing"},
           {kMlp + kMachines + " --link upward=1M", 2, "expected up=RATE"},
           {kMlp + " --workers client:tpu" + kSlowLink, 2, "got \"client:tpu\""},
           {kMlp + kSlowLink, 2, "--workers is required"},
           {kMlp + small + kSlowLink, 1, "MB are missing"},
           {kMlp + kMachines + kSlowLink + " --cuts 1,2,3", 1, "3 cuts make 4 stages"},
           {kMlp + kMachines + kSlowLink + " --schedule zb-h1", 1, "zb-h1 cannot run on the placement 0,1,0"},
           {kMlp + kMachines + kSlowLink + " --chunks 33", 2, "a batch of 32 cannot be split into 33 chunks"},
           {kMlp + kMachines + kSlowLink + " --codec nonsense", 2, "nonsense"},
           {kMlp + kMachines + kSlowLink + " --codec linear:2", 2, "trained with the model"},
           {kMlp + kMachines + kSlowLink + " --keep nolayer", 2, "nolayer"},
           {kMlp + kMachines + kSlowLink + " --keep 0-99", 2, "--keep names layer 99, but the last of mlp is 3"},
           {kMlp + kMachines + kSlowLink + " --cuts 1,3 --keep 2", 1, "the cuts 1,3 give it to worker 1"},
           {kMlp + kMachines + kSlowLink + " --place 0,1", 1, "stays with the client, worker 0, but the placement 0,1 ends on worker 1"},
           {kMlp + kMachines + kSlowLink + " --codec-at 7:forward=auto:2", 1, "for cut 7, but the placement 0,1,0 has 2 cuts"},
           {kMlp + kMachines + kSlowLink + " --least-samples 64", 2, "micro-batches of 32 samples; 32 are missing"},
           {kMlp + kMachines + kSlowLink + " --chunks 8 --least-samples 16", 2, "micro-batches of 4 samples; 12 are missing"},
           {kMlp + kMachines + " --link up=10M,down=0,delay=0", 2, "expected down of more than 0 bit/s, got 0"},
           {kMlp + " --workers client:cpu@2GF/1MB,server:host:7000@200GF" + kSlowLink, 1, "but has 1.0 MB; "},
           {kMlp + kMachines + kSlowLink + " --costs nowhere.json", 2, "contradict each other"},
           {kMlp + kMachines + kSlowLink + " --harm 0.1 --codec ec:2", 2, "--harm 0.1 bounds what codecs do that choose their bits"},
           {kMlp + kMachines + kSlowLink + " --harm -1", 2, "--harm"},
           {kMlp + kMachines + kSlowLink + " --bits 4 --codec none", 2, "--bits 4 is for codecs that the plan chooses"},
           {kMlp + kMachines + kSlowLink + " --bits 4 --codec-forward ec:2", 2, "leave one of the two out"},
           {"--costs nowhere.json --bits 4", 2, "the file's codecs have their bits"},
           {kMlp + kMachines + " --link rate=10M,up=5M,delay=0", 2, "up is given twice"},
           {kMlp + kMachines + kSlowLink + " --keep 0-3", 1, "keep fewer layers"},
           {"--costs nowhere.json", 2, "nowhere.json"},
           {kMlp + kMachines, 2, "--tls"},
           {kMlp + " --workers client:cpu@2GF,server:127.0.0.1:1 --insecure", 1, "to plan without it"},
       }) {
    const Outcome bad = run_plan(flags);
    EXPECT_EQ(bad.code, code) << flags << "\n" << bad.output;
    EXPECT_NE(bad.output.find(reason), std::string::npos) << flags << "\n" << bad.output;
  }
}

}  // namespace
}  // namespace epipe::cli
