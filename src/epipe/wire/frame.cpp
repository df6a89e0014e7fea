#include "epipe/wire/frame.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "epipe/wire/crc32c.h"
#include "epipe/wire/frame_layout.h"

namespace epipe::wire {
namespace {

constexpr std::array<char, 4> kMagic = {'E', 'P', 'F', 'R'};
constexpr std::uint16_t kFlagNonFinite = 1;
constexpr auto kLastDtype = static_cast<std::uint8_t>(Dtype::kBfloat16);

// The checksum covers the whole frame with its own field taken as zero.
std::uint32_t checksum(ByteView frame, std::size_t header_bytes, ThreadPool* pool) {
  std::array<std::byte, kMaxHeaderBytes> header{};
  std::copy_n(frame.begin(), header_bytes, header.begin());
  store(MutableBytes(header), kAtChecksum, std::uint32_t{0});
  return crc32c_parallel(frame.subspan(header_bytes), crc32c(ByteView(header).first(header_bytes)), pool);
}

struct Prefix {
  std::uint64_t payload_bytes;
  std::size_t header_bytes;
};

Result<Prefix> read_prefix(ByteView bytes, const Limits& limits) {
  if (bytes.size() < kPrefixBytes) {
    return Error{ErrorCode::kTruncated, fmt::format("a frame starts with {} bytes of prefix, got {}", kPrefixBytes, bytes.size())};
  }
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return Error{ErrorCode::kBadMagic, "expected a frame that starts with \"EPFR\"; this is not an epipe frame"};
  }
  if (const auto version = load<std::uint16_t>(bytes, kAtVersion); version != kVersion) {
    return Error{ErrorCode::kBadVersion,
                 fmt::format("expected frame version {}, got {}; use the same epipe on both sides", kVersion, version)};
  }
  const auto payload_bytes = load<std::uint64_t>(bytes, kAtPayloadBytes);
  if (payload_bytes > limits.max_payload_bytes) {
    return Error{ErrorCode::kTooLarge,
                 fmt::format("payload of {} bytes is above the limit of {}", payload_bytes, limits.max_payload_bytes)};
  }
  const auto header_bytes = load<std::uint32_t>(bytes, kAtHeaderBytes);
  if (header_bytes < kFixedBytes || header_bytes > kMaxHeaderBytes || header_bytes % 8 != 0) {
    return Error{ErrorCode::kBadHeader,
                 fmt::format("header length must be a multiple of 8 from {} to {}, got {}", kFixedBytes, kMaxHeaderBytes, header_bytes)};
  }
  return Prefix{payload_bytes, header_bytes};
}

Result<TensorSpec> read_dims(ByteView header, std::size_t dim_count, const Limits& limits) {
  TensorSpec spec;
  for (std::size_t i = 0; i < dim_count; ++i) spec.dims.push_back(load<std::uint64_t>(header, kFixedBytes + 8 * i));
  const auto extent = spec.extent();
  if (!extent || *extent > limits.max_values) {
    return Error{ErrorCode::kTooLarge, fmt::format("shape {} is above the limit of {} values", to_string(spec), limits.max_values)};
  }
  return spec;
}

// Reads everything after the prefix; the checksum has been verified, so a bad field is a peer's mistake or malice.
Result<FrameHeader> read_fields(ByteView header, const Limits& limits) {
  const auto bad = [](std::string message) { return Error{ErrorCode::kBadHeader, std::move(message)}; };
  const auto flags = load<std::uint16_t>(header, kAtFlags);
  if ((flags & ~kFlagNonFinite) != 0) return bad(fmt::format("unknown flag bits {:#x}", flags));
  const auto direction = load<std::uint8_t>(header, kAtDirection);
  if (direction > 1) return bad(fmt::format("direction must be 0 (forward) or 1 (backward), got {}", direction));
  const auto dtype = load<std::uint8_t>(header, kAtDtype);
  if (dtype > kLastDtype) return bad(fmt::format("dtype must be 0 (float32), 1 (float16) or 2 (bfloat16), got {}", dtype));
  const auto part = load<std::uint8_t>(header, kAtPart);
  const auto parts = load<std::uint8_t>(header, kAtParts);
  if (part >= parts) return bad(fmt::format("part must be below parts, got {} of {}", part, parts));
  const std::size_t dim_count = load<std::uint8_t>(header, kAtDimCount);
  if (dim_count > kMaxDims) return bad(fmt::format("at most {} dims are allowed, got {}", kMaxDims, dim_count));
  const std::size_t spec_bytes = load<std::uint8_t>(header, kAtSpecBytes);
  if (spec_bytes == 0) return bad("the codec spec is empty");
  if (header.size() != wire::header_bytes(dim_count, spec_bytes)) {
    return bad(fmt::format("header of {} bytes does not fit {} dims and a spec of {} bytes", header.size(), dim_count, spec_bytes));
  }
  const std::size_t spec_at = kFixedBytes + 8 * dim_count;
  const ByteView reserved = header.subspan(kAtReserved, kFixedBytes - kAtReserved);
  const ByteView padding = header.subspan(spec_at + spec_bytes);
  if (!all_zeros(reserved) || !all_zeros(padding)) {
    return bad("reserved bytes must be zero");
  }
  auto tensor = read_dims(header, dim_count, limits);
  if (!tensor) return tensor.error();

  FrameHeader fields;
  fields.tensor = std::move(tensor).value();
  const ByteView spec = header.subspan(spec_at, spec_bytes);
  std::transform(spec.begin(), spec.end(), std::back_inserter(fields.codec), [](std::byte b) { return static_cast<char>(b); });
  fields.step = load<std::uint64_t>(header, kAtStep);
  fields.micro_batch = load<std::uint32_t>(header, kAtMicroBatch);
  fields.cut = load<std::uint16_t>(header, kAtCut);
  fields.part = part;
  fields.parts = parts;
  fields.direction = static_cast<Direction>(direction);
  fields.dtype = static_cast<Dtype>(dtype);
  fields.non_finite = (flags & kFlagNonFinite) != 0;
  return fields;
}

Result<void> check_length(ByteView bytes, const Limits& limits) {
  const auto total = frame_bytes(bytes, limits);
  if (!total) return total.error();
  if (bytes.size() < total.value()) {
    return Error{ErrorCode::kTruncated, fmt::format("the frame announces {} bytes, got {}", total.value(), bytes.size())};
  }
  if (bytes.size() > total.value()) {
    return Error{ErrorCode::kBadHeader, fmt::format("{} bytes follow a frame of {}", bytes.size() - total.value(), total.value())};
  }
  return {};
}

// The length of `bytes` has been checked.
Result<FrameView> view_of(ByteView bytes, const Limits& limits) {
  const std::size_t header_bytes = load<std::uint32_t>(bytes, kAtHeaderBytes);
  auto header = read_fields(bytes.first(header_bytes), limits);
  if (!header) return header.error();
  FrameView view{std::move(header).value(), bytes.subspan(header_bytes)};
  if (view.header.non_finite && !view.payload.empty()) {
    return Error{ErrorCode::kBadHeader, "a frame flagged non-finite must not carry a payload"};
  }
  return view;
}

}  // namespace

