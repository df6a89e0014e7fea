#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

extern char** environ;

namespace epipe::testing {

// This test program once more, as a process of its own, with some environment variables set; killed at the end if it is still there.
class Child {
 public:
  explicit Child(const std::map<std::string, std::string>& variables) {
    std::vector<std::string> texts;
    for (char** entry = environ; *entry != nullptr; ++entry) texts.emplace_back(*entry);
    for (const auto& [name, value] : variables) texts.push_back(name + "=" + value);
    std::vector<char*> environment;
    for (auto& text : texts) environment.push_back(text.data());
    environment.push_back(nullptr);
    std::string self = "/proc/self/exe";
    char* const arguments[] = {self.data(), nullptr};
    if (::posix_spawn(&pid_, self.c_str(), nullptr, nullptr, arguments, environment.data()) != 0)
      throw std::runtime_error("cannot start a process");
  }
  ~Child() {
    if (pid_ <= 0) return;
    signal(SIGKILL);
    wait();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void signal(int number) const { ::kill(pid_, number); }
  // Its exit code, or minus the signal that ended it.
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
};

}  // namespace epipe::testing
