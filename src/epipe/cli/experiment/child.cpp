#include "epipe/cli/experiment/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "epipe/cli/command.h"

namespace epipe::cli {
namespace {

// In the new process; does not return.
[[noreturn]] void become(std::vector<char*>& arguments, int output) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::setpgid(0, 0);  // a terminal's Ctrl-C comes through the parent
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::execv("/proc/self/exe", arguments.data());
  ::_exit(127);
}

}  // namespace

int run_self(const std::vector<std::string>& arguments, const std::string& log, const std::atomic<bool>& stop) {
  const int output = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (output < 0) throw Failure("cannot write " + log);
  std::vector<std::string> words = {"epipe"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) become(pointers, output);
  ::close(output);
  if (child < 0) throw Failure("cannot start a process");
  int status = 0;
  for (bool asked = false; ::waitpid(child, &status, WNOHANG) != child;) {
    if (stop && !asked) ::kill(child, SIGTERM);
    asked = stop;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace epipe::cli
