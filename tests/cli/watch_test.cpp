#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "epipe/transport/group_config.h"
#include "support/http_client.h"
#include "support/process.h"
#include "support/program.h"
#include "support/temp_folder.h"

namespace epipe::cli {
namespace {

using testing::http_get;
using testing::HttpConnection;
using testing::Process;
using testing::run_program;
using testing::TempFolder;

TEST(Watch, FollowsARunThatGoesOn) {
  const TempFolder folder;
  Process run({"train", "--place", "0,1,0", "--chunks", "2", "--codec", "dct:1", "--epochs", "10000", "--run-dir", folder.file("run")},
              folder.file("train.log"));
  ASSERT_TRUE(run.says("step", 60)) << run.log();
  const int port = transport::free_port();
  Process watch({"watch", folder.file("run"), "--listen", "127.0.0.1:" + std::to_string(port)}, folder.file("watch.log"));
  ASSERT_TRUE(watch.says("watching at http://127.0.0.1:" + std::to_string(port), 30)) << watch.log();
  const auto page = http_get(port, "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_NE(page.head.find("Content-Type: text/html"), std::string::npos);
  EXPECT_NE(page.body.find("<figure id=\"chart-train-loss\""), std::string::npos);
  const HttpConnection events(port);
  events.write("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const std::string loss = "\"id\":\"chart-train-loss\"";
  EXPECT_NE(events.read(loss).find("text/event-stream"), std::string::npos);
  EXPECT_NE(events.read("\"id\":\"overview\"").find("overview"), std::string::npos) << "and again, with the next steps";
  run.signal(SIGTERM);
  EXPECT_EQ(run.wait(60), 0) << run.log();
  watch.signal(SIGTERM);
  EXPECT_EQ(watch.wait(30), 0) << watch.log();
}

TEST(Watch, SaysAtTheStartWhatIsWrong) {
  const TempFolder folder;
  EXPECT_EQ(run_program("watch").code, 2);
  const auto missing = run_program("watch " + folder.file("missing"));
  EXPECT_EQ(missing.code, 1);
  EXPECT_NE(missing.output.find("does not exist"), std::string::npos) << missing.output;
  const auto empty = run_program("watch " + folder.path());
  EXPECT_EQ(empty.code, 1);
  EXPECT_NE(empty.output.find("holds no run"), std::string::npos) << empty.output;
  std::ofstream(folder.file("metrics.jsonl")) << "";
  EXPECT_EQ(run_program("watch --listen 7080 " + folder.path()).code, 2);
  const int port = transport::free_port();
  const std::string address = "127.0.0.1:" + std::to_string(port);
  Process first({"watch", folder.path(), "--listen", address}, folder.file("log"));
  ASSERT_TRUE(first.says("watching", 30)) << first.log();
  const auto taken = run_program("watch --listen " + address + " " + folder.path());
  EXPECT_EQ(taken.code, 1);
  EXPECT_NE(taken.output.find("cannot listen on " + address), std::string::npos) << taken.output;
}

}  // namespace
}  // namespace epipe::cli
