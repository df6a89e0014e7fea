// What a server keeps of a session on its disk: for whom, how much, and what happens when it is damaged.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "epipe/base/file.h"
#include "epipe/session/checkpoint.h"
#include "serve/split.h"

namespace epipe::serve {
namespace {

using testing::Arguments;
using testing::ended_with;
using testing::expected_weights;
using testing::file_bytes;
using testing::kRun;
using testing::Split;
using testing::operator+;

// A run whose server was ended in the middle of it: the client has left, the checkpoints are with both.
class ServerState : public ::testing::Test {
 protected:
  void SetUp() override {
    const mode_t before = ::umask(0);  // that of a user who protects nothing
    split_.start_server(0);
    auto client = split_.start_client(run_dir_, kArguments);
    ::umask(before);
    for (int i = 0; i < 6000 && Checkpoints(run_dir_ + "/checkpoints").steps().size() < 2; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    split_.server(0).signal(SIGTERM);
    ASSERT_EQ(client->wait(120), 0) << client->log();
    ASSERT_EQ(split_.server(0).wait(60), 0) << split_.server(0).log();
    const auto sessions = testing::sessions_in(split_.file("server-0"));
    ASSERT_EQ(sessions.size(), 1U);
    session_ = split_.file("server-0/") + sessions[0];
  }
  std::unique_ptr<testing::Process> resume(const std::string& run_dir) {
    return split_.start_client(run_dir, kArguments + Arguments{"--resume", "--reconnect", "5"});
  }

  using Checkpoints = session::Checkpoints;
  const Arguments kArguments = kRun + Arguments{"--max-steps", "300", "--codec", "power:2", "--checkpoint-every", "5"};
  Split split_{1};
  std::string run_dir_ = split_.file("a");
  std::string session_;  // its folder
};

void expect_private(const std::string& path) {
  struct stat status {};
  ASSERT_EQ(::lstat(path.c_str(), &status), 0) << path;
  EXPECT_EQ(status.st_mode & 0777U, S_ISDIR(status.st_mode) ? 0700U : 0600U) << path;
  if (!S_ISDIR(status.st_mode)) return;
  for (const std::string& name : list_folder(path)) expect_private(path + "/" + name);
}

TEST_F(ServerState, IsForTheUsersOfServerAndClientAlone) {
  expect_private(split_.file("server-0"));
  expect_private(run_dir_);
}

TEST_F(ServerState, ADamagedNewestCheckpointCostsOnlyItsSteps) {
  const auto steps = Checkpoints(session_ + "/checkpoints").steps();
  ASSERT_EQ(steps.size(), 2U);
  const std::string newest = fmt::format("{}/checkpoints/step-{:09}/model.safetensors", session_, steps[1]);
  std::fstream(newest, std::ios::in | std::ios::out | std::ios::binary).seekp(200).put('\x7f').put('\x01');
  split_.start_server(0);
  const auto client = resume(run_dir_);
  ASSERT_EQ(client->wait(120), 0) << client->log();
  const std::string note = fmt::format("damaged checkpoints: of step {} with worker 1 at {}; going on from step {}, the newest that all",
                                       steps[1], split_.address(0), steps[0]);
  EXPECT_NE(client->log().find(note), std::string::npos) << client->log();
  EXPECT_TRUE(ended_with(run_dir_, expected_weights(split_, "0,1,0", kArguments)));
}

// The stranger knows the session's name and has a ticket of its own. Before, it was welcome and got the owner's weights.
TEST_F(ServerState, ADamagedTicketLetsNobodyIn) {
  const std::string damaged = file_bytes(session_ + "/ticket") + "\n";
  std::ofstream(session_ + "/ticket") << damaged;
  const std::string stranger = split_.file("stranger");
  ASSERT_EQ(std::system(("cp -r " + run_dir_ + " " + stranger).c_str()), 0);
  auto key = nlohmann::json::parse(file_bytes(run_dir_ + "/session.json"));
  key["ticket"] = std::string(64, '7');
  std::ofstream(stranger + "/session.json") << key.dump();
  split_.start_server(0);
  for (const std::string& run_dir : {stranger, run_dir_}) {
    const auto client = resume(run_dir);
    EXPECT_EQ(client->wait(60), 1) << client->log();
    EXPECT_NE(client->log().find("not your session"), std::string::npos) << client->log();
  }
  EXPECT_EQ(file_bytes(session_ + "/ticket"), damaged) << "nobody's ticket took its place";
  EXPECT_TRUE(split_.server(0).says("is refused to everybody, its ticket cannot be checked", 10)) << split_.server(0).log();
}

TEST_F(ServerState, GoesWhenItIsBeyondTheQuotaAndTheClientIsToldSo) {
  split_.start_server(0, {"--state-quota", "0.000001"});
  EXPECT_TRUE(split_.server(0).says("to stay within the 0.000 GB of --state-quota", 10)) << split_.server(0).log();
  EXPECT_TRUE(testing::sessions_in(split_.file("server-0")).empty());
  const auto client = resume(run_dir_);
  EXPECT_EQ(client->wait(60), 1) << client->log();
  EXPECT_NE(client->log().find("cannot resume: no checkpoint is with all processes"), std::string::npos) << client->log();
  const auto second = split_.start_client(split_.file("b"), kArguments);
  EXPECT_EQ(second->wait(60), 1) << second->log();
  EXPECT_NE(second->log().find("--state-quota of the server limits it"), std::string::npos) << second->log();
}

}  // namespace
}  // namespace epipe::serve
