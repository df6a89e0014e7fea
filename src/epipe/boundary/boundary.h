#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "epipe/base/queue.h"
#include "epipe/base/trace.h"
#include "epipe/boundary/device_stream.h"
#include "epipe/boundary/frame_store.h"
#include "epipe/boundary/traffic.h"
#include "epipe/codec/frame_codec.h"
#include "epipe/transport/link.h"

// One direction of one cut: tensors -> codec -> frames -> link on one side, the reverse on the other. Each side has its own thread, so
// that a worker computes while its tensors are encoded, sent, received and decoded.
namespace epipe::boundary {

// Tensors that cross together.
struct MicroBatchTensors {
  std::uint64_t step = 0;
  std::uint32_t index = 0;     // of the micro-batch
  bool frozen = false;         // validation: the encoder's state stays as it is
  bool measure_error = false;  // decode what was encoded and compare, for the metrics
  std::vector<torch::Tensor> tensors;
  StreamEvent ready{};              // when the tensors are ready on their device
  double rate = 0;                  // bits per value, see codec::EncodeContext
  std::vector<double> try_rates{};  // besides sending them, measure the loss of coding them at these rates
  // If the receiver keeps frames by sample: one key per tensor. Each tensor is one sample, or undefined if the receiver already has it.
  std::vector<SampleKey> samples{};
};

// The loss of coding at a rate: sum (x - x')^2, and sum x^2.
struct RatePoint {
  double rate = 0;  // bits per value
  double error_energy = 0;
  double signal_energy = 0;

  double rel_error() const { return signal_energy > 0 ? error_energy / signal_energy : 0; }
};

// What crosses a cut: the bytes of a frame, or one whose payload stays on the device that both workers share, once `ready`.
struct FrameOnDevice {
  codec::DeviceFrame frame;
  StreamEvent ready;
};
using Frame = std::variant<Bytes, FrameOnDevice>;

struct BoundaryConfig {
  std::string codec = "none";                             // a spec the factory accepts
  codec::CodecFactory codec_factory = codec::make_codec;  // custom codecs need their own
  int codec_threads = 1;                                  // threads of this end that share the codec's work
  std::uint16_t cut = 0;
  wire::Direction direction = wire::Direction::kForward;
  std::size_t capacity = 1;                            // micro-batches that may wait on each side
  transport::Timeout timeout = transport::kNoTimeout;  // for a worker that waits for the peer
  wire::Limits limits{};
  torch::Device device = torch::kCPU;  // of the worker at this end
  bool steps_overlap = false;          // micro-batches of a step may be sent before the previous step is committed
  bool flag_non_finite = false;  // NaN, Inf and values the codec cannot represent cross as a flagged frame and arrive as NaN; else an error
  Tracer* tracer = nullptr;      // outlives the boundary; null: no timeline
  // Set at both ends, which share it, if both workers are in this process and on one CUDA device: frames go through it instead of the link.
  std::shared_ptr<Queue<Frame>> on_device{};
};

// The track of a boundary's thread in the timeline: 100, 101, ... for cut 0 forward sender and receiver, then backward, then cut 1.
int track_of(const BoundaryConfig& config, bool receiver);

// Called from a boundary's thread when it fails, at most once, with the reason. The callee stops everything.
using OnFailure = std::function<void(std::exception_ptr)>;

// "cut 1 forward, step 3, micro-batch 0"
std::string describe(const BoundaryConfig& config, std::uint64_t step, std::uint32_t micro_batch);

// Calls the factory; the pool outlives the result. Throws std::invalid_argument for a wrong spec.
std::unique_ptr<codec::Codec> make_encoder(const BoundaryConfig& config, ThreadPool& pool);
codec::FrameDecoder make_decoder(const BoundaryConfig& config, ThreadPool& pool);

}  // namespace epipe::boundary
