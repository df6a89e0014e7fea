// TorchScript models on a server: it has the file, the client names its hash, and only weights travel.
#include <gtest/gtest.h>

#include <fstream>

#include "epipe/base/file.h"
#include "epipe/model/script_files.h"
#include "serve/split.h"
#include "support/script_modules.h"

namespace epipe::serve {
namespace {

using testing::Arguments;
using testing::file_bytes;
using testing::kRun;
using testing::Process;
using testing::run_program;
using testing::TempFolder;
using testing::operator+;

// Images [3, 16, 16] -> 10 classes, in four children.
torch::jit::Module script_net() {
  torch::manual_seed(9);
  torch::jit::Module flatten("Flatten");
  flatten.define("def forward(self, x):\n  return torch.flatten(x, 1)\n");
  torch::jit::Module net("Net");
  net.register_module("a", flatten);
  net.register_module("b", testing::script_linear(768, 16));
  net.register_module("c", testing::script_linear(16, 16));
  net.register_module("d", testing::script_linear(16, 10));
  net.define("def forward(self, x):\n  return self.d.forward(self.c.forward(self.b.forward(self.a.forward(x))))\n");
  return net;
}

class ScriptServer : public ::testing::Test {
 protected:
  ScriptServer() { script_net().save(folder_.file("net.pt")); }

  // A copy of the client's file, as its operator would put it there.
  void install(const std::string& name) const {
    ASSERT_TRUE(make_folders(folder_.file("installed")));
    std::ofstream(folder_.file("installed/" + name), std::ios::binary) << file_bytes(folder_.file("net.pt"));
  }
  // A server with what the folder holds.
  void start(const std::string& models) {
    const int port = transport::free_port();
    address_ = "127.0.0.1:" + std::to_string(port);
    server_ = std::make_unique<Process>(Arguments{"serve", "--insecure", "--listen", address_, "--state-dir", folder_.file("state")} +
                                            (models.empty() ? Arguments{} : Arguments{"--models", models}),
                                        folder_.file("server.log"));
    ASSERT_TRUE(server_->says("listening", 60)) << server_->log();
  }
  std::string arguments(const std::string& run_dir) const {
    return "train --model torchscript:" + folder_.file("net.pt") + " --cuts 2,3 --place 0,1,0 --codec power:2 --max-steps 8 --run-dir " +
           folder_.file(run_dir) + " " + testing::joined(kRun);
  }
  auto train_there(const std::string& run_dir) const {
    return run_program(arguments(run_dir) + " --insecure --reconnect 2 --connect " + address_);
  }

  TempFolder folder_;
  std::string address_;
  std::unique_ptr<Process> server_;
};

TEST_F(ScriptServer, TrainsTheClientsFileToTheSameWeights) {
  install("another-name.pt");
  start(folder_.file("installed"));
  const auto there = train_there("there");
  ASSERT_EQ(there.code, 0) << there.output << server_->log();
  ASSERT_EQ(run_program(arguments("here")).code, 0);
  EXPECT_EQ(file_bytes(folder_.file("there/model.safetensors")), file_bytes(folder_.file("here/model.safetensors")));
}

TEST_F(ScriptServer, SaysHowToInstallAFileItDoesNotHave) {
  start("");
  const auto there = train_there("there");
  EXPECT_NE(there.code, 0);
  EXPECT_NE(there.output.find("epipe serve --models DIR"), std::string::npos) << there.output;
  EXPECT_NE(there.output.find(model::script_hash(folder_.file("net.pt")).value()), std::string::npos) << there.output;
}

TEST_F(ScriptServer, RefusesAFileThatChangedAfterItsStart) {
  install("net.pt");
  start(folder_.file("installed"));
  std::ofstream(folder_.file("installed/net.pt"), std::ios::app | std::ios::binary) << "x";
  const auto there = train_there("there");
  EXPECT_NE(there.code, 0);
  EXPECT_NE(there.output.find("changed or removed"), std::string::npos) << there.output;
  EXPECT_EQ(there.output.find("installed/net.pt"), std::string::npos) << "a client is told no path";
}

}  // namespace
}  // namespace epipe::serve