std::string to_string(const TensorSpec& spec) { return fmt::format("[{}]", fmt::join(spec.dims, ",")); }

FrameWriter::FrameWriter(const FrameHeader& header, Bytes& out) : out_(out), start_(out.size()) {
  const auto& dims = header.tensor.dims;
  if (header.part >= header.parts) throw std::invalid_argument(fmt::format("part {} of {} does not exist", header.part, header.parts));
  if (dims.size() > kMaxDims || header.codec.empty() || header.codec.size() > kMaxSpecBytes) {
    throw std::invalid_argument(fmt::format("a frame takes at most {} dims and a spec of 1 to {} bytes, got {} dims and \"{}\"", kMaxDims,
                                            kMaxSpecBytes, dims.size(), header.codec));
  }
  header_bytes_ = wire::header_bytes(dims.size(), header.codec.size());
  const MutableBytes h = grow(out, header_bytes_);
  std::fill(h.begin(), h.end(), std::byte{0});
  std::memcpy(h.data(), kMagic.data(), kMagic.size());
  store(h, kAtVersion, kVersion);
  store(h, kAtFlags, static_cast<std::uint16_t>(header.non_finite ? kFlagNonFinite : 0));
  store(h, kAtHeaderBytes, static_cast<std::uint32_t>(header_bytes_));
  store(h, kAtStep, header.step);
  store(h, kAtMicroBatch, header.micro_batch);
  store(h, kAtCut, header.cut);
  store(h, kAtDirection, static_cast<std::uint8_t>(header.direction));
  store(h, kAtDtype, static_cast<std::uint8_t>(header.dtype));
  store(h, kAtDimCount, static_cast<std::uint8_t>(dims.size()));
  store(h, kAtPart, header.part);
  store(h, kAtParts, header.parts);
  store(h, kAtSpecBytes, static_cast<std::uint8_t>(header.codec.size()));
  for (std::size_t i = 0; i < dims.size(); ++i) store(h, kFixedBytes + 8 * i, dims[i]);
  std::memcpy(h.data() + kFixedBytes + 8 * dims.size(), header.codec.data(), header.codec.size());
}

void FrameWriter::finish(ThreadPool* pool) {
  const MutableBytes frame = MutableBytes(out_).subspan(start_);
  store(frame, kAtPayloadBytes, static_cast<std::uint64_t>(frame.size() - header_bytes_));
  store(frame, kAtChecksum, checksum(frame, header_bytes_, pool));
}

Result<std::uint64_t> frame_bytes(ByteView prefix, const Limits& limits) {
  const auto sizes = read_prefix(prefix, limits);
  if (!sizes) return sizes.error();
  const auto total = checked_add(sizes.value().payload_bytes, sizes.value().header_bytes);
  if (!total) return Error{ErrorCode::kTooLarge, "frame length does not fit 64 bits"};
  return *total;
}

Result<FrameView> read_frame(ByteView bytes, const Limits& limits, ThreadPool* pool) {
  EPIPE_TRY(check_length(bytes, limits));
  const std::size_t header_bytes = load<std::uint32_t>(bytes, kAtHeaderBytes);
  const auto expected = load<std::uint32_t>(bytes, kAtChecksum);
  if (const std::uint32_t actual = checksum(bytes, header_bytes, pool); actual != expected) {
    return Error{ErrorCode::kBadChecksum,
                 fmt::format("the frame says {:08x}, its bytes give {:08x}; it was damaged in transit", expected, actual)};
  }
  return view_of(bytes, limits);
}

Result<FrameView> read_own_frame(ByteView bytes) {
  constexpr Limits kNone{~std::uint64_t{0}, ~std::uint64_t{0}};
  EPIPE_TRY(check_length(bytes, kNone));
  return view_of(bytes, kNone);
}

}  // namespace epipe::wire
