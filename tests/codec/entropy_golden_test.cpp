// The frames of the entropy codecs for two small tensors, on every instruction set. They change only with the wire format's version, or
// when the encoder decides differently: then decoding the old frames must still give the old values.
#include <gtest/gtest.h>

#include "support/codecs.h"

namespace epipe::codec {
namespace {

using namespace epipe::testing;

// FNV-1a.
std::uint64_t hash_of(ByteView bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte b : bytes) hash = (hash ^ static_cast<std::uint64_t>(b)) * 0x100000001b3;
  return hash;
}

std::uint64_t hash_of(const torch::Tensor& x) {
  return hash_of(ByteView(reinterpret_cast<const std::byte*>(x.data_ptr<float>()), x.nbytes()));
}

Bytes from_hex(std::string_view text) {
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoul(std::string(text.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

// [2,3,12,10]: a sawtooth over each map and noise, all of them multiples of 1/512, from integers alone. No map is low-rank, so power
// passes them on.
torch::Tensor small_maps() {
  auto x = torch::empty({2, 3, 12, 10});
  std::uint32_t state = 1;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const auto h = i / 10 % 12;
    const auto w = i % 10;
    const auto channel = i / 120;
    state = state * 1664525 + 1013904223;
    const auto noise = static_cast<int>(state >> 24U) - 128;
    x.data_ptr<float>()[i] = static_cast<float>(64 * ((5 * h + 3 * w + 7 * channel) % 23 - 11) + noise) / 512;
  }
  return x;
}

std::vector<const kernels::Kernels*> instruction_sets() {
  std::vector<const kernels::Kernels*> all = {&kernels::scalar()};
  for (const kernels::Kernels* k : {kernels::avx2(), kernels::avx512()}) {
    if (k != nullptr) all.push_back(k);
  }
  return all;
}

Bytes frame_of(const std::string& spec, const torch::Tensor& x, const kernels::Kernels* kernels) {
  Bytes frame;
  const auto result = encode_frame(*codec_of(spec, {nullptr, kernels}), x, {.step = 5}, {}, nullptr, frame);
  if (!result) throw std::runtime_error(result.error().text());
  return frame;
}

struct FrameGolden {
  const char* spec;
  std::size_t bytes;
  std::uint64_t frame;   // hash
  std::uint64_t values;  // hash of what it decodes to
};

class GoldenFrame : public ::testing::TestWithParam<FrameGolden> {};

INSTANTIATE_TEST_SUITE_P(Codecs, GoldenFrame,
                         ::testing::Values(FrameGolden{"ec:2", 152, 0x811721908030eaa6, 0xa889075009827105},
                                           FrameGolden{"ec@0.001", 602, 0xd701fee387ab7da8, 0xd8aa7f9f24b7c65e},
                                           FrameGolden{"dct:1", 200, 0x8525a2edc074283c, 0xfda104e3a2648550},
                                           FrameGolden{"dct:0.25", 178, 0xa71b05753e6d4861, 0x6bf6375b8816cc5f},
                                           FrameGolden{"auto:2", 236, 0x8cb2c3fe25dd6c38, 0xc479f36d2df762ad},
                                           FrameGolden{"topk:0.1>ec:2", 223, 0x79677e63f131f451, 0x60e4ab4ca0dae756},
                                           FrameGolden{"power:4>ec:4", 352, 0xb6a7d00619f66670, 0xd2fd5544271cbb39}));

TEST_P(GoldenFrame, IsTheSameOnEveryInstructionSet) {
  const auto& [spec, bytes, frame_hash, values_hash] = GetParam();
  for (const kernels::Kernels* k : instruction_sets()) {
    const Bytes frame = frame_of(spec, small_maps(), k);
    EXPECT_EQ(frame.size(), bytes) << spec << ' ' << k->name;
    EXPECT_EQ(fmt::format("{:#x}", hash_of(frame)), fmt::format("{:#x}", frame_hash)) << spec << ' ' << k->name;
    const auto y = decode_frame(frame, {}, {nullptr, k});
    ASSERT_TRUE(y.ok()) << y.error().text();
    EXPECT_EQ(fmt::format("{:#x}", hash_of(y.value())), fmt::format("{:#x}", values_hash)) << spec << ' ' << k->name;
  }
}

struct ShortGolden {
  const char* spec;
  std::vector<std::int64_t> shape;
  const char* payload;
  std::vector<float> decoded;
};

class ShortGoldenPayload : public ::testing::TestWithParam<ShortGolden> {};

const std::vector<float> kShortValues = {0, 1, -1, 2, 0.5, -2, 3, 0};

// By hand: 02 coded, 00 rows, 01 running mean, 11 one lane and chunks of 2^17, f32 step, i16 exponent, tables, sizes, padding, state,
// words.
INSTANTIATE_TEST_SUITE_P(
    Codecs, ShortGoldenPayload,
    ::testing::Values(ShortGolden{"ec@0.1",
                                  {8},
                                  "020001112dd8c83f000000840b17a691020000009844e597",
                                  {0, 0x1.806dc6p+0F, -0x1.806dc6p+0F, 0x1.806dc6p+0F, 0, -0x1.806dc6p+0F, 0x1.7fa4eep+1F, 0}},
                      ShortGolden{"ec@0.001", {8}, "00000000000000803f000080bf000000400000003f000000c00000404000000000", kShortValues},
                      ShortGolden{"ec:2", {8}, "020001106e9a9c4000000002630008b802000000205b1400", {0, 0, 0, 0, 0, 0, 0x1.802ad6p+1F, 0}},
                      ShortGolden{"dct@0.1",
                                  {1, 1, 2, 4},
                                  "02c803117c6a0b400000008575030c6205030000230c0100008a",
                                  {-0x1.882dc6p-1F, 0x1.9c63d4p+0F, -0x1.b0c33ap-1F, 0x1.88191cp+0F, 0x1.c87446p-1F, -0x1.32001ap+1F,
                                   0x1.940134p+1F, -0x1.01bf58p-3F}},
                      ShortGolden{"dct@0.01",
                                  {1, 4, 2},
                                  "028803115bb7403f0000000756e424039216a88209020000b5598f98",
                                  {0x1.e17fcp-5F, 0x1.cec8aep-1F, -0x1.444ca2p-1F, 0x1.f5770ap+0F, 0x1.444ca4p-1F, -0x1.f5770ap+0F,
                                   0x1.8efcc4p+1F, 0x1.88f2ep-4F}},
                      ShortGolden{"auto@0.1",
                                  {2, 4},
                                  "020001112dd8c83f000000840b17a691020000009844e597",
                                  {0, 0x1.806dc6p+0F, -0x1.806dc6p+0F, 0x1.806dc6p+0F, 0, -0x1.806dc6p+0F, 0x1.7fa4eep+1F, 0}},
                      ShortGolden{
                          "topk:0.5>ec:8", {8}, "0104000000000000006a000000803f00000040000000c000004040", {0, 1, 0, 2, 0, -2, 3, 0}}));

TEST_P(ShortGoldenPayload, HasTheseBytesAndStandsForTheseValues) {
  const auto& [spec, shape, payload, values] = GetParam();
  for (const kernels::Kernels* k : instruction_sets()) {
    const auto codec = codec_of(spec, {nullptr, k});
    EXPECT_EQ(hex(payload_of(*codec, tensor_of(kShortValues).view(shape))), payload) << spec << ' ' << k->name;
    EXPECT_TRUE(torch::equal(decoded(*codec, from_hex(payload), shape), tensor_of(values).view(shape)))
        << spec << ' ' << k->name << decoded(*codec, from_hex(payload), shape);
  }
}

// Payloads from encoders that gave block means the step of all other coefficients, or found other steps. No encoder writes them, every
// decoder reads them.
class OldPayload : public ::testing::TestWithParam<ShortGolden> {};

INSTANTIATE_TEST_SUITE_P(
    Codecs, OldPayload,
    ::testing::Values(ShortGolden{"dct@0.1",
                                  {1, 1, 2, 4},
                                  "0288031122e8f83f0000000562170c8908a201020000000000784640",
                                  {-0x1.38eb5p-1F, 0x1.5b2b66p+0F, -0x1.03d47ap-1F, 0x1.75b6d2p+0F, 0x1.9ede92p-1F, -0x1.09acacp+1F,
                                   0x1.764d4p+1F, 0x1.3a3c1p-5F}},
                      ShortGolden{"ec@0.1",
                                  {8},
                                  "0200011187d1d73f000000841c39a691020000009844e597",
                                  {0, 0x1.806d38p+0F, -0x1.806d38p+0F, 0x1.806d38p+0F, 0, -0x1.806d38p+0F, 0x1.7f9566p+1F, 0}},
                      ShortGolden{"ec:2", {8}, "02000110bbea9f4000000002660008b802000000205b1400", {0, 0, 0, 0, 0, 0, 0x1.80ccd2p+1F, 0}},
                      ShortGolden{"dct@0.1",
                                  {1, 1, 2, 4},
                                  "02c80311012afd3f00000006674f0c222248061603000000220e0100008a",
                                  {-0x1.f5356cp-2F, 0x1.3e5e56p+0F, -0x1.35e00ap-2F, 0x1.6e33bp+0F, 0x1.94dc64p-1F, -0x1.d8d91ap+0F,
                                   0x1.64dfb8p+1F, 0x1.33c11ep-3F}},
                      ShortGolden{"dct@0.01",
                                  {1, 4, 2},
                                  "02880311cf084d3f00000007600b24039216a88209020000b5598f98",
                                  {0x1.4b6fp-6F, 0x1.c4707ap-1F, -0x1.481f9ep-1F, 0x1.f8a8f2p+0F, 0x1.481f9ep-1F, -0x1.f8a8f2p+0F,
                                   0x1.8eab6p+1F, 0x1.e12c4ap-4F}},
                      ShortGolden{"ec@0.1",
                                  {8},
                                  "02000111ddc1b53f00000084f2e3a691020000009844e597",
                                  {0, 0x1.7f64eep+0F, -0x1.7f64eep+0F, 0x1.7f64eep+0F, 0, -0x1.7f64eep+0F, 0x1.801abp+1F, 0}},
                      ShortGolden{"ec:2", {8}, "02000110deea9f4000000002660008b802000000205b1400", {0, 0, 0, 0, 0, 0, 0x1.80cd26p+1F, 0}},
                      ShortGolden{"dct@0.1",
                                  {1, 1, 2, 4},
                                  "02c8031168ece53f0000000657170c222248061603000000220e0100008a",
                                  {-0x1.07dd8ap-1F, 0x1.45b98ep+0F, -0x1.64a15ap-2F, 0x1.707ffcp+0F, 0x1.986acap-1F, -0x1.e5cacp+0F,
                                   0x1.692dfcp+1F, 0x1.02de88p-3F}}));

TEST_P(OldPayload, StillStandsForTheseValues) {
  const auto& [spec, shape, payload, values] = GetParam();
  for (const kernels::Kernels* k : instruction_sets()) {
    const auto codec = codec_of(spec, {nullptr, k});
    EXPECT_TRUE(torch::equal(decoded(*codec, from_hex(payload), shape), tensor_of(values).view(shape))) << spec << ' ' << k->name;
  }
}

// small_maps() by dct:1.
TEST(OldPayloadOfMaps, StillStandsForTheSameValues) {
  const Bytes payload = from_hex(
      "0290033190f78a4000000101000018833b001caafcffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"
      "ffffffffdbfffe92feffffffffffffffffffffffffffffbffffa03070000252e01000c121af7012b906cb20b");
  for (const kernels::Kernels* k : instruction_sets()) {
    const auto y = decoded(*codec_of("dct:1", {nullptr, k}), payload, {2, 3, 12, 10});
    EXPECT_EQ(fmt::format("{:#x}", hash_of(y)), fmt::format("{:#x}", 0x09c053c9a3ed097eU)) << k->name;
  }
}

}  // namespace
}  // namespace epipe::codec
