#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace epipe::testing {

struct Outcome {
  int code = -1;
  std::string output;  // stdout and stderr
};

// Runs the program in `folder` through a shell, as a user would. CTest says where the program is.
inline Outcome run_program(const std::string& arguments, const std::string& folder = ".") {
  const char* const program = std::getenv("EPIPE_PROGRAM");
  if (program == nullptr) throw std::runtime_error("EPIPE_PROGRAM is not set; run this test through ctest");
  FILE* const pipe = ::popen(("cd '" + folder + "' && " + program + " " + arguments + " 2>&1").c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot start a shell");
  Outcome outcome;
  std::array<char, 4096> buffer;
  for (std::size_t got = 0; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) outcome.output.append(buffer.data(), got);
  const int status = ::pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

}  // namespace epipe::testing
