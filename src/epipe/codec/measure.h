#pragma once

#include <torch/types.h>

#include "epipe/codec/codec.h"

// How well and how fast a codec treats one tensor.
namespace epipe::codec {

struct Measurement {
  std::size_t values = 0;
  std::size_t wire_bytes = 0;  // of the whole frame
  double bits_per_value = 0;   // 8 * wire_bytes / values
  double rel_error = 0;        // sum (x - x')^2 / sum x^2; infinite where only x' is not zero
  // Millions of fp32 bytes per second, frame and checksum included, buffers warm. The medians of alternating rounds.
  double encode_MBps = 0;
  double decode_MBps = 0;
  double memcpy_MBps = 0;  // by as many threads
};

struct MeasureOptions {
  double seconds = 0.5;  // about how long to repeat; at least three rounds, or one where a round is longer than this
};

// Size and error come from the first call of a fresh encoder, the rates from further calls.
Result<Measurement> measure(std::string_view spec, const torch::Tensor& x, const CodecOptions& options, const MeasureOptions& how = {});

double relative_error(const torch::Tensor& x, const torch::Tensor& decoded);

}  // namespace epipe::codec
