// Codecs on a CUDA device against the same codecs on the host: the payloads are equal, and so are the tensors that come out of them.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <random>

#include "epipe/codec/codec.h"
#include "epipe/codec/cuda/device_codec.h"
#include "epipe/codec/reflections.h"
#include "support/codecs.h"
#include "support/cuda.h"
#include "support/entropy_payloads.h"

namespace epipe::testing {
namespace {

struct DeviceCase {
  std::string name;
  torch::Tensor x;
};

// Channels that are combinations of three smooth maps: coded by their KLT.
torch::Tensor channels_of_three_maps(std::int64_t n, std::int64_t channels, std::int64_t edge) {
  const auto maps = torch::avg_pool2d(torch::randn({n, 3, edge + 6, edge + 6}), 7, 1);
  return torch::einsum("ck,nkhw->nchw", {torch::randn({channels, 3}), maps}) + 0.005 * torch::randn({n, channels, edge, edge});
}

// Rows of features near a few directions: coded along axes.
torch::Tensor features_near_axes(std::vector<std::int64_t> sizes, std::int64_t axes) {
  auto of_axes = sizes;
  of_axes.back() = axes;
  return torch::matmul(torch::randn(of_axes) * torch::linspace(3, 1, axes), torch::randn({axes, sizes.back()})) + 0.05 * torch::randn(sizes);
}

// Small maps whose many channels are related: coded by spectra along axes.
torch::Tensor small_related_maps(std::int64_t n, std::int64_t channels, std::int64_t edge) {
  return features_near_axes({edge, edge, n, channels}, 6).permute({2, 3, 0, 1}).contiguous();
}

// Shapes of blocks that fit and do not fit, rows long and short, single values; values spread, tied, sparse, huge and tiny.
std::vector<DeviceCase> cases() {
  torch::manual_seed(7);
  const auto sparse = torch::randn({6, 8, 28, 28}) * (torch::rand({6, 8, 28, 28}) < 0.02);
  auto outlier = torch::zeros({3, 50, 17});
  outlier[1][20][3] = 1e6F;
  return {{"maps", torch::avg_pool2d(torch::randn({4, 16, 59, 59}), 4, 1).relu()},
          {"gaussian", torch::randn({3, 7, 33, 21})},
          {"small maps", torch::randn({5, 24, 7, 7})},
          {"related channels", channels_of_three_maps(4, 16, 48)},
          {"many related channels", channels_of_three_maps(4, 40, 64)},
          {"five related channels", channels_of_three_maps(3, 5, 37)},
          {"channels with means", torch::randn({20, 3, 40, 41}) + torch::randn({1, 3, 1, 1})},
          {"related channels with means", channels_of_three_maps(30, 6, 48) + torch::randn({1, 6, 1, 1})},
          {"heavy tails", torch::randn({2, 12, 30, 30}) / (torch::rand({2, 12, 30, 30}) + 1e-3)},
          {"text", torch::randn({4, 40, 96})},
          {"text near axes", features_near_axes({8, 48, 96}, 5)},
          {"long text near axes", features_near_axes({16, 160, 256}, 12)},
          {"wide text near axes", features_near_axes({4, 32, 1200}, 4)},
          {"features that fill no warp", features_near_axes({6, 50, 77}, 3)},
          {"sparse text", features_near_axes({8, 48, 96}, 5) * (torch::rand({8, 48, 1}) < 0.1)},
          {"small related maps", small_related_maps(24, 96, 7)},
          {"smallest related maps", small_related_maps(64, 130, 2)},
          {"matrix", torch::randn({129, 65})},
          {"vector", torch::randn({100003})},
          {"sparse", sparse},
          {"one huge value", outlier},
          {"all equal", torch::full({2, 3, 16, 16}, -2.5F)},
          {"zeros", torch::zeros({2, 3, 16, 16})},
          {"both zeros", torch::tensor({0.0F, -0.0F, 1.0F, -0.0F, 0.0F, -1.0F, 0.0F, -0.0F})},
          {"one value", torch::tensor({3.25F})},
          {"three values", torch::tensor({3.25F, -1.0F, 0.5F})},
          {"tiny", torch::randn({2, 4, 20, 20}) * 1e-30},
          {"huge", torch::randn({2, 4, 20, 20}) * 1e30},
          {"integers", torch::randint(-3, 4, {4, 8, 24, 24}).to(torch::kFloat32)}};
}

double energy(const torch::Tensor& x) { return x.to(torch::kFloat64).square().sum().item<double>(); }

codec::CodecOptions on_cuda() {
  codec::CodecOptions options;
  options.device = torch::kCUDA;
  return options;
}

class OnDevice : public ::testing::TestWithParam<std::string> {};

// A fixed error is met by sums in an order of their own, so the step may differ in its last bits; so may factors.
bool same_bytes_expected(const std::string& spec) {
  return spec.find('@') == std::string::npos && !spec.starts_with("lowrank") && !spec.starts_with("power");
}

TEST_P(OnDevice, PayloadsAreThoseOfTheHost) {
  EPIPE_NEEDS_CUDA();
  for (const auto& [name, x] : cases()) {
    SCOPED_TRACE(name);
    const auto host = codec_of(GetParam());
    const auto device = codec_of(GetParam());
    for (int call = 0; call < 3; ++call) {  // the second and third with the state the first left behind
      Bytes expected;
      Bytes got;
      const auto value = x * static_cast<float>(1 + call);
      const auto on_host = host->encode(value, {}, expected);
      const auto on_device = device->encode(value.cuda(), {}, got);
      ASSERT_EQ(bool(on_host), bool(on_device)) << (on_host ? "" : on_host.error().text()) << (on_device ? "" : on_device.error().text());
      if (!on_host) {
        EXPECT_EQ(on_host.error().text(), on_device.error().text());
        break;
      }
      if (same_bytes_expected(GetParam())) {
        ASSERT_EQ(expected.size(), got.size()) << "call " << call;
        ASSERT_TRUE(expected == got) << "call " << call;
      }
      const auto reference = decoded(*host, got, x.sizes());
      auto y = torch::full(x.sizes(), 12345.0F, torch::kCUDA);
      const auto result = device->decode_into(y, got);
      ASSERT_TRUE(result) << result.error().text();
      ASSERT_TRUE(torch::equal(y.cpu(), reference)) << "call " << call << ", largest difference " << (y.cpu() - reference).abs().max();
    }
  }
}

// Where only the device has the payload.
TEST_P(OnDevice, PayloadsDecodeWithoutTheHostsCopy) {
  EPIPE_NEEDS_CUDA();
  const auto codec = codec_of(GetParam());
  const auto device_codec = codec->device_codec();
  ASSERT_NE(device_codec, nullptr);
  for (const auto& [name, x] : cases()) {
    SCOPED_TRACE(name);
    const auto payload = codec::settled(device_codec->encode(x.contiguous().cuda(), {}));
    if (!payload) {  // the codec's error
      Bytes out;
      EXPECT_FALSE(codec_of(GetParam())->encode(x, {}, out));
      continue;
    }
    const auto bytes = payload->bytes.narrow(0, 0, static_cast<std::int64_t>(payload->size)).cpu();
    const auto* const first = reinterpret_cast<const std::byte*>(bytes.data_ptr<std::uint8_t>());
    auto y = torch::full(x.sizes(), 12345.0F, torch::kCUDA);
    ASSERT_TRUE(device_codec->decode_into(y, *payload, {}));
    ASSERT_TRUE(torch::equal(y.cpu(), decoded(*codec, Bytes(first, first + payload->size), x.sizes())));
  }
}

// Between workers that share the device, frames stay there: the same bytes, counted alike, and the same values.
TEST_P(OnDevice, FramesThatStayThereAreThoseOfTheHost) {
  EPIPE_NEEDS_CUDA();
  std::size_t stayed = 0;
  for (const auto& [name, x] : cases()) {
    SCOPED_TRACE(name);
    const codec::FrameTag tag{7, 3, 1, 0, 1, wire::Direction::kBackward};
    const auto there = codec_of(GetParam());
    const auto by_host = codec_of(GetParam());
    const auto decoder = codec::FrameDecoder::make(GetParam(), on_cuda());
    ASSERT_TRUE(decoder);
    for (int call = 0; call < 3; ++call) {
      const auto value = (x * static_cast<float>(1 + call)).cuda();
      const auto state = there->state();
      auto frame = codec::encode_device_frame(*there, value, tag, {});
      if (frame) frame = codec::settled(std::move(*frame));
      Bytes bytes;
      const auto whole = codec::encode_frame(*by_host, value, tag, {}, nullptr, bytes);
      if (!frame) {  // the host does it, and the state is as before
        EXPECT_EQ(state.size(), there->state().size());
        Bytes again;
        EXPECT_EQ(bool(whole), bool(codec::encode_frame(*there, value, tag, {}, nullptr, again)));
        EXPECT_TRUE(again == bytes);
        continue;
      }
      ++stayed;
      ASSERT_TRUE(whole) << whole.error().text();
      const auto view = wire::read_own_frame(bytes);
      ASSERT_TRUE(view);
      EXPECT_EQ(frame->wire_bytes(), bytes.size());
      EXPECT_EQ(codec::chosen_form(*frame), codec::chosen_form(view.value()));
      const auto payload = frame->payload.bytes.slice(0, 0, static_cast<std::int64_t>(frame->payload.size)).cpu();
      const ByteView sent = std::as_bytes(std::span(payload.data_ptr<std::uint8_t>(), frame->payload.size));
      EXPECT_TRUE(std::equal(sent.begin(), sent.end(), view.value().payload.begin(), view.value().payload.end()));
      EXPECT_TRUE(std::equal(frame->payload.front.begin(), frame->payload.front.end(), sent.begin()));
      const auto y = decoder.value().decode(*frame);
      const auto expected = decoder.value().decode(view.value());
      ASSERT_TRUE(expected);
      EXPECT_TRUE(y.is_cuda() && torch::equal(y, expected.value()));
    }
  }
  EXPECT_GT(stayed, 20U) << "nearly all went by way of the host";
}

TEST(FramesOnDevice, OfSixteenBitTensorsDecodeToTheirType) {
  EPIPE_NEEDS_CUDA();
  for (const auto type : {torch::kHalf, torch::kBFloat16}) {
    const auto x = torch::randn({4, 8, 16, 16}, torch::kCUDA).to(type);
    const auto codec = codec_of("sort:6+2");
    const auto decoder = codec::FrameDecoder::make("sort:6+2", on_cuda());
    const auto frame = codec::encode_device_frame(*codec, x, {}, {});
    ASSERT_TRUE(frame);
    Bytes bytes;
    ASSERT_TRUE(codec::encode_frame(*codec, x, {}, {}, nullptr, bytes));
    const auto y = decoder.value().decode(*frame);
    EXPECT_EQ(y.scalar_type(), type);
    EXPECT_TRUE(torch::equal(y, decoder.value().decode(wire::read_own_frame(bytes).value()).value()));
  }
}

TEST(FramesOnDevice, AreNoneOfATensorOnTheHost) {
  const auto codec = codec_of("sort:6+2");
  EXPECT_FALSE(codec::encode_device_frame(*codec, torch::randn({4, 8}), {}, {}));
}

void damage_alike(const codec::Codec& codec, const torch::Tensor& x, const Bytes& good) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    Bytes bad = good;
    const int changes = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < changes; ++i)
      bad[random() % std::min<std::size_t>(bad.size(), round % 2 == 0 ? 64 : bad.size())] = std::byte(random() & 0xff);
    if (round % 7 == 0) bad.resize(bad.size() - std::min<std::size_t>(bad.size(), random() % 9));
    auto on_host = torch::empty(x.sizes());
    auto on_device = torch::empty(x.sizes(), torch::kCUDA);
    const auto expected = codec.decode_into(on_host, bad);
    const auto got = codec.decode_into(on_device, bad);
    ASSERT_EQ(bool(expected), bool(got)) << (expected ? "host decodes; device: " + got.error().text() : expected.error().text());
    if (expected) {
      ASSERT_TRUE(torch::equal(on_device.cpu(), on_host)) << "round " << round;
    } else {
      EXPECT_EQ(expected.error().text(), got.error().text());
    }
  }
}

