#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "epipe/transport/group_config.h"
#include "support/process.h"
#include "support/program.h"
#include "support/temp_folder.h"

namespace epipe::cli {
namespace {

using nlohmann::json;
using testing::run_program;
using testing::TempFolder;

json finding(const testing::Outcome& outcome, const std::string& name) {
  const json report = json::parse(outcome.output);
  for (const json& one : report["findings"]) {
    if (one["name"] == name) return one;
  }
  return nullptr;
}

TEST(Doctor, FindsAMachineThatTestsRunOnHealthy) {
  const auto text = run_program("doctor");
  EXPECT_EQ(text.code, 0) << text.output;
  for (const char* const name : {"CPU", "AMX", "LibTorch", "BLAS", "CUDA", "gRPC", "memory", "disk", "files", "clock"}) {
    EXPECT_NE(text.output.find(name), std::string::npos) << name;
  }
  const auto outcome = run_program("doctor --json");
  EXPECT_EQ(json::parse(outcome.output)["healthy"], true);
  EXPECT_EQ(finding(outcome, "LibTorch")["level"], "ok");
}

TEST(Doctor, SaysThatAPortIsTakenOrNone) {
  const TempFolder folder;
  const std::string address = "127.0.0.1:" + std::to_string(transport::free_port());
  EXPECT_EQ(finding(run_program("doctor --json --listen " + address), "port")["level"], "ok");
  testing::Process server({"serve", "--insecure", "--listen", address, "--state-dir", folder.file("state")}, folder.file("log"));
  ASSERT_TRUE(server.says("listening", 30)) << server.log();
  const auto taken = run_program("doctor --json --listen " + address);
  EXPECT_EQ(taken.code, 1);
  EXPECT_EQ(finding(taken, "port")["level"], "wrong");
  EXPECT_FALSE(finding(taken, "port")["do"].get<std::string>().empty());
  EXPECT_EQ(run_program("doctor --json --listen nonsense").code, 1);
}

TEST(Doctor, LooksAtTheDiskOfAFolder) {
  const auto missing = run_program("doctor --json --state-dir /no/such/folder");
  EXPECT_EQ(missing.code, 1);
  EXPECT_EQ(finding(missing, "disk")["level"], "wrong");
}

TEST(Doctor, ReadsTlsFilesAsAServerWould) {
  const TempFolder folder;
  const std::string tls = folder.file("tls");
  ASSERT_EQ(run_program("serve --init-tls " + tls).code, 0);
  const auto whole = run_program("doctor --json --tls " + tls);
  EXPECT_EQ(whole.code, 0) << whole.output;
  for (const char* const name : {"ca.pem", "server.pem", "server.key", "client.pem", "token", "TLS"}) {
    EXPECT_EQ(finding(whole, name)["level"], "ok") << name;
  }
  ASSERT_EQ(::chmod((tls + "/server.key").c_str(), 0644), 0);
  const auto readable = run_program("doctor --json --tls " + tls);
  EXPECT_EQ(readable.code, 0);
  EXPECT_EQ(finding(readable, "server.key")["level"], "warning");
  ASSERT_EQ(run_program("serve --init-tls " + folder.file("other")).code, 0);
  ASSERT_EQ(::rename(folder.file("other/server.key").c_str(), (tls + "/server.key").c_str()), 0);
  const auto mixed = run_program("doctor --json --tls " + tls);
  EXPECT_EQ(mixed.code, 1);
  EXPECT_EQ(finding(mixed, "TLS")["level"], "wrong");
  std::ofstream(tls + "/ca.pem") << "nothing\n";
  EXPECT_EQ(finding(run_program("doctor --json --tls " + tls), "ca.pem")["level"], "wrong");
  EXPECT_EQ(run_program("doctor --json --tls " + folder.file("missing")).code, 1);
}

}  // namespace
}  // namespace epipe::cli
