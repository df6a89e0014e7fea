#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string>

namespace epipe::testing {

// The folder of data and reference results that is not part of the repository: EPIPE_SHARED, or shared/ beside the checkout. Tests that
// want something from it skip where it is absent.
inline std::string shared(const std::string& path) {
  const char* const folder = std::getenv("EPIPE_SHARED");
  return (folder != nullptr ? std::string(folder) : std::string(EPIPE_SOURCE_DIR) + "/../shared") + "/" + path;
}
inline bool present(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

}  // namespace epipe::testing

#define EPIPE_SKIP_WITHOUT(path) \
  if (!epipe::testing::present(path)) GTEST_SKIP() << "no " << (path) << "; set EPIPE_SHARED"
