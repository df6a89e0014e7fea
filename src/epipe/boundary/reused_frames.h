#pragma once

#include <cstdint>
#include <vector>

#include "epipe/base/result.h"
#include "epipe/boundary/frame_store.h"

// The messages of a cut whose receiver keeps frames by sample. Forward, one message per micro-batch: a frame for each sample the receiver
// lacks, only the key for each sample it has. Backward, the keys of the samples it has.
//
//   micro-batch   step u64 | micro_batch u32 | count u32 | count x (sample u64 | tag u64 | bytes u64, 0: receiver has it) | frames
//   held          count x (sample u64 | tag u64)      all of them on a new link; then, for each micro-batch, the newly kept ones
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
// For untrusted bytes. The frames are views into `bytes`; their content is not checked.
Result<ReusedMicroBatch> read_reused(ByteView bytes);
Result<std::vector<SampleKey>> read_held(ByteView bytes);

}  // namespace epipe::boundary
