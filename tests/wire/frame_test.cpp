#include "epipe/wire/frame.h"

#include <gtest/gtest.h>

#include <functional>

#include "epipe/wire/crc32c.h"

namespace epipe::wire {
namespace {

FrameHeader sample_header() {
  FrameHeader header;
  header.tensor = {{2, 3}};
  header.codec = "none";
  header.step = 7;
  header.micro_batch = 1;
  header.cut = 2;
  header.part = 1;
  header.parts = 3;
  header.direction = Direction::kBackward;
  return header;
}

Bytes make_frame(const FrameHeader& header, std::size_t payload_bytes) {
  Bytes out;
  FrameWriter writer(header, out);
  for (std::size_t i = 0; i < payload_bytes; ++i) out.push_back(static_cast<std::byte>(i));
  writer.finish();
  return out;
}

// Changes bytes and repairs the checksum, as a malicious peer would.
Bytes forged(const std::function<void(MutableBytes)>& change) {
  Bytes frame = make_frame(sample_header(), 24);
  change(frame);
  store(MutableBytes(frame), 20, std::uint32_t{0});
  store(MutableBytes(frame), 20, crc32c(frame));
  return frame;
}

ErrorCode error_of(ByteView bytes, const Limits& limits = {}) {
  const auto frame = read_frame(bytes, limits);
  EXPECT_FALSE(frame.ok());
  return frame.ok() ? ErrorCode::kIo : frame.error().code;
}

TEST(Frame, OfOurOwnIsReadWithoutItsChecksumAndWithoutLimits) {
  Bytes bytes = make_frame(sample_header(), 24);
  EXPECT_EQ(read_own_frame(bytes).value().header.step, 7U);
  bytes.back() ^= std::byte{1};
  EXPECT_EQ(error_of(bytes), ErrorCode::kBadChecksum);
  EXPECT_EQ(read_own_frame(bytes).value().payload.size(), 24U);
  bytes.pop_back();
  EXPECT_EQ(read_own_frame(bytes).error().code, ErrorCode::kTruncated);
  EXPECT_EQ(read_own_frame({}).error().code, ErrorCode::kTruncated);
}

TEST(Frame, GivesBackWhatWasWritten) {
  const Bytes bytes = make_frame(sample_header(), 24);
  const auto frame = read_frame(bytes, {});
  ASSERT_TRUE(frame.ok()) << frame.error().text();
  const auto& [header, payload] = frame.value();
  EXPECT_EQ(header.tensor, sample_header().tensor);
  EXPECT_EQ(header.codec, "none");
  EXPECT_EQ(header.step, 7U);
  EXPECT_EQ(header.micro_batch, 1U);
  EXPECT_EQ(header.cut, 2U);
  EXPECT_EQ(header.part, 1U);
  EXPECT_EQ(header.parts, 3U);
  EXPECT_EQ(header.direction, Direction::kBackward);
  EXPECT_FALSE(header.non_finite);
  EXPECT_EQ(payload.size(), 24U);
  EXPECT_EQ(frame_bytes(ByteView(bytes).first(kPrefixBytes), {}).value(), bytes.size());
}

TEST(Frame, TakesEveryNumberOfDimsAndSpecLength) {
  for (std::size_t dims = 0; dims <= kMaxDims; ++dims) {
    for (const std::size_t spec : {1U, 7U, 8U, 255U}) {
      FrameHeader header;
      header.tensor.dims.assign(dims, 2);
      header.codec.assign(spec, 'x');
      const Bytes bytes = make_frame(header, 3);
      const auto frame = read_frame(bytes, {});
      ASSERT_TRUE(frame.ok()) << frame.error().text();
      EXPECT_EQ(frame.value().header.codec, header.codec);
      EXPECT_EQ((bytes.size() - 3) % 8, 0U) << "the payload starts at a multiple of 8";
    }
  }
}

TEST(Frame, EveryTruncationIsAnError) {
  const Bytes bytes = make_frame(sample_header(), 24);
  for (std::size_t length = 0; length < bytes.size(); ++length) EXPECT_EQ(error_of(ByteView(bytes).first(length)), ErrorCode::kTruncated);
}

TEST(Frame, EveryFlippedBitIsAnError) {
  const Bytes bytes = make_frame(sample_header(), 24);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    Bytes damaged = bytes;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(read_frame(damaged, {}).ok()) << "bit " << bit;
  }
}

TEST(Frame, BytesBehindTheFrameAreAnError) {
  Bytes bytes = make_frame(sample_header(), 24);
  bytes.push_back(std::byte{0});
  EXPECT_EQ(error_of(bytes), ErrorCode::kBadHeader);
}

TEST(Frame, NamesEachMistakeInAForgedHeader) {
  const auto with = [](std::size_t at, auto value) { return forged([=](MutableBytes frame) { store(frame, at, value); }); };
  EXPECT_EQ(error_of(with(0, std::uint32_t{0})), ErrorCode::kBadMagic);
  EXPECT_EQ(error_of(with(4, std::uint16_t{2})), ErrorCode::kBadVersion);
  EXPECT_EQ(error_of(with(6, std::uint16_t{2})), ErrorCode::kBadHeader) << "unknown flag";
  EXPECT_EQ(error_of(with(6, std::uint16_t{1})), ErrorCode::kBadHeader) << "non-finite with a payload";
  EXPECT_EQ(error_of(with(8, ~std::uint64_t{0})), ErrorCode::kTooLarge) << "payload length";
  EXPECT_EQ(error_of(with(16, std::uint32_t{0})), ErrorCode::kBadHeader) << "header too short";
  EXPECT_EQ(error_of(with(16, std::uint32_t{4096})), ErrorCode::kBadHeader) << "header too long";
  EXPECT_EQ(error_of(with(16, std::uint32_t{67})), ErrorCode::kBadHeader) << "header not a multiple of 8";
  EXPECT_EQ(error_of(with(38, std::uint8_t{2})), ErrorCode::kBadHeader) << "direction";
  EXPECT_EQ(error_of(with(39, std::uint8_t{3})), ErrorCode::kBadHeader) << "dtype";
  EXPECT_EQ(error_of(with(40, std::uint8_t{9})), ErrorCode::kBadHeader) << "dims";
  EXPECT_EQ(error_of(with(40, std::uint8_t{3})), ErrorCode::kBadHeader) << "dims do not fit the header";
  EXPECT_EQ(error_of(with(41, std::uint8_t{0})), ErrorCode::kBadHeader) << "empty spec";
  EXPECT_EQ(error_of(with(42, std::uint8_t{3})), ErrorCode::kBadHeader) << "part 3 of 3";
  EXPECT_EQ(error_of(with(43, std::uint8_t{0})), ErrorCode::kBadHeader) << "no parts";
  EXPECT_EQ(error_of(with(44, std::uint8_t{1})), ErrorCode::kBadHeader) << "reserved byte";
  EXPECT_EQ(error_of(with(48, ~std::uint64_t{0})), ErrorCode::kTooLarge) << "dim";
  EXPECT_EQ(error_of(with(69, std::uint8_t{1})), ErrorCode::kBadHeader) << "padding";
}

TEST(Frame, DimsThatOverflowTogetherAreTooLarge) {
  for (const std::uint64_t dim : {std::uint64_t{1} << 32, std::uint64_t{1} << 33, std::uint64_t{1} << 62}) {
    const Bytes frame = forged([dim](MutableBytes f) {
      store(f, 48, dim);
      store(f, 56, dim);
    });
    EXPECT_EQ(error_of(frame), ErrorCode::kTooLarge);
  }
}

TEST(Frame, ADimOfZeroDoesNotHideAnAbsurdOne) {
  const Bytes frame = forged([](MutableBytes f) {
    store(f, 48, std::uint64_t{0});
    store(f, 56, ~std::uint64_t{0});
  });
  EXPECT_EQ(error_of(frame), ErrorCode::kTooLarge);
}

// Found by fuzzing: no values, but strides that overflow.
TEST(Frame, ADimOfZeroDoesNotHideOthersThatOverflowTogether) {
  const Bytes frame = forged([](MutableBytes f) {
    store(f, 40, std::uint8_t{3});
    store(f, 16, std::uint32_t{80});
    store(f, 48, std::uint64_t{1} << 40);
    store(f, 56, std::uint64_t{1} << 40);
    store(f, 64, std::uint64_t{0});
  });
  EXPECT_FALSE(read_frame(frame, {}).ok());
}

TEST(Frame, LimitsAreConfigurable) {
  const Bytes bytes = make_frame(sample_header(), 24);
  EXPECT_TRUE(read_frame(bytes, {24, 6}).ok());
  EXPECT_EQ(error_of(bytes, {23, 6}), ErrorCode::kTooLarge);
  EXPECT_EQ(error_of(bytes, {24, 5}), ErrorCode::kTooLarge);
}

TEST(Frame, CarriesTheTypeOfTheTensor) {
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat16, Dtype::kBfloat16}) {
    FrameHeader header = sample_header();
    header.dtype = dtype;
    const Bytes bytes = make_frame(header, 24);
    EXPECT_EQ(load<std::uint8_t>(bytes, 39), static_cast<std::uint8_t>(dtype));
    const auto frame = read_frame(bytes, {});
    ASSERT_TRUE(frame.ok());
    EXPECT_EQ(frame.value().header.dtype, dtype);
  }
}

