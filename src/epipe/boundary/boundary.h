#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "epipe/base/trace.h"
#include "epipe/boundary/device_stream.h"
#include "epipe/boundary/frame_store.h"
#include "epipe/boundary/traffic.h"
#include "epipe/codec/frame_codec.h"
#include "epipe/transport/link.h"

// One direction of one cut: tensors -> codec -> frames -> link on one side, and back up on the other. Each side has a thread
// of its own, so that a worker computes while its tensors are encoded, sent, received and decoded.
namespace epipe::boundary {

// What crosses together.
struct MicroBatchTensors {
  std::uint64_t step = 0;
  std::uint32_t index = 0;     // of the micro-batch
  bool frozen = false;         // validation: the encoder's state stays as it is
  bool measure_error = false;  // decode what was encoded and compare, for the metrics
  std::vector<torch::Tensor> tensors;
  StreamEvent ready{};              // when they are, on their device
  double rate = 0;                  // bits per value, see codec::EncodeContext
  std::vector<double> try_rates{};  // measure what coding them at these rates would lose, beside sending them
  // Where the receiver keeps frames by sample: one for each tensor, which is then one sample's, or undefined where the receiver has it.
  std::vector<SampleKey> samples{};
};

// What coding at a rate loses: sum (x - x')^2, and sum x^2.
struct RatePoint {
  double rate = 0;  // bits per value
  double error_energy = 0;
  double signal_energy = 0;

  double rel_error() const { return signal_energy > 0 ? error_energy / signal_energy : 0; }
};

struct BoundaryConfig {
  std::string codec = "none";                             // a spec that the factory accepts
  codec::CodecFactory codec_factory = codec::make_codec;  // a codec of one's own has one of its own
  int codec_threads = 1;                                  // of this end, which share the work of its codec
  std::uint16_t cut = 0;
  wire::Direction direction = wire::Direction::kForward;
  std::size_t capacity = 1;                            // micro-batches that may wait on each side
  transport::Timeout timeout = transport::kNoTimeout;  // of a worker that waits for the peer
  wire::Limits limits{};
  torch::Device device = torch::kCPU;  // of the worker at this end
  bool steps_overlap = false;          // micro-batches of a step may be sent before the step before is committed
  bool flag_non_finite = false;  // NaN, Inf or what the codec cannot hold crosses as a flagged frame and arrives as NaN; false: an error
  Tracer* tracer = nullptr;      // outlives the boundary; null: no timeline
};

// The track of a boundary's thread in the timeline: 100, 101, ... for cut 0 forward sender and receiver, then backward, then cut 1.
int track_of(const BoundaryConfig& config, bool receiver);

// Called from a boundary's thread when it fails, at most once: stop everything, this was the reason.
using OnFailure = std::function<void(std::exception_ptr)>;

// "cut 1 forward, step 3, micro-batch 0"
std::string describe(const BoundaryConfig& config, std::uint64_t step, std::uint32_t micro_batch);

// By the factory; the pool outlives them. They throw std::invalid_argument for a wrong spec.
std::unique_ptr<codec::Codec> make_encoder(const BoundaryConfig& config, ThreadPool& pool);
codec::FrameDecoder make_decoder(const BoundaryConfig& config, ThreadPool& pool);

}  // namespace epipe::boundary
