// The bytes of every payload for one small tensor. They change only with the wire format's version.
#include <gtest/gtest.h>

#include "support/codecs.h"

namespace epipe::codec {
namespace {

using namespace epipe::testing;

struct PayloadGolden {
  const char* spec;
  const char* payload;
};

class GoldenPayload : public ::testing::TestWithParam<PayloadGolden> {};

// Small numbers, so that the bytes below can be checked by hand; they were made by a script that follows docs/wire_format.md.
const std::vector<float> kGoldenValues = {0, 1, -1, 2, 0.5, -2, 3, 0};

INSTANTIATE_TEST_SUITE_P(
    Codecs, GoldenPayload,
    ::testing::Values(PayloadGolden{"none", "000000000000803f000080bf000000400000003f000000c00000404000000000"},
                      PayloadGolden{"fp16", "0000003c00bc0040003800c000420000"}, PayloadGolden{"bf16", "0000803f80bf0040003f00c040400000"},
                      PayloadGolden{"uniform:4", "000000c0abaaaa3e96c3086f"}, PayloadGolden{"uniform:3", "000000c06edb363f634c7c"},
                      PayloadGolden{"uniform:11", "000000c00314203b33636666ccfc3f00fc7f66"},
                      PayloadGolden{"sort:3+1", "000000c02549923e0000003f6edbb63e97c3087f"},
                      PayloadGolden{"sort:6+2", "000000c02108823c00000000000000000000003f2108023c000000402108823c40bf3fc08000ff40"},
                      PayloadGolden{"fast:3+1", "000000c06edbb63e0000003f6edbb63e96c3086f"},
                      PayloadGolden{"kmeans:3", "07000000000000c0000080bf000000000000003f0000803f0000004000004040623a58"},
                      PayloadGolden{"topk:0.25", "000200000000000000330000004000004040"},
                      PayloadGolden{"topk:0.5", "0104000000000000006a0000803f00000040000000c000004040"},
                      PayloadGolden{"topk:0.5>uniform:3", "0104000000000000006a000000c06edb363f340e"}));

TEST_P(GoldenPayload, HasTheseBytes) {
  EXPECT_EQ(hex(payload_of(*codec_of(GetParam().spec), tensor_of(kGoldenValues))), GetParam().payload) << GetParam().spec;
}

}  // namespace
}  // namespace epipe::codec
