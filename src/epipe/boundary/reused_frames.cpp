#include "epipe/boundary/reused_frames.h"

#include <fmt/format.h>

namespace epipe::boundary {
namespace {

constexpr std::size_t kKeyBytes = 16;
constexpr std::size_t kEntryBytes = kKeyBytes + 8;

Error damaged(const std::string& what) { return {ErrorCode::kBadMessage, "a micro-batch of reused activations is damaged: " + what}; }

}  // namespace

Bytes to_bytes(const ReusedMicroBatch& micro_batch) {
  Bytes out;
  append(out, micro_batch.step);
  append(out, micro_batch.index);
  append(out, static_cast<std::uint32_t>(micro_batch.samples.size()));
  for (const SampleFrame& sample : micro_batch.samples) {
    append(out, sample.key.sample);
    append(out, sample.key.tag);
    append(out, static_cast<std::uint64_t>(sample.frame.size()));
  }
  for (const SampleFrame& sample : micro_batch.samples) append_bytes(out, sample.frame);
  return out;
}

Bytes to_bytes(const std::vector<SampleKey>& held) {
  Bytes out;
  out.reserve(held.size() * kKeyBytes);
  for (const SampleKey& key : held) {
    append(out, key.sample);
    append(out, key.tag);
  }
  return out;
}

Result<ReusedMicroBatch> read_reused(ByteView bytes) {
  ByteReader reader(bytes);
  ReusedMicroBatch micro_batch;
  const auto step = reader.take<std::uint64_t>();
  const auto index = reader.take<std::uint32_t>();
  const auto count = reader.take<std::uint32_t>();
  if (!step || !index || !count) return damaged("it ends too early");
  if (*count == 0 || *count > kMaxSamplesOfMicroBatch) return damaged(fmt::format("it has {} samples", *count));
  const auto entries = reader.take_bytes(std::uint64_t{*count} * kEntryBytes);
  if (!entries) return damaged("it ends too early");
  micro_batch.step = *step;
  micro_batch.index = *index;
  for (std::size_t i = 0; i < *count; ++i) {
    const ByteView entry = entries->subspan(i * kEntryBytes, kEntryBytes);
    const auto frame = reader.take_bytes(load<std::uint64_t>(entry, kKeyBytes));
    if (!frame) return damaged("a frame is longer than what arrived");
    micro_batch.samples.push_back({{load<std::uint64_t>(entry, 0), load<std::uint64_t>(entry, 8)}, *frame});
  }
  if (!reader.rest().empty()) return damaged(fmt::format("{} bytes are left over", reader.rest().size()));
  return micro_batch;
}

Result<std::vector<SampleKey>> read_held(ByteView bytes) {
  if (bytes.size() % kKeyBytes != 0 || bytes.size() / kKeyBytes > FrameStore::kMaxSamples) {
    return Error{ErrorCode::kBadMessage, fmt::format("a list of held activations has {} bytes", bytes.size())};
  }
  std::vector<SampleKey> held(bytes.size() / kKeyBytes);
  for (std::size_t i = 0; i < held.size(); ++i) {
    held[i] = {load<std::uint64_t>(bytes, i * kKeyBytes), load<std::uint64_t>(bytes, i * kKeyBytes + 8)};
  }
  return held;
}

}  // namespace epipe::boundary
