#include <gtest/gtest.h>

#include "epipe/codec/codec.h"

namespace epipe::codec {
namespace {

std::string canonical(std::string_view spec) {
  const auto codec = make_codec(spec);
  return codec ? codec.value()->spec() : "error";
}

// The column of the mark under the wrong character.
std::size_t mark(std::string_view spec) {
  const auto codec = make_codec(spec);
  EXPECT_FALSE(codec.ok()) << spec;
  if (codec.ok()) return std::string::npos;
  EXPECT_EQ(codec.error().code, ErrorCode::kBadSpec);
  const std::string& message = codec.error().message;
  return message.size() - message.rfind('\n') - 1 - std::string("  ^").size();
}

TEST(Spec, GivesItselfBack) {
  for (const std::string spec : {"none",
                                 "fp16",
                                 "bf16",
                                 "uniform:1",
                                 "uniform:16",
                                 "sort:6+2",
                                 "sort:1+0",
                                 "sort:1+15",
                                 "fast:12+4",
                                 "kmeans:4",
                                 "topk:0.1",
                                 "topk:1",
                                 "topk:0.001",
                                 "topk:1e-05",
                                 "lowrank:12",
                                 "power:4",
                                 "power:4>uniform:8",
                                 "lowrank:12>fp16",
                                 "topk:0.1>uniform:8",
                                 "power:4>topk:0.5>sort:3+1",
                                 "ec:4",
                                 "ec:0.5",
                                 "dct:0.125",
                                 "auto:16",
                                 "ec@0.01",
                                 "dct@1e-06",
                                 "auto@0.5",
                                 "auto",
                                 "topk:0.1>ec:2",
                                 "power:4>ec:4"}) {
    EXPECT_EQ(canonical(spec), spec);
  }
}

TEST(Spec, OfARateToBeSetStandsAlone) {
  EXPECT_EQ(mark("topk:0.1>auto"), 13U);
  EXPECT_EQ(mark("auto>none"), 4U);
  EXPECT_EQ(target_rate("auto"), 0.0);
  EXPECT_EQ(target_rate("dct:0.5"), 0.5);
  EXPECT_EQ(target_rate("ec:2"), 2.0);
  EXPECT_EQ(target_rate("auto:1.5"), 1.5);
  for (const char* const other : {"none", "auto@0.1", "sort:6+2", "topk:0.1>ec:2", "ec:", "ec:2x", "conv:20x3>auto"}) {
    EXPECT_FALSE(target_rate(other)) << other;
  }
}

TEST(Spec, LeavesOutWhatIsTheDefault) {
  EXPECT_EQ(canonical("topk:0.10"), "topk:0.1");
  EXPECT_EQ(canonical("topk:0.00001"), "topk:1e-05");
  EXPECT_EQ(canonical("topk:0.1>none"), "topk:0.1");
  EXPECT_EQ(canonical("power:4>none"), "power:4");
}

TEST(Spec, AcceptsEverySplitOfUpToSixteenBits) {
  for (int q = 1; q <= 16; ++q) {
    for (int s = 0; q + s <= 16; ++s) {
      const std::string spec = "sort:" + std::to_string(q) + "+" + std::to_string(s);
      EXPECT_EQ(canonical(spec), spec);
    }
  }
}

TEST(Spec, ErrorsPointAtTheWrongCharacter) {
  EXPECT_EQ(mark(""), 0U);
  EXPECT_EQ(mark("srt:6+2"), 0U);
  EXPECT_EQ(mark("uniform"), 7U);
  EXPECT_EQ(mark("uniform:"), 8U);
  EXPECT_EQ(mark("uniform:0"), 8U);
  EXPECT_EQ(mark("uniform:17"), 8U);
  EXPECT_EQ(mark("uniform:8x"), 9U);
  EXPECT_EQ(mark("uniform:-1"), 8U);
  EXPECT_EQ(mark("uniform:99999999999999999999"), 8U);
  EXPECT_EQ(mark("sort:6"), 6U);
  EXPECT_EQ(mark("sort:6+"), 7U);
  EXPECT_EQ(mark("sort:0+2"), 5U);
  EXPECT_EQ(mark("sort:9+8"), 5U);
  EXPECT_EQ(mark("topk:0"), 5U);
  EXPECT_EQ(mark("topk:1.5"), 5U);
  EXPECT_EQ(mark("topk:nan"), 5U);
  EXPECT_EQ(mark("topk:1e-400"), 5U);
  EXPECT_EQ(mark("power:0"), 6U);
  EXPECT_EQ(mark("lowrank:65536"), 8U);
  EXPECT_EQ(mark("power:4>"), 8U);
  EXPECT_EQ(mark("power:4>unifrm:8"), 8U);
  EXPECT_EQ(mark("power:4 >uniform:8"), 7U);
  EXPECT_EQ(mark("uniform:8>fp16"), 9U);
  EXPECT_EQ(mark("ec"), 2U);
  EXPECT_EQ(mark("ec:"), 3U);
  EXPECT_EQ(mark("ec:0"), 3U);
  EXPECT_EQ(mark("dct:17"), 4U);
  EXPECT_EQ(mark("dct@0"), 4U);
  EXPECT_EQ(mark("auto@0.6"), 5U);
  EXPECT_EQ(mark("dct:inf"), 4U);
  EXPECT_EQ(mark("dct:nan"), 4U);
  EXPECT_EQ(mark("dct:1x"), 5U);
  EXPECT_EQ(mark("dct:1>fp16"), 5U);
  EXPECT_EQ(mark("none none"), 4U);
  EXPECT_EQ(mark(" none"), 0U);
}

TEST(Spec, AChainHasAnEnd) {
  EXPECT_EQ(canonical("topk:1>topk:1>topk:1>fp16"), "topk:1>topk:1>topk:1>fp16");
  EXPECT_EQ(mark("topk:1>topk:1>topk:1>topk:1>fp16"), 28U);
}

TEST(Spec, BytesThatAreNotTextDoNotReachTheTerminal) {
  const auto codec = make_codec("no\x1b[31mne");
  ASSERT_FALSE(codec.ok());
  EXPECT_EQ(codec.error().message.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace epipe::codec