TEST_P(OnDevice, BadPayloadsFailAsOnTheHost) {
  EPIPE_NEEDS_CUDA();
  const auto x = torch::randn({2, 6, 20, 20});
  const auto codec = codec_of(GetParam());
  damage_alike(*codec, x, payload_of(*codec, x));
}

TEST(FrontsOnDevice, BadPayloadsFailAsOnTheHost) {
  torch::manual_seed(5);
  const auto codec = codec_of("dct:2");
  for (const auto& [x, kind] : {std::pair(channels_of_three_maps(2, 8, 24), std::byte{3}),
                                {channels_of_three_maps(30, 6, 48), std::byte{4}},
                                {features_near_axes({8, 48, 96}, 5), std::byte{5}},
                                {small_related_maps(24, 96, 7), std::byte{6}}}) {
    const Bytes good = payload_of(*codec, x);
    ASSERT_EQ(good[0], kind);
    if (torch::cuda::is_available()) damage_alike(*codec, x, good);
  }
  EPIPE_NEEDS_CUDA();
}

TEST(MeansOnDevice, AreThoseOfTheHostWhateverTheirShift) {
  EPIPE_NEEDS_CUDA();
  const auto codec = codec_of("dct:2");
  for (const auto& x : {torch::randn({2, 6, 20, 20}) + 1, torch::randn({3, 5, 7, 7}) - 1}) {
    Bytes payload = payload_of(*codec, x);
    for (const unsigned shift : {0U, 1U, 2U}) {
      payload[1] = (payload[1] & std::byte{0x9f}) | std::byte(shift << 5U);
      auto y = torch::empty(x.sizes(), torch::kCUDA);
      const auto result = codec->decode_into(y, payload);
      ASSERT_TRUE(result) << result.error().text();
      ASSERT_TRUE(torch::equal(y.cpu(), decoded(*codec, payload, x.sizes()))) << shift << ' ' << x.sizes();
    }
  }
}

