// --follow-link between client and server, on a link that drops from 100 to 5 Mbit/s and comes back.
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "serve/split.h"
#include "support/slow_network.h"

namespace epipe::serve {
namespace {

using testing::Arguments;
using testing::ended_with;
using testing::file_bytes;
using testing::Process;
using testing::run_program;
using testing::SlowNetwork;
using testing::Split;
using testing::operator+;

const Arguments kFollowed = {"--model", "cnn",    "--cuts", "1,4",     "--chunks", "4",          "--batch",
                             "64",      "--seed", "5",      "--codec", "auto:0.5", "--momentum", "0.9"};

// The lines of rates so far.
std::vector<nlohmann::json> rates_in(const std::string& run_dir) {
  std::ifstream file(run_dir + "/metrics.jsonl");
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) {
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (object.is_object() && object.at("kind") == "rates") lines.push_back(object);
  }
  return lines;
}

bool comes_to(std::size_t changes, const std::string& run_dir, Process& client) {
  for (int i = 0; i < 1200 && client.running() && rates_in(run_dir).size() < changes; ++i) client.wait(0.1);
  return rates_in(run_dir).size() >= changes;
}

double bits_of(const nlohmann::json& line) {
  double bits = 0;
  for (const auto& cut : line.at("cuts")) bits += cut.at("rate").get<double>();
  return bits;
}

TEST(FollowedLink, ThatDropsAndComesBackHasTheBitsItHasRoomFor) {
  std::unique_ptr<SlowNetwork> network;
  try {
    network = std::make_unique<SlowNetwork>("100mbit");
  } catch (const std::runtime_error& missing) {
    GTEST_SKIP() << missing.what();
  }
  Split split(1);
  const auto made = run_program("serve --init-tls " + split.file("far-tls") + " --name 10.77.0.2");
  ASSERT_EQ(made.code, 0) << made.output;
  Process server({"serve", "--listen", "10.77.0.2:7000", "--tls", split.file("far-tls"), "--state-dir", split.file("state")},
                 split.file("server.log"), network->enter(1));
  ASSERT_TRUE(server.says("listening", 30)) << server.log();
  const std::string run_dir = split.file("run");
  Process client(Arguments{"train", "--connect", "10.77.0.2:7000", "--run-dir", run_dir, "--tls", split.file("far-tls"), "--follow-link",
                           "--epochs", "1000"} +
                     kFollowed,
                 split.file("client.log"), network->enter(0));
  ASSERT_TRUE(comes_to(1, run_dir, client)) << client.log();
  network->set_rate("5mbit");
  ASSERT_TRUE(comes_to(2, run_dir, client)) << client.log();
  network->set_rate("100mbit");
  ASSERT_TRUE(comes_to(3, run_dir, client)) << client.log();
  client.signal(SIGINT);
  ASSERT_EQ(client.wait(60), 0) << client.log();

  const auto changes = rates_in(run_dir);
  EXPECT_EQ(changes[0].at("step"), 0);
  EXPECT_NEAR(changes[0].at("up_MBps").get<double>(), 12, 4) << "of 12.5";
  for (const char* const way : {"up_MBps", "down_MBps"}) {  // of 0.625, and what the token bucket had saved
    EXPECT_GT(changes[1].at(way).get<double>(), 0.4) << way;
    EXPECT_LT(changes[1].at(way).get<double>(), 1.2) << way;
  }
  EXPECT_GE(bits_of(changes[1]), 4 * 0.5) << "what the codec says, four times";
  EXPECT_GT(bits_of(changes[0]), bits_of(changes[1]));
  EXPECT_GT(bits_of(changes[2]), bits_of(changes[1]));
  EXPECT_NE(client.log().find("the link carries"), std::string::npos) << client.log();

  // config.toml repeats it, in one process and without a link.
  const std::string config = file_bytes(run_dir + "/config.toml");
  EXPECT_NE(config.find("rate-changes = \"0:"), std::string::npos) << config;
  std::uint64_t steps = 0;
  std::ifstream metrics(run_dir + "/metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) steps += nlohmann::json::parse(line).at("kind") == "step" ? 1 : 0;
  const auto key = config.find("rate-changes = \"") + std::string("rate-changes = \"").size();
  std::string alone = "train --place 0,1,0 --epochs 1000 --max-steps " + std::to_string(steps) + " --run-dir " + split.file("alone") +
                      " --rate-changes '" + config.substr(key, config.find('"', key) - key) + "'";
  for (const auto& argument : kFollowed) alone += " " + argument;
  const auto repeated = run_program(alone);
  ASSERT_EQ(repeated.code, 0) << repeated.output;
  EXPECT_TRUE(ended_with(run_dir, file_bytes(split.file("alone/model.safetensors"))));
}

}  // namespace
}  // namespace epipe::serve
