#pragma once

#include <cstdint>
#include <vector>

#include "epipe/base/result.h"
#include "epipe/boundary/frame_store.h"

// What crosses a cut whose receiver keeps the frames of samples: one message for a micro-batch, with a frame for each sample that the
// receiver lacks and the name alone of each that it has; and back, what it has.
//
//   micro-batch   step u64 | micro_batch u32 | count u32 | count x (sample u64 | tag u64 | bytes u64, 0: it is there) | frames
//   held          count x (sample u64 | tag u64)      all of them, when the link is new; then, for each micro-batch, those that were kept
namespace epipe::boundary {

struct SampleFrame {
  SampleKey key;
  ByteView frame;  // empty: the receiver has it
};

struct ReusedMicroBatch {
  std::uint64_t step = 0;
  std::uint32_t index = 0;
  std::vector<SampleFrame> samples{};
};

inline constexpr std::size_t kMaxSamplesOfMicroBatch = 65536;

Bytes to_bytes(const ReusedMicroBatch& micro_batch);
Bytes to_bytes(const std::vector<SampleKey>& held);
// Trust nothing; the frames are views into `bytes`, and what is in them is not looked at.
Result<ReusedMicroBatch> read_reused(ByteView bytes);
Result<std::vector<SampleKey>> read_held(ByteView bytes);

}  // namespace epipe::boundary