codec::DevicePayload on_device(const torch::Tensor& x, const Bytes& payload) {
  auto device = codec::new_payload(x, payload.size());
  const auto size = static_cast<std::int64_t>(payload.size());
  device.bytes.narrow(0, 0, size).copy_(torch::from_blob(const_cast<std::byte*>(payload.data()), {size}, torch::kUInt8));
  return device;
}

// As many tables as there may be, more than shared memory has room for, and chunks as small as they may be.
TEST(UnusualPayloads, WithAllTablesDecodeAsOnTheHost) {
  using codec::Context;
  torch::manual_seed(6);
  const auto codec = codec_of("dct:2");
  const auto x = torch::randn({6, 5, 32, 40}) * torch::rand({6, 5, 1, 1}) * 30;
  for (const codec::Form form : {codec::Form{0, Context::kNone}, codec::Form{0, Context::kRunning}, codec::Form{0, Context::kNeighbours},
                                 codec::Form{8, Context::kParents, false}, codec::Form{16, Context::kParents, true, 1}}) {
    for (const unsigned lanes : {1U, 8U, 32U}) {
      SCOPED_TRACE(fmt::format("edge {}, context {}, {} lanes", form.edge, static_cast<int>(form.context), lanes));
      const Bytes payload = payload_with(x, {form, 10, lanes, 0.5F, 0}, kernels::kMaxTables);
      const auto expected = decoded(*codec, payload, x.sizes());
      EXPECT_LT((expected - x).abs().max().item<double>(), form.transform ? 2.0 : 0.5);
      if (!torch::cuda::is_available()) continue;
      auto y = torch::full(x.sizes(), 12345.0F, torch::kCUDA);
      ASSERT_TRUE(codec->decode_into(y, payload));
      EXPECT_TRUE(torch::equal(y.cpu(), expected));
    }
  }
  EPIPE_NEEDS_CUDA();
}

