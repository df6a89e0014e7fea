#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

// Python programs as peers in parity tests. EPIPE_PYTHON names the interpreter (default: Debian's), which has its own PyTorch.
namespace epipe::testing {

inline std::string python() {
  const char* const named = std::getenv("EPIPE_PYTHON");
  return named != nullptr ? named : "/usr/bin/python3";
}

inline bool python_has(const std::string& modules) {
  return std::system((python() + " -c 'import " + modules + "' > /dev/null 2>&1").c_str()) == 0;  // NOLINT: no user input
}

// Runs tests/parity/SCRIPT; fails the test with what it printed otherwise.
inline void run_python(const std::string& script, const std::string& arguments, const std::string& log) {
  const std::string command = python() + " " + EPIPE_SOURCE_DIR + "/tests/parity/" + script + " " + arguments + " > " + log + " 2>&1";
  const int status = std::system(command.c_str());  // NOLINT: no user input
  std::ostringstream printed;
  printed << std::ifstream(log).rdbuf();
  ASSERT_EQ(status, 0) << command << "\n" << printed.str();
}

// Data and weights that are not part of the repository: EPIPE_SHARED, or the folder "shared" beside the checkout.
inline std::filesystem::path shared_folder() {
  const char* const shared = std::getenv("EPIPE_SHARED");
  return shared != nullptr ? std::filesystem::path(shared) : std::filesystem::path(EPIPE_SOURCE_DIR).parent_path() / "shared";
}

}  // namespace epipe::testing
