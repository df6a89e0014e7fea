#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <thread>

#include "epipe/base/file.h"
#include "epipe/transport/group_config.h"
#include "support/process.h"
#include "support/program.h"
#include "support/temp_folder.h"

namespace epipe::testing {

using Arguments = std::vector<std::string>;

inline Arguments operator+(Arguments left, const Arguments& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

inline std::string file_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The sessions that a server's state folder holds.
inline std::vector<std::string> sessions_in(const std::string& state_dir) {
  auto names = list_folder(state_dir);
  std::erase(names, "admin");
  return names;
}

// Whether it holds none, now or soon: a server clears up after its client has left.
inline bool holds_no_sessions(const std::string& state_dir) {
  for (int tries = 0; tries < 100 && !sessions_in(state_dir).empty(); ++tries) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return sessions_in(state_dir).empty();
}

// Whether a run ended with these weights, byte by byte; not printed, because they are long.
inline bool ended_with(const std::string& run_dir, const std::string& weights) {
  return !weights.empty() && file_bytes(run_dir + "/model.safetensors") == weights;
}

// Servers and a client on this machine, under TLS, in a folder of their own.
class Split {
 public:
  explicit Split(int servers) {
    const auto made = run_program("serve --init-tls " + folder_.file("tls"));
    if (made.code != 0) throw std::runtime_error(made.output);
    for (int s = 0; s < servers; ++s) ports_.push_back(transport::free_port());
    servers_.resize(static_cast<std::size_t>(servers));
  }

  std::string file(const std::string& name) const { return folder_.file(name); }
  int port(int server) const { return ports_[static_cast<std::size_t>(server)]; }
  std::string address(int server) const { return "127.0.0.1:" + std::to_string(port(server)); }
  std::string addresses() const {
    std::string all;
    for (std::size_t s = 0; s < ports_.size(); ++s) {
      if (s > 0) all += ',';
      all += address(static_cast<int>(s));
    }
    return all;
  }

  // Starts a server, for the first time or again, with the same state.
  void start_server(int server, const Arguments& more = {}) { start_server_with_peers(server, addresses(), more); }
  void start_server_with_peers(int server, const std::string& peers, const Arguments& more = {}) {
    const std::string name = "server-" + std::to_string(server);
    const std::string log = file(name + "-" + std::to_string(starts_++) + ".log");
    auto& slot = servers_[static_cast<std::size_t>(server)];
    slot = nullptr;
    slot = std::make_unique<Process>(
        Arguments{"serve", "--listen", address(server), "--tls", file("tls"), "--state-dir", file(name), "--peers", peers} + more, log);
    ASSERT_TRUE(slot->says("listening", 30)) << slot->log();
  }
  Process& server(int server) { return *servers_[static_cast<std::size_t>(server)]; }

  std::unique_ptr<Process> start_client(const std::string& run_dir, const Arguments& more) {
    return std::make_unique<Process>(
        Arguments{"train", "--connect", addresses(), "--tls", file("tls"), "--run-dir", run_dir, "--timeout", "10"} + more,
        run_dir + ".log");
  }

 private:
  TempFolder folder_;
  std::vector<int> ports_;
  std::vector<std::unique_ptr<Process>> servers_;
  int starts_ = 0;
};

inline const Arguments kRun = {"--chunks", "2", "--batch", "32", "--seed", "3", "--momentum", "0.9", "--clip", "1", "--epochs", "50"};

inline std::string joined(const Arguments& arguments) {
  std::string text;
  for (const auto& argument : arguments) text += argument + " ";
  return text;
}

// The weights of the same run in one process.
inline std::string expected_weights(const Split& split, const std::string& place, const Arguments& arguments) {
  const std::string run_dir = split.file("one-" + std::to_string(std::hash<std::string>{}(place + joined(arguments))));
  const auto one = run_program("train --place " + place + " --run-dir " + run_dir + " " + joined(arguments));
  EXPECT_EQ(one.code, 0) << one.output;
  return file_bytes(run_dir + "/model.safetensors");
}

}  // namespace epipe::testing