// More chunks than a grid has rows.
TEST(UnusualPayloads, WithManyChunksOfBlocksDecodeAsOnTheHost) {
  EPIPE_NEEDS_CUDA();
  const auto codec = codec_of("dct:2");
  const auto x = torch::randn({66, 1, 1024, 1024});
  const Bytes payload = payload_with(x, {{8, codec::Context::kParents, true}, 10, 4, 0.5F, 0}, 3);
  auto y = torch::full(x.sizes(), 12345.0F, torch::kCUDA);
  ASSERT_TRUE(codec->decode_into(y, payload));
  EXPECT_TRUE(torch::equal(y.cpu(), decoded(*codec, payload, x.sizes())));
}

// More than the host reads at first where only the device has the payload.
TEST(UnusualPayloads, WithLongFrontsDecodeAsOnTheHost) {
  EPIPE_NEEDS_CUDA();
  const auto codec = codec_of("dct:2");
  const auto x = torch::randn({64, 1 << 20});
  const Bytes payload = payload_with(x, {{}, 10, 4, 0.5F, 0}, 3);
  auto y = torch::full(x.sizes(), 12345.0F, torch::kCUDA);
  ASSERT_TRUE(codec->device_codec()->decode_into(y, on_device(y, payload), {}));
  EXPECT_TRUE(torch::equal(y.cpu(), decoded(*codec, payload, x.sizes())));
}

