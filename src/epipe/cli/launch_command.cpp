// epipe launch: the ranks of a cluster on this machine
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "epipe/base/clock.h"
#include "epipe/cli/command.h"
#include "epipe/cli/resume.h"
#include "epipe/transport/group_config.h"

namespace epipe::cli {
namespace {

std::atomic<int> g_signal = 0;  // the last one, for the ranks; the only state the handler may touch

void on_launch_signal(int signal) { g_signal = signal; }

constexpr double kSettling = 0.5;  // seconds for the other ranks to end on their own

struct LaunchFlags {
  int ranks = 2;
  int restarts = 0;
  double grace = 10;  // seconds between asking a rank to end and killing it
  std::vector<std::string> command;
};

// A running rank, and the part of its current line printed so far.
struct Rank {
  pid_t pid = 0;
  int output = -1;  // read end of its stdout and stderr; negative once they are closed
  std::string line;
  bool ended = false;
  int status = 0;
};

// Prints whole lines under the rank's number.
void print_lines(Rank& rank, int index, std::string_view text) {
  for (const char c : text) {
    if (c != '\n') {
      rank.line += c;
      continue;
    }
    fmt::print("[{}] {}\n", index, rank.line);
    rank.line.clear();
  }
  std::fflush(stdout);
}

class Launch {
 public:
  explicit Launch(LaunchFlags flags) : flags_(std::move(flags)) {}

  // The exit code of the first rank that failed, or 0. Wrong usage takes precedence: ranks that lose a wrongly used rank may end before it
  // does.
  int run(bool again) {
    const int port = transport::free_port();
    for (int r = 0; r < flags_.ranks; ++r) ranks_.push_back(start(r, port, again));
    while (alive() > 0) {
      pass_signals();
      read_output();
      reap();
      if (first_failure_ != 0 && !stopping_ && since_failure_.seconds() > kSettling) stop(SIGTERM);
      if (stopping_ && since_stop_.seconds() > flags_.grace) stop(SIGKILL);
    }
    while (read_output()) continue;
    for (int r = 0; r < flags_.ranks; ++r) {
      Rank& rank = ranks_[static_cast<std::size_t>(r)];
      if (!rank.line.empty()) print_lines(rank, r, "\n");
      if (rank.output >= 0) ::close(rank.output);  // a process of the rank still has the other end
    }
    return first_failure_;
  }
  bool interrupted() const { return interrupted_; }

 private:
  Rank start(int index, int port, bool again) const {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw Failure("cannot make a pipe");
    const std::vector<std::string> environment = {
        fmt::format("RANK={}", index), fmt::format("LOCAL_RANK={}", index), fmt::format("WORLD_SIZE={}", flags_.ranks),
        "MASTER_ADDR=127.0.0.1",       fmt::format("MASTER_PORT={}", port), fmt::format("{}={}", kLaunch, as_typed())};
    Rank rank;
    rank.output = ends[0];
    rank.pid = ::fork();
    if (rank.pid < 0) throw Failure("cannot start a rank");
    if (rank.pid > 0) {
      ::close(ends[1]);
      return rank;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::setpgid(0, 0);  // a terminal's Ctrl-C comes through the launcher
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    for (const std::string& variable : environment) ::putenv(::strdup(variable.c_str()));
    if (again) ::putenv(::strdup(fmt::format("{}=1", kRestarted).c_str()));
    std::vector<char*> arguments = {::strdup("epipe")};
    for (const std::string& word : flags_.command) arguments.push_back(::strdup(word.c_str()));
    arguments.push_back(nullptr);
    ::execv("/proc/self/exe", arguments.data());
    ::_exit(127);
  }

  // "epipe launch -n 2 --restarts 3 --"
  std::string as_typed() const {
    const std::string restarts = flags_.restarts > 0 ? fmt::format(" --restarts {}", flags_.restarts) : "";
    return fmt::format("{} launch -n {}{} --", shell_word(program_invocation_name), flags_.ranks, restarts);
  }

  int alive() const {
    int count = 0;
    for (const Rank& rank : ranks_) count += rank.ended ? 0 : 1;
    return count;
  }

  // Rank 0 saves and ends the others.
  void pass_signals() {
    const int signal = g_signal.exchange(0);
    if (signal == 0) return;
    interrupted_ = true;
    if (!ranks_[0].ended) ::kill(ranks_[0].pid, signal);
  }

  // Waits briefly for output; returns whether there was some.
  bool read_output() {
    std::vector<pollfd> files;
    for (const Rank& rank : ranks_) files.push_back({rank.output, POLLIN, 0});
    ::poll(files.data(), files.size(), 100);
    bool some = false;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (files[r].revents != 0) some = read_some(ranks_[r], static_cast<int>(r)) || some;
    }
    return some;
  }

