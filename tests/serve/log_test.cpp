#include "epipe/serve/log.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace epipe::serve {
namespace {

TEST(Log, IsOnePrintableLineWhateverAClientChose) {
  ::testing::internal::CaptureStderr();
  log("refused {}", "client\n2026-01-01 00:00:00 session 12345678 has ended\x1b[2J" + std::string(1'000'000, 'x'));
  const std::string line = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  EXPECT_EQ(line.find('\x1b'), std::string::npos);
  EXPECT_LT(line.size(), 3000U);
  EXPECT_NE(line.find("refused client?2026"), std::string::npos) << line;
}

}  // namespace
}  // namespace epipe::serve