TEST(Frame, AFlaggedFrameIsEmptyAndReadable) {
  FrameHeader header = sample_header();
  header.non_finite = true;
  const Bytes bytes = make_frame(header, 0);
  const auto frame = read_frame(bytes, {});
  ASSERT_TRUE(frame.ok());
  EXPECT_TRUE(frame.value().header.non_finite);
}

TEST(FrameWriter, RefusesWhatTheHeaderCannotHold) {
  Bytes out;
  FrameHeader header = sample_header();
  header.tensor.dims.assign(9, 1);
  EXPECT_THROW(FrameWriter(header, out), std::invalid_argument);
  header = sample_header();
  header.codec.assign(256, 'x');
  EXPECT_THROW(FrameWriter(header, out), std::invalid_argument);
}

// The normative bytes of docs/wire_format.md's example.
TEST(FrameGolden, HasTheDocumentedBytes) {
  FrameHeader header = sample_header();
  header.tensor = {{2}};
  Bytes out;
  FrameWriter writer(header, out);
  append(out, 1.0F);
  append(out, -2.0F);
  writer.finish();
  std::string hex;
  for (const std::byte b : out) {
    constexpr std::string_view digits = "0123456789abcdef";
    hex += digits[static_cast<std::size_t>(b) >> 4];
    hex += digits[static_cast<std::size_t>(b) & 15];
  }
  EXPECT_EQ(hex,
            "45504652"
            "0100"
            "0000"
            "0800000000000000"
            "40000000"
            "00a70158"
            "0700000000000000"
            "01000000"
            "0200"
            "01"
            "00"
            "01"
            "04"
            "01"
            "03"
            "00000000"
            "0200000000000000"
            "6e6f6e65"
            "00000000"
            "0000803f"
            "000000c0");
}

}  // namespace
}  // namespace epipe::wire