  static bool read_some(Rank& rank, int index) {
    std::array<char, 4096> buffer{};
    const ssize_t got = ::read(rank.output, buffer.data(), buffer.size());
    if (got > 0) {
      print_lines(rank, index, {buffer.data(), static_cast<std::size_t>(got)});
      return true;
    }
    if (got < 0 && errno == EINTR) return true;
    ::close(rank.output);
    rank.output = -1;  // poll() ignores it
    return false;
  }

  void reap() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      Rank& rank = ranks_[r];
      int status = 0;
      if (rank.ended || ::waitpid(rank.pid, &status, WNOHANG) != rank.pid) continue;
      rank.ended = true;
      const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      if (code == 0 || (first_failure_ != 0 && code != kWrongUsage) || first_failure_ == kWrongUsage) continue;
      if (first_failure_ == 0) since_failure_ = {};
      first_failure_ = code;
      fmt::print(stderr, "rank {} {}\n", r,
                 WIFEXITED(status) ? fmt::format("failed with {}", code) : fmt::format("was killed by signal {}", WTERMSIG(status)));
    }
  }

  void stop(int signal) {
    if (!stopping_) since_stop_ = {};
    stopping_ = true;
    for (const Rank& rank : ranks_) {
      if (!rank.ended) ::kill(rank.pid, signal);
    }
  }

  LaunchFlags flags_;
  std::vector<Rank> ranks_;
  int first_failure_ = 0;
  bool stopping_ = false;
  bool interrupted_ = false;
  Stopwatch since_failure_;
  Stopwatch since_stop_;
};

// Fails with the exit code of the rank that failed first.
void run_launch(const LaunchFlags& flags) {
  if (flags.command.empty()) throw UsageError("expected the command of the ranks, e.g. epipe launch -n 2 -- train --place 0,1 ...");
  struct sigaction action {};
  action.sa_handler = on_launch_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  for (int attempt = 0;; ++attempt) {
    Launch launch(flags);
    const int code = launch.run(attempt > 0);
    if (code == 0) return;
    if (attempt >= flags.restarts || launch.interrupted() || code == kWrongUsage) throw ExitCode(code);
    fmt::print(stderr, "starting all ranks again from the last common checkpoint ({} of {})\n", attempt + 1, flags.restarts);
  }
}

}  // namespace

void add_launch_command(CLI::App& app) {
  auto flags = std::make_shared<LaunchFlags>();  // owned by the callback as well
  auto* command = app.add_subcommand("launch", "Start the ranks of a cluster on this machine: epipe launch -n 4 -- train ...");
  command->add_option("-n,--ranks", flags->ranks, "Processes")->check(CLI::Range(1, 1024))->capture_default_str();
  command->add_option("--restarts", flags->restarts, "How often to restart all ranks from their last common checkpoint")
      ->check(number_from_zero())
      ->capture_default_str();
  command->add_option("--grace", flags->grace, "Seconds between asking the other ranks to end and killing them")
      ->check(number_from_zero())
      ->capture_default_str();
  command->add_option("command", flags->command, "The command of each rank, after --");
  command->callback([flags] { run_launch(*flags); });
}

}  // namespace epipe::cli
