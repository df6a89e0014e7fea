// Client and server over a network that is slow, far away, stalled or damages bytes: the same weights in the end, or a clear error.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "epipe/base/file.h"
#include "serve/split.h"
#include "support/proxy.h"
#include "support/slow_network.h"

namespace epipe::serve {
namespace {

using testing::Arguments;
using testing::ended_with;
using testing::file_bytes;
using testing::Process;
using testing::Proxy;
using testing::run_program;
using testing::SlowNetwork;
using testing::Split;
using testing::operator+;

const Arguments kLinkRun = {"--model",     "cnn", "--chunks",           "2",   "--batch", "32",
                            "--seed",      "5",   "--momentum",         "0.9", "--codec", "sort:6+2",
                            "--max-steps", "8",   "--checkpoint-every", "2"};

std::string weights_of_one_process(const Split& split, const std::string& place, const Arguments& arguments) {
  std::string text;
  for (const auto& argument : arguments) text += " " + argument;
  const std::string run_dir = split.file("one-" + std::to_string(std::hash<std::string>{}(place + text)));
  const auto one = run_program("train --run-dir " + run_dir + (place.empty() ? "" : " --place " + place) + text);
  EXPECT_EQ(one.code, 0) << one.output;
  return file_bytes(run_dir + "/model.safetensors");
}

std::string weights_without_server(const Split& split, const Arguments& arguments) {
  return weights_of_one_process(split, "0,1,0", arguments);
}

Arguments client_of(const Split& split, const std::string& address, const Arguments& more) {
  return Arguments{"train", "--connect", address, "--run-dir", split.file("run")} + kLinkRun + more;
}

std::vector<double> step_seconds(const Split& split) {
  std::ifstream file(split.file("run/metrics.jsonl"));
  std::vector<double> seconds;
  for (std::string line; std::getline(file, line);) {
    const auto object = nlohmann::json::parse(line);
    if (object.at("kind") == "step") seconds.push_back(object.at("seconds"));
  }
  return seconds;
}

// Whether the proxy has carried so much, within some seconds.
bool carries(const Proxy& proxy, std::uint64_t bytes) {
  for (int i = 0; i < 3000 && proxy.bytes() < bytes; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return proxy.bytes() >= bytes;
}

TEST(Link, TenMegabitsPerSecondGiveTheSameWeights) {
  std::unique_ptr<SlowNetwork> network;
  try {
    network = std::make_unique<SlowNetwork>("10mbit");
  } catch (const std::runtime_error& missing) {
    GTEST_SKIP() << missing.what();
  }
  Split split(1);
  const auto made = run_program("serve --init-tls " + split.file("far-tls") + " --name 10.77.0.2");
  ASSERT_EQ(made.code, 0) << made.output;
  Process server({"serve", "--listen", "10.77.0.2:7000", "--tls", split.file("far-tls"), "--state-dir", split.file("state")},
                 split.file("server.log"), network->enter(1));
  ASSERT_TRUE(server.says("listening", 30)) << server.log();
  Process client(client_of(split, "10.77.0.2:7000", {"--tls", split.file("far-tls")}), split.file("client.log"), network->enter(0));
  ASSERT_EQ(client.wait(120), 0) << client.log() << server.log();
  EXPECT_TRUE(ended_with(split.file("run"), weights_without_server(split, kLinkRun)));
}

TEST(Link, FiftyMillisecondsEachWayCostEachStepItsFourWaysAndNoMore) {
  Split split(1);
  split.start_server(0);
  const Proxy proxy(split.port(0), std::chrono::milliseconds(50));
  Process client(client_of(split, proxy.address(), {"--tls", split.file("tls")}), split.file("client.log"));
  ASSERT_EQ(client.wait(120), 0) << client.log();
  EXPECT_TRUE(ended_with(split.file("run"), weights_without_server(split, kLinkRun)));
  auto seconds = step_seconds(split);
  ASSERT_EQ(seconds.size(), 8U);
  seconds.erase(seconds.begin());
  // Two cuts, there and back. One more round trip per step, for its commit, would make 0.3 s of it.
  const double fastest = *std::min_element(seconds.begin(), seconds.end());
  EXPECT_GE(fastest, 0.2);
  EXPECT_LT(fastest, 0.3);
}

// With as many in flight as the delay asks for, the weights are the same.
TEST(Link, WhatIsInFlightIsMeasuredBeforeTheRunAndRecorded) {
  Split split(1);
  split.start_server(0);
  const Proxy proxy(split.port(0), std::chrono::milliseconds(50));
  const Arguments more = {"--tls", split.file("tls"), "--schedule", "1f1b", "--in-flight", "auto"};
  Process client(client_of(split, proxy.address(), more), split.file("client.log"));
  ASSERT_EQ(client.wait(120), 0) << client.log();
  EXPECT_NE(client.log().find("measured: round trip 1"), std::string::npos) << client.log();  // 100 ms and a little
  const std::string config = file_bytes(split.file("run/config.toml"));
  EXPECT_NE(config.find("in-flight = \"2\""), std::string::npos) << config;  // all there are: 50 ms are long for a small network
  EXPECT_NE(config.find("schedule-costs = \"forward="), std::string::npos) << config;
  EXPECT_TRUE(testing::holds_no_sessions(split.file("server-0"))) << "what was measured leaves nothing behind";
  EXPECT_TRUE(ended_with(split.file("run"), weights_without_server(split, kLinkRun)));
}

// Nor does it matter in how many stages, where they are, and in which order they run.
TEST(Link, AFarServerEqualsOneStageBitForBitInEveryOrder) {
  const Arguments exact = {"--model", "cnn", "--chunks", "4", "--batch", "32", "--seed", "5", "--momentum", "0.9", "--max-steps", "6"};
  Split split(1);
  split.start_server(0);
  const Proxy proxy(split.port(0), std::chrono::milliseconds(20));
  const std::string one_stage = weights_of_one_process(split, "", exact);
  const std::string one_stage_late = weights_of_one_process(split, "", exact + Arguments{"--delay", "1"});
  EXPECT_NE(one_stage, one_stage_late);
  const std::vector<std::pair<Arguments, std::string>> orders = {{{"--schedule", "gpipe"}, one_stage},
                                                                 {{"--schedule", "gpipe", "--in-flight", "auto"}, one_stage},
                                                                 {{"--schedule", "1f1b"}, one_stage},
                                                                 {{"--schedule", "1f1b", "--in-flight", "auto"}, one_stage},
                                                                 {{"--delay", "1"}, one_stage_late}};
  for (std::size_t i = 0; i < orders.size(); ++i) {
    const auto& [order, expected] = orders[i];
    const std::string run_dir = split.file("run-" + std::to_string(i));
    const Arguments cut = {"train", "--connect", proxy.address(), "--tls", split.file("tls"), "--run-dir", run_dir, "--place", "0,1,0"};
    Process client(cut + exact + order, run_dir + ".log");
    ASSERT_EQ(client.wait(120), 0) << client.log();
    EXPECT_TRUE(ended_with(run_dir, expected)) << testing::joined(order);
  }
}

class LinkFault : public ::testing::TestWithParam<Arguments> {};
INSTANTIATE_TEST_SUITE_P(Steps, LinkFault, ::testing::Values(Arguments{}, Arguments{"--delay", "1"}),
                         [](const auto& its) { return its.param.empty() ? "AtOnce" : "OneStepLate"; });

TEST_P(LinkFault, AStalledLinkIsNoticedAndTheStepDoneAgain) {
  Split split(1);
  split.start_server(0, {"--timeout", "2"});
  Proxy proxy(split.port(0));
  Process client(client_of(split, proxy.address(), Arguments{"--tls", split.file("tls"), "--timeout", "2"} + GetParam()),
                 split.file("client.log"));
  ASSERT_TRUE(carries(proxy, 600'000)) << client.log();  // weights and a step
  proxy.stall();
  ASSERT_EQ(client.wait(60), 0) << client.log() << split.server(0).log();
  EXPECT_NE(client.log().find("connecting again"), std::string::npos) << client.log();
  EXPECT_GE(proxy.connections(), 2);
  EXPECT_TRUE(ended_with(split.file("run"), weights_without_server(split, kLinkRun + GetParam())));
}

TEST(Link, ALinkThatStaysStalledEndsTheRunWithTheReason) {
  Split split(1);
  split.start_server(0, {"--timeout", "2"});
  Proxy proxy(split.port(0));
  Process client(client_of(split, proxy.address(), {"--tls", split.file("tls"), "--timeout", "2", "--reconnect", "3"}),
                 split.file("client.log"));
  ASSERT_TRUE(carries(proxy, 600'000)) << client.log();
  proxy.stall_forever();
  ASSERT_EQ(client.wait(90), 1) << client.log();
  EXPECT_NE(client.log().find("gave up after"), std::string::npos) << client.log();
  EXPECT_NE(client.log().find("continues with: "), std::string::npos) << client.log();
  EXPECT_NE(client.log().find("train --resume --run-dir " + split.file("run") + " --tls " + split.file("tls")), std::string::npos)
      << client.log();
}

TEST_P(LinkFault, ADamagedByteEndsWithTheReasonOrTheStepIsDoneAgain) {
  for (const std::int64_t position : {2'000, 20'000, 60'011}) {
    Split split(1);
    const std::string address = split.address(0);
    Process server({"serve", "--listen", address, "--insecure", "--state-dir", split.file("state"), "--timeout", "5"},
                   split.file("server.log"));
    ASSERT_TRUE(server.says("listening", 30)) << server.log();
    Proxy proxy(split.port(0));
    const Arguments arguments = client_of(split, proxy.address(), Arguments{"--insecure", "--timeout", "5"} + GetParam());
    Process client(arguments, split.file("client.log"));
    ASSERT_TRUE(carries(proxy, 600'000)) << client.log();
    proxy.flip_after(position);
    const auto code = client.wait(90);
    ASSERT_TRUE(code) << "hangs: " << client.log();
    if (*code != 0) {
      EXPECT_EQ(*code, 1) << client.log();
      EXPECT_NE(client.log().find("epipe: "), std::string::npos) << client.log();
      Process again(arguments + Arguments{"--resume"}, split.file("again.log"));
      ASSERT_EQ(again.wait(90), 0) << again.log();
    }
    EXPECT_TRUE(ended_with(split.file("run"), weights_without_server(split, kLinkRun + GetParam()))) << position;
  }
}

}  // namespace
}  // namespace epipe::serve
