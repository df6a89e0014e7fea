#pragma once

#include <torch/types.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "epipe/base/queue.h"
#include "epipe/base/trace.h"
#include "epipe/boundary/device_stream.h"
#include "epipe/boundary/traffic.h"
#include "epipe/codec/frame_codec.h"
#include "epipe/transport/link.h"

// One direction of one cut: tensors -> codec -> frames -> link on one side, and back up on the other. Each side has a thread
// of its own, so that a worker computes while its tensors are encoded, sent, received and decoded.
namespace epipe::boundary {

// All tensors of one micro-batch that cross together.
struct Parcel {
  std::uint64_t step = 0;
  std::uint32_t micro_batch = 0;
  bool frozen = false;         // validation: the encoder's state stays as it is
  bool measure_error = false;  // decode what was encoded and compare, for the metrics
  std::vector<torch::Tensor> tensors;
  StreamEvent ready{};  // when they are, on their device
};

struct BoundaryConfig {
  std::string codec = "none";  // a spec that make_codec accepts
  std::uint16_t cut = 0;
  wire::Direction direction = wire::Direction::kForward;
  std::size_t capacity = 1;                            // parcels that may wait on each side
  transport::Timeout timeout = transport::kNoTimeout;  // of a worker that waits for the peer
  wire::Limits limits{};
  torch::Device device = torch::kCPU;  // of the worker at this end
  bool flag_non_finite = false;  // NaN, Inf or what the codec cannot hold crosses as a flagged frame and arrives as NaN; false: an error
  Tracer* tracer = nullptr;      // outlives the boundary; null: no timeline
};

// The track of a boundary's thread in the timeline: 100, 101, ... for cut 0 forward sender and receiver, then backward, then cut 1.
int track_of(const BoundaryConfig& config, bool receiver);

// Called from a boundary's thread when it fails, at most once: stop everything, this was the reason.
using OnFailure = std::function<void(std::exception_ptr)>;

// "cut 1 forward, step 3, micro-batch 0"
std::string describe(const BoundaryConfig& config, std::uint64_t step, std::uint32_t micro_batch);

class Sender {
 public:
  // The link outlives the sender.
  Sender(BoundaryConfig config, transport::Link& link, OnFailure on_failure);
  ~Sender();
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  // Hands the tensors over; they must not change afterwards. Waits while `capacity` parcels wait. Throws Closed, or TimedOut.
  void send(Parcel parcel);
  // Waits until all that was handed over is encoded, so that traffic and state are whole. Throws Closed, or TimedOut.
  void finish_encoding();
  // Counts since the last call.
  Traffic take_traffic();
  // The state of the encoders, one per tensor of a parcel; only between steps.
  std::vector<codec::State> state() const;
  void set_state(const std::vector<codec::State>& states);
  void close();
  void join();  // after close(): until the thread, which may be reporting a failure, is gone

 private:
  void run();
  void count(int parcels);
  void encode_and_send(const Parcel& parcel);
  Bytes encode(const torch::Tensor& x, std::size_t part, const Parcel& parcel, const codec::FrameTag& tag);
  void encode_frame(const torch::Tensor& x, std::size_t part, const Parcel& parcel, const codec::FrameTag& tag, Bytes& out);
  void measure(const torch::Tensor& x, const Bytes& frame);
  codec::Codec& encoder(std::size_t part);

  BoundaryConfig config_;
  transport::Link& link_;
  OnFailure on_failure_;
  Queue<Parcel> waiting_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable encoded_;
  std::int64_t unencoded_ = 0;  // parcels
  bool over_ = false;           // the thread has ended
  std::vector<std::unique_ptr<codec::Codec>> encoders_;
  Traffic traffic_;
  std::thread thread_;  // last: it uses all of the above
};

class Receiver {
 public:
  Receiver(BoundaryConfig config, transport::Link& link, OnFailure on_failure);
  ~Receiver();
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  // The tensors of this micro-batch, which must be the next to arrive. Waits for them. Throws Closed, TimedOut, or std::runtime_error
  // when something else arrives.
  std::vector<torch::Tensor> recv(std::uint64_t step, std::uint32_t micro_batch);
  Traffic take_traffic();
  void close();
  void join();

 private:
  void run();
  Parcel recv_parcel();
  Parcel next(std::uint64_t step, std::uint32_t micro_batch);

  BoundaryConfig config_;
  transport::Link& link_;
  OnFailure on_failure_;
  Queue<Parcel> arrived_;
  std::mutex mutex_;  // guards traffic_
  Traffic traffic_;
  std::thread thread_;
};

}  // namespace epipe::boundary