TEST_P(OnDevice, NanAndInfinityAreTheSameError) {
  EPIPE_NEEDS_CUDA();
  for (const float wrong : {NAN, INFINITY, -INFINITY}) {
    auto x = torch::randn({3, 5, 11, 11});
    x[1][2][3][4] = wrong;
    Bytes out;
    const auto expected = codec_of(GetParam())->encode(x, {}, out);
    const auto got = codec_of(GetParam())->encode(x.cuda(), {}, out);
    ASSERT_FALSE(got);
    EXPECT_EQ(expected.error().text(), got.error().text());
    EXPECT_TRUE(out.empty());
  }
}

// On an error, and in validation, the state is as it was.
TEST_P(OnDevice, ErrorsAndValidationLeaveTheStateAlone) {
  EPIPE_NEEDS_CUDA();
  const auto codec = codec_of(GetParam());
  for (int call = 0; call < 3; ++call) payload_of(*codec, torch::randn({3, 5, 11, 11}, torch::kCUDA));
  const auto before = codec->state();
  const auto nan = torch::full({3, 5, 11, 11}, NAN, torch::kCUDA);
  for (const auto& [x, frozen] : {std::pair(nan, false), {nan, true}, {torch::randn({3, 5, 11, 11}, torch::kCUDA) * 3, true}}) {
    Bytes out;
    ASSERT_EQ(bool(codec->encode(x, {.frozen = frozen}, out)), !x.is_same(nan));
    const auto after = codec->state();
    ASSERT_EQ(before.size(), after.size());
    for (const auto& [name, value] : before) EXPECT_TRUE(torch::equal(after.at(name), value)) << name;
  }
}

TEST_P(OnDevice, ViewsWithStridesAndOffsetsAreTaken) {
  EPIPE_NEEDS_CUDA();
  const auto base = torch::randn({5, 9, 18, 22});
  for (const auto& x : {base.permute({0, 2, 3, 1}), base.narrow(0, 1, 3), base.flatten().narrow(0, 1, 3001)}) {
    const auto codec = codec_of(GetParam());
    const auto on_device = base.cuda();
    const auto y = x.dim() == 1     ? on_device.flatten().narrow(0, 1, 3001)
                   : x.size(0) == 3 ? on_device.narrow(0, 1, 3)
                                    : on_device.permute({0, 2, 3, 1});
    const Bytes expected = payload_of(*codec_of(GetParam()), x);
    const Bytes got = payload_of(*codec, y);
    if (same_bytes_expected(GetParam())) {
      ASSERT_TRUE(expected == got);
    } else {
      EXPECT_NEAR(static_cast<double>(got.size()), static_cast<double>(expected.size()), 0.02 * static_cast<double>(expected.size()));
      const auto lost = [&](const Bytes& payload) { return energy(decoded(*codec, payload, x.sizes()) - x); };
      EXPECT_LT(lost(got), 1.02 * lost(expected) + 1e-6 * energy(x));
    }
  }
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Codecs, OnDevice, ::testing::ValuesIn(every_spec()), test_name);

// What a codec loses of x that has seen it often, after zeros, which leave power nothing to start from.
double lost(const std::string& spec, const torch::Tensor& x, torch::Device device) {
  const auto codec = codec_of(spec);
  payload_of(*codec, torch::zeros_like(x).to(device));
  Bytes payload;
  for (int call = 0; call < (spec.starts_with("power") ? 12 : 1); ++call) payload = payload_of(*codec, x.to(device));
  return energy(decoded(*codec, payload, x.sizes()) - x) / energy(x);
}

