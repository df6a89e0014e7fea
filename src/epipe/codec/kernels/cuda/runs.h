#pragma once

#include <cstddef>
#include <cstdint>

#include "epipe/codec/kernels/cuda/stream.h"
#include "epipe/codec/kernels/kernels.h"

// uniform, sort and fast on the device: runs from the keys at their ends, values to codes and back.
namespace epipe::kernels::cuda {

// What is wrong with a tensor, for the host to read.
enum class Fault : std::uint32_t { kNone = 0, kNonFinite = 1, kTooWide = 2, kBadRun = 3 };

struct RunShape {
  unsigned level_bits;
  unsigned split_bits;
  unsigned sent;  // runs that travel; the others are never used

  constexpr unsigned runs() const { return 1U << split_bits; }
};

// Runs from the lowest and highest key of each, 2 * shape.sent keys, into `runs`, shape.runs() places. `range` is the whole tensor's.
void fit_runs(const Key* ends, const KeyRange* range, const RunShape& shape, Run* runs, Fault* fault, Stream stream);
// The same where a run ends where the next begins: ends of the inner runs are shape.sent - 1 keys.
void fit_touching_runs(const Key* inner, const KeyRange* range, const RunShape& shape, Run* runs, Fault* fault, Stream stream);

// The runs of a payload, shape.sent of them, completed to shape.runs(). kBadRun when one does not give finite values.
void read_runs(const Run* sent, const RunShape& shape, Run* runs, Fault* fault, Stream stream);

// `out` and `in` hold whole words, aligned to 4 bytes; x is aligned to 16. The table has shape.runs() entries.
void encode_runs(const float* x, std::size_t n, const Run* runs, const RunShape& shape, std::uint32_t* out, Stream stream);
void decode_runs(const std::uint32_t* in, std::size_t n, const Run* runs, const RunShape& shape, float* out, Stream stream);

// code = the number of thresholds[1...] that x reaches, of 2^bits; x' = table[code], the last entry for codes beyond it.
void encode_search(const float* x, std::size_t n, const float* thresholds, unsigned bits, std::uint32_t* out, Stream stream);
void decode_table(const std::uint32_t* in, std::size_t n, const float* table, unsigned count, unsigned bits, float* out, Stream stream);

}  // namespace epipe::kernels::cuda
