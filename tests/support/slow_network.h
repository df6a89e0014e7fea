#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace epipe::testing {

// Two network namespaces, 10.77.0.1 and 10.77.0.2, joined by a link whose rate a token bucket limits each way. Needs root, iproute2 and
// a kernel that permits it; throws std::runtime_error with the reason where one is missing.
class SlowNetwork {
 public:
  explicit SlowNetwork(const std::string& rate) {
    for (pid_t& holder : holders_) holder = hold();
    for (pid_t& holder : holders_) wait_for_namespace(holder);
    inside(0, "ip link add wire0 type veth peer name wire1 netns " + std::to_string(holders_[1]));
    for (int side = 0; side < 2; ++side) {
      const std::string wire = "wire" + std::to_string(side);
      inside(side, "ip link set lo up");
      inside(side, "ip address add 10.77.0." + std::to_string(side + 1) + "/24 dev " + wire);
      inside(side, "ip link set " + wire + " up");
    }
    set_rate(rate);
  }
  ~SlowNetwork() { stop(); }
  SlowNetwork(const SlowNetwork&) = delete;
  SlowNetwork& operator=(const SlowNetwork&) = delete;

  // From now on, both ways: "5mbit".
  void set_rate(const std::string& rate) {
    for (int side = 0; side < 2; ++side) {
      inside(side, "tc qdisc replace dev wire" + std::to_string(side) + " root tbf rate " + rate + " burst 16kb latency 50ms");
    }
  }
  // What to put before a command to run it on a side.
  std::vector<std::string> enter(int side) const {
    return {"nsenter", "--net=/proc/" + std::to_string(holders_[static_cast<std::size_t>(side)]) + "/ns/net"};
  }

 private:
  static pid_t hold() {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    ::execlp("unshare", "unshare", "--net", "sleep", "600", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  static std::string namespace_of(const std::string& process) {
    std::array<char, 64> name{};
    const ssize_t length = ::readlink(("/proc/" + process + "/ns/net").c_str(), name.data(), name.size());
    return length > 0 ? std::string(name.data(), static_cast<std::size_t>(length)) : "";
  }
  void wait_for_namespace(pid_t& pid) {
    for (int i = 0; i < 500; ++i) {
      if (::waitpid(pid, nullptr, WNOHANG) != 0) {
        pid = 0;
        fail("network namespaces are not permitted");
      }
      const std::string own = namespace_of(std::to_string(pid));
      if (!own.empty() && own != namespace_of("self")) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    fail("no network namespace was made");
  }
  void inside(int side, const std::string& command) {
    const auto words = enter(side);
    if (std::system((words[0] + " " + words[1] + " " + command + " 2> /dev/null").c_str()) != 0) fail(command + " does not work");
  }
  [[noreturn]] void fail(const std::string& why) {
    stop();
    throw std::runtime_error(why + "; this needs root, iproute2, and a kernel with network namespaces and the tbf queue");
  }
  void stop() {
    for (pid_t& holder : holders_) {
      if (holder <= 0) continue;
      ::kill(holder, SIGKILL);
      ::waitpid(holder, nullptr, 0);
      holder = 0;
    }
  }

  std::array<pid_t, 2> holders_{};
};

}  // namespace epipe::testing
