// The bytes of every payload for one small tensor. They change only with the wire format's version.
#include <gtest/gtest.h>

#include "support/codecs.h"

namespace epipe::codec {
namespace {

using namespace epipe::testing;

std::string hex(ByteView bytes) {
  std::string text;
  for (const std::byte b : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(b));
  return text;
}

struct Golden {
  const char* spec;
  const char* payload;
};

class GoldenPayload : public ::testing::TestWithParam<Golden> {};

// Small numbers, so that the bytes below can be checked by hand; they were made by a script that follows docs/wire_format.md.
const std::vector<float> kValues = {0, 1, -1, 2, 0.5, -2, 3, 0};

INSTANTIATE_TEST_SUITE_P(
    Codecs, GoldenPayload,
    ::testing::Values(Golden{"none", "000000000000803f000080bf000000400000003f000000c00000404000000000"},
                      Golden{"fp16", "0000003c00bc0040003800c000420000"}, Golden{"bf16", "0000803f80bf0040003f00c040400000"},
                      Golden{"uniform:4", "000000c0abaaaa3e96c3086f"}, Golden{"uniform:3", "000000c06edb363f634c7c"},
                      Golden{"uniform:11", "000000c00314203b33636666ccfc3f00fc7f66"},
                      Golden{"sort:3+1", "000000c02549923e0000003f6edbb63e97c3087f"},
                      Golden{"sort:6+2", "000000c02108823c00000000000000000000003f2108023c000000402108823c40bf3fc08000ff40"},
                      Golden{"fast:3+1", "000000c06edbb63e0000003f6edbb63e96c3086f"},
                      Golden{"kmeans:3", "07000000000000c0000080bf000000000000003f0000803f0000004000004040623a58"},
                      Golden{"topk:0.25", "000200000000000000330000004000004040"},
                      Golden{"topk:0.5", "0104000000000000006a0000803f00000040000000c000004040"},
                      Golden{"topk:0.5>uniform:3", "0104000000000000006a000000c06edb363f340e"}));

TEST_P(GoldenPayload, HasTheseBytes) {
  EXPECT_EQ(hex(payload_of(*codec_of(GetParam().spec), tensor_of(kValues))), GetParam().payload) << GetParam().spec;
}

}  // namespace
}  // namespace epipe::codec
