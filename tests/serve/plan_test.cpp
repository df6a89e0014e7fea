// epipe plan and epipe train against a server whose speed and link they measure.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>

#include "epipe/base/file.h"
#include "serve/split.h"

namespace epipe::serve {
namespace {

using testing::Arguments;
using testing::file_bytes;
using testing::run_program;
using testing::Split;
using testing::operator+;

const Arguments kPlannedRun = {"--model", "mlp", "--batch", "32", "--epochs", "5000", "--reconnect", "5"};

std::ptrdiff_t metric_lines(const std::string& path) {
  const std::string text = file_bytes(path);
  return std::count(text.begin(), text.end(), '\n');
}

TEST(Plan, MeasuresTheServerAndTheLink) {
  Split split(1);
  split.start_server(0);
  const auto plan =
      run_program("plan --json --model mlp --batch 32 --workers client:cpu,server:" + split.address(0) + " --tls " + split.file("tls"));
  ASSERT_EQ(plan.code, 0) << plan.output;
  const auto object = nlohmann::json::parse(plan.output);
  int measured = 0;
  for (const auto& fact : object.at("facts")) {
    const std::string name = fact.at("name");
    if (name == "server" || name == "up" || name == "down" || name == "delay") measured += fact.at("source") == "measured" ? 1 : 0;
  }
  EXPECT_EQ(measured, 4) << plan.output;
  EXPECT_TRUE(testing::holds_no_sessions(split.file("server-0"))) << "a session stayed behind";
}

TEST(Plan, IsWhatTrainingDoesWhenNothingIsSaid) {
  Split split(1);
  split.start_server(0);
  const std::string run_dir = split.file("run");
  const auto client = split.start_client(run_dir, kPlannedRun + Arguments{"--checkpoint-every", "5"});
  ASSERT_TRUE(client->says("planned: --cuts ", 60)) << client->log();
  for (int i = 0; i < 3000 && list_folder(run_dir + "/checkpoints").empty(); ++i) client->wait(0.01);
  client->signal(SIGINT);
  ASSERT_EQ(client->wait(60), 0) << client->log();
  const std::string config = file_bytes(run_dir + "/config.toml");
  EXPECT_NE(config.find("cuts = [\""), std::string::npos) << config;
  EXPECT_NE(config.find("place = [0,1,0]"), std::string::npos) << config;

  const auto before = metric_lines(run_dir + "/metrics.jsonl");

  // It is part of the run: resuming plans nothing anew.
  const auto resumed = split.start_client(run_dir, {"--resume", "--max-steps", "100000", "--reconnect", "5"});
  for (int i = 0; i < 3000 && metric_lines(run_dir + "/metrics.jsonl") < before + 5; ++i) resumed->wait(0.01);
  resumed->signal(SIGINT);
  ASSERT_EQ(resumed->wait(60), 0) << resumed->log();
  EXPECT_GE(metric_lines(run_dir + "/metrics.jsonl"), before + 5) << resumed->log();
  const std::string log = resumed->log();  // of both
  EXPECT_EQ(log.find("planned:"), log.rfind("planned:")) << log;
}

TEST(Plan, LeavesARunAloneThatSaysAnythingOfIt) {
  Split split(1);
  split.start_server(0);
  for (const Arguments& said : {Arguments{"--chunks", "2"}, {"--codec", "none"}, {"--schedule", "gpipe"}, {"--cuts", "1,3"}}) {
    const auto client = split.start_client(split.file("run" + said[0]), kPlannedRun + said + Arguments{"--max-steps", "1"});
    ASSERT_EQ(client->wait(60), 0) << client->log();
    EXPECT_EQ(client->log().find("planned:"), std::string::npos) << client->log();
  }
}

// So that there are bits to choose when the link changes.
TEST(Plan, OfARunThatFollowsItsLinkCodesWhatCrosses) {
  Split split(1);
  split.start_server(0);
  const auto client = split.start_client(split.file("run"), kPlannedRun + Arguments{"--follow-link", "--max-steps", "2"});
  ASSERT_EQ(client->wait(90), 0) << client->log();
  EXPECT_NE(client->log().find("planned: --cuts "), std::string::npos) << client->log();
  EXPECT_NE(client->log().find("from step 0 on the link carries"), std::string::npos) << client->log();
  const std::string config = file_bytes(split.file("run/config.toml"));
  EXPECT_NE(config.find("codec = \"auto:2\""), std::string::npos) << config;
  EXPECT_NE(config.find("rate-changes = \"0:"), std::string::npos) << config;
}

TEST(Plan, SaysThatNobodyAnswers) {
  Split split(1);
  const auto client = split.start_client(split.file("run"), {"--model", "mlp", "--max-steps", "1", "--reconnect", "1"});
  EXPECT_EQ(client->wait(60), 1) << client->log();
  EXPECT_NE(client->log().find("cannot connect"), std::string::npos) << client->log();
  EXPECT_NE(client->log().find("gave up after"), std::string::npos) << client->log();
}

}  // namespace
}  // namespace epipe::serve
