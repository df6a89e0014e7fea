// A start that fails leaves no run folder behind.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "epipe/base/file.h"
#include "epipe/cli/command.h"
#include "epipe/cli/run_folder.h"
#include "epipe/transport/group_config.h"
#include "support/program.h"
#include "support/temp_folder.h"

namespace epipe::cli {
namespace {

using testing::TempFolder;

bool is_there(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

TEST(RunFolder, IsGoneAfterAStartThatFails) {
  const TempFolder folder;
  std::ofstream(folder.file("notes.txt")) << "no weights";
  const std::string nobody = "127.0.0.1:" + std::to_string(transport::free_port());
  for (const std::string flags :
       {"--model foo", "--data cifar10:nowhere", "--data npy:nowhere", "--weights nowhere.safetensors", "--weights notes.txt", "--cuts 99",
        "--codec dct:1", "--chunks 100", "--resume", "--devices gpu", "--tls nowhere", "--model torchscript:notes.txt", "--replicas 2",
        "--model roberta:nowhere --data glue/rte:nowhere"}) {
    const auto failed = testing::run_program("train --max-steps 1 --run-dir runs/new/a " + flags, folder.path());
    EXPECT_NE(failed.code, 0) << flags << failed.output;
    EXPECT_FALSE(is_there(folder.file("runs"))) << flags;
  }
  for (const std::string security : {"--insecure", "--tls nowhere", ""}) {
    const auto failed = testing::run_program(
        "train --max-steps 1 --reconnect 0.2 --run-dir runs/new/a --connect " + nobody + " " + security, folder.path());
    EXPECT_NE(failed.code, 0) << security << failed.output;
    EXPECT_FALSE(is_there(folder.file("runs"))) << security << failed.output;
  }
}

TEST(RunFolder, IsGoneAfterARankFoundItsPortTaken) {
  const TempFolder folder;
  const int port = transport::free_port();
  const int taken = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  ASSERT_EQ(::bind(taken, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(::listen(taken, 1), 0);
  const std::string ranks = "RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(port);
  const auto failed = testing::run_program(
      "--version > /dev/null; " + ranks + " $EPIPE_PROGRAM train --place 0,1 --timeout 2 --max-steps 1 --run-dir a", folder.path());
  EXPECT_NE(failed.code, 0) << failed.output;
  EXPECT_FALSE(is_there(folder.file("a"))) << failed.output;
  ::close(taken);
}

TEST(RunFolder, ThatWasThereBeforeIsNotTouched) {
  const TempFolder folder;
  ASSERT_EQ(::mkdir(folder.file("empty").c_str(), 0777), 0);
  ASSERT_EQ(::mkdir(folder.file("full").c_str(), 0777), 0);
  std::ofstream(folder.file("full/metrics.jsonl")) << "";
  std::ofstream(folder.file("full/config.toml")) << "[train]\n";
  for (const std::string name : {"empty", "full", "empty/new"}) {
    EXPECT_NE(testing::run_program("train --data npy:nowhere --run-dir " + name, folder.path()).code, 0);
  }
  EXPECT_TRUE(is_there(folder.file("empty")));
  EXPECT_FALSE(is_there(folder.file("empty/new")));
  auto files = list_folder(folder.file("full"));
  std::sort(files.begin(), files.end());
  EXPECT_EQ(files, (std::vector<std::string>{"config.toml", "metrics.jsonl"}));
}

TEST(RunFolder, StaysWithWhatWasTrainedOrIsSomebodyElses) {
  const TempFolder folder;
  const auto after = [&](const std::string& file, const std::string& text) {
    {
      const RunFolder run(folder.file("runs/a/"));
      EXPECT_TRUE(is_there(folder.file("runs/a")));
      std::ofstream(folder.file("runs/a/config.toml")) << "[train]\n";
      std::ofstream(folder.file("runs/a/session.json")) << "{}";
      std::ofstream(folder.file("runs/a/" + file)) << text;
    }
    auto files = list_folder(folder.file("runs/a"));
    std::sort(files.begin(), files.end());
    EXPECT_EQ(is_there(folder.file("runs")), !files.empty());
    EXPECT_TRUE(remove_tree(folder.file("runs")).ok());
    return files;
  };
  using Files = std::vector<std::string>;
  EXPECT_EQ(after("metrics.jsonl", ""), Files{});
  EXPECT_EQ(after("metrics.jsonl", "{}\n"), (Files{"config.toml", "metrics.jsonl", "session.json"})) << "a step was done";
  EXPECT_EQ(after("model.safetensors", "w"), (Files{"config.toml", "model.safetensors", "session.json"}));
  EXPECT_EQ(after("notes.txt", "mine"), Files{"notes.txt"});
}

TEST(RunFolder, ThatCannotBeMadeLeavesNothing) {
  const TempFolder folder;
  EXPECT_THROW(RunFolder(folder.file("runs/" + std::string(300, 'x'))), Failure);
  EXPECT_FALSE(is_there(folder.file("runs")));
}

}  // namespace
}  // namespace epipe::cli
