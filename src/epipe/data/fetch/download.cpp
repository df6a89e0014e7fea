#include "epipe/data/fetch/download.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

extern char** environ;

namespace epipe::data {
namespace {

// Returns the exit code; -1 if it was killed.
Result<int> run_program(const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t child = 0;
  if (const int error = ::posix_spawnp(&child, argv[0], nullptr, nullptr, argv.data(), environ); error != 0) {
    return Error{ErrorCode::kIo, fmt::format("cannot start {}: {}; install it", arguments[0], std::strerror(error))};
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return Error{ErrorCode::kIo, fmt::format("cannot wait for {}: {}", arguments[0], std::strerror(errno))};
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

Result<void> download(const std::string& url, const std::string& path) {
  std::vector<std::string> arguments = {"curl",         "--fail",
                                        "--location",   "--proto",
                                        "=https",       "--connect-timeout",
                                        "15",           "--speed-limit",
                                        "1000",         "--speed-time",
                                        "60",           "--max-filesize",
                                        "1000000000",   "--output",
                                        path,           isatty(STDERR_FILENO) != 0 ? "--progress-bar" : "--silent",
                                        "--show-error", url};
  const auto code = run_program(arguments);
  if (!code) return code.error();
  if (code.value() == 0) return {};
  ::unlink(path.c_str());
  return Error{ErrorCode::kIo, fmt::format("curl could not fetch {} (exit code {})", url, code.value())};
}

}  // namespace epipe::data
