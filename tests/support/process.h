#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace epipe::testing {

// The program in the background, its output in a file. Killed with the object.
class Process {
 public:
  // `before` is put before the program: "nsenter", ...
  Process(const std::vector<std::string>& arguments, std::string log, const std::vector<std::string>& before = {}) : log_(std::move(log)) {
    const char* const program = std::getenv("EPIPE_PROGRAM");
    if (program == nullptr) throw std::runtime_error("EPIPE_PROGRAM is not set; run this test through ctest");
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("cannot fork");
    if (pid_ > 0) return;
    const int out = ::open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    std::vector<char*> argv;
    for (const std::string& word : before) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(const_cast<char*>(program));
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  ~Process() {
    if (running()) signal(SIGKILL);
    wait(10);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }
  bool running() {
    poll();
    return !code_;
  }
  // The exit code, 128 + signal for one that was killed, or nothing when it still runs after so many seconds.
  std::optional<int> wait(double seconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (running() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return code_;
  }
  std::string log() const {
    std::ifstream file(log_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Whether the text appears in the log within so many seconds.
  bool says(const std::string& text, double seconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (std::chrono::steady_clock::now() < end) {
      if (log().find(text) != std::string::npos) return true;
      if (!running()) return log().find(text) != std::string::npos;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

 private:
  void poll() {
    int status = 0;
    if (code_ || ::waitpid(pid_, &status, WNOHANG) != pid_) return;
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  std::string log_;
  pid_t pid_ = 0;
  std::optional<int> code_;
};

}  // namespace epipe::testing
