#include "epipe/base/printable.h"

#include <gtest/gtest.h>

namespace epipe {
namespace {

TEST(Printable, LeavesPlainTextAlone) {
  EXPECT_EQ(printable(""), "");
  EXPECT_EQ(printable("expected 3, got \"4\"; do ~this~"), "expected 3, got \"4\"; do ~this~");
}

TEST(Printable, MovesNoCursorAndBeginsNoLine) {
  EXPECT_EQ(printable("\x1b[2J\x1b]0;title\x07 done\r\nrank 1 failed"), "?[2J?]0;title? done??rank 1 failed");
  EXPECT_EQ(printable(std::string("a\0b\x7f", 4)), "a?b?");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J \xe2\x80\xae"),
            "??2J ???")
      << "C1 controls and direction marks are no ASCII";
}

TEST(Printable, IsBounded) {
  EXPECT_EQ(printable(std::string(10'000'000, 'x')).size(), kMaxShownBytes + 3);
  EXPECT_EQ(printable("abcdef", 4), "abcd...");
  EXPECT_EQ(printable("abcd", 4), "abcd");
}

}  // namespace
}  // namespace epipe