// Singular vectors of matrices wide and tall, with rows even and odd, two of them, too large for shared memory, many; of full rank
// and not; values of all sizes.
TEST(FactorsOnDevice, AreAsGoodAsTheHosts) {
  EPIPE_NEEDS_CUDA();
  torch::manual_seed(8);
  auto all = cases();
  all.insert(all.end(), {{"wide", torch::randn({3, 128, 200})},
                         {"tall", torch::randn({2, 2, 61, 33})},
                         {"large", torch::randn({300, 310})},
                         {"two rows", torch::randn({2, 40, 2, 300})},
                         {"many", torch::randn({3000, 4, 9})},
                         {"of rank 3", torch::matmul(torch::randn({5, 70, 3}), torch::randn({5, 3, 90}))},
                         {"of rank 1", torch::randn({30, 1, 40}) * torch::ones({1, 20, 1})}});
  for (const auto& [name, x] : all) {
    if (energy(x) == 0 || x.dim() < 2 || x.numel() > 100'000) continue;  // slow under compute-sanitizer
    for (const std::string spec : {"lowrank:1", "lowrank:2", "lowrank:12", "power:2", "power:4", "power:4>uniform:8"}) {
      SCOPED_TRACE(name + ", " + spec);
      const auto codec = codec_of(spec);
      EXPECT_EQ(codec->device_codec()->encode(x.contiguous().cuda(), {}).has_value(), name != "large" || spec.starts_with("power"));
      const double host = lost(spec, x, torch::kCPU);
      const double device = lost(spec, x, torch::kCUDA);
      EXPECT_LT(device, 1e-6 + host * (spec.starts_with("power") ? 1.1 : 1.0001));
    }
  }
}

// Rows long and short, whole tiles and not, more ranks than a tile takes at once.
TEST(FactorsOnDevice, MultiplyToTheHostsBits) {
  EPIPE_NEEDS_CUDA();
  torch::manual_seed(9);
  const std::vector<std::vector<std::int64_t>> shapes = {{3, 128, 200}, {2, 2, 61, 33}, {70000, 4, 9}, {2, 320, 7, 7}, {5, 300, 31},
                                                         {70, 129},     {64, 256, 32},  {3, 40, 500},  {1, 2000, 40}};
  for (const auto& shape : shapes) {
    const auto x = torch::randn(shape) * (torch::rand(shape) < 0.9);
    for (const std::string spec : {"lowrank:1", "lowrank:12", "lowrank:16", "power:1", "power:3", "power:17", "power:35"}) {
      SCOPED_TRACE(::testing::Message() << torch::IntArrayRef(shape) << ", " << spec);
      if (spec.starts_with("lowrank") && x.numel() > 1'000'000) continue;  // slow on the host
      const auto codec = codec_of(spec);
      const Bytes payload = payload_of(*codec, x);
      auto y = torch::full(shape, 12345.0F, torch::kCUDA);
      ASSERT_TRUE(codec->device_codec()->decode_into(y, on_device(y, payload), {}));
      const auto expected = decoded(*codec, payload, shape);
      EXPECT_TRUE(torch::equal(y.cpu().view(torch::kInt32), expected.view(torch::kInt32)));  // the signs of zeros as well
    }
  }
}

// Each factor is finite, their product is not.
TEST(FactorsOnDevice, ThatOverflowAreTheSameError) {
  EPIPE_NEEDS_CUDA();
  const auto x = torch::randn({3, 20, 40});
  for (const std::string spec : {"lowrank:1", "power:1"}) {
    const auto codec = codec_of(spec);
    Bytes payload = payload_of(*codec, x * 1e30F);
    const std::vector<float> values(20, 1e38F);
    const auto huge = std::as_bytes(std::span(values));
    std::copy(huge.begin(), huge.end(), payload.begin() + sizeof(std::uint64_t));
    std::copy(huge.begin(), huge.end(), payload.end() - static_cast<std::ptrdiff_t>(huge.size()));
    auto on_host = torch::empty(x.sizes());
    auto on_device = torch::empty(x.sizes(), torch::kCUDA);
    const auto expected = codec->decode_into(on_host, payload);
    const auto got = codec->decode_into(on_device, payload);
    ASSERT_FALSE(expected);
    ASSERT_FALSE(got);
    EXPECT_EQ(expected.error().code, ErrorCode::kNonFinite);
    EXPECT_EQ(expected.error().text(), got.error().text());
  }
}

// The rates hold for large tensors, too large for the tests above: many chunks, several tiles, all lanes.
TEST(OnDeviceLarge, PayloadsAreThoseOfTheHost) {
  EPIPE_NEEDS_CUDA();
  torch::manual_seed(11);
  const auto x = torch::avg_pool2d(torch::randn({8, 32, 115, 115}), 4, 1).relu() * 3;
  for (const std::string spec : {"uniform:8", "sort:6+2", "sort:12+4", "fast:6+2", "kmeans:4", "topk:0.01", "ec:2", "dct:1", "dct:0.25"}) {
    SCOPED_TRACE(spec);
    const Bytes expected = payload_of(*codec_of(spec), x);
    const auto codec = codec_of(spec);
    ASSERT_TRUE(expected == payload_of(*codec, x.cuda()));
    auto y = torch::empty(x.sizes(), torch::kCUDA);
    ASSERT_TRUE(codec->decode_into(y, expected));
    ASSERT_TRUE(torch::equal(y.cpu(), decoded(*codec, expected, x.sizes())));
  }
}

}  // namespace
}  // namespace epipe::testing
