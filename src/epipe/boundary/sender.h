#pragma once

#include <torch/types.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "epipe/base/queue.h"
#include "epipe/boundary/boundary.h"

namespace epipe::boundary {

// The encoders are used by one thread at a time and without a lock, so that a worker that hands tensors over never waits for a codec: by
// the sender's own thread while a micro-batch is unencoded, by state() and set_state() while none is. `unencoded_` says whose they are; it
// changes under the lock, which those two hold until they are done.
class Sender {
 public:
  // The link outlives the sender.
  Sender(BoundaryConfig config, transport::Link& link, OnFailure on_failure);
  ~Sender();
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  // Hands the tensors over; they must not change afterwards. Waits while `capacity` micro-batches wait. Throws Closed, or TimedOut.
  void send(MicroBatchTensors micro_batch);
  // Waits until all that was handed over is encoded, so that traffic and state are whole. Throws Closed, or TimedOut.
  void finish_encoding();
  // Counts since the last call.
  Traffic take_traffic();
  // What was measured at `try_rates` since the last call, in their order, all tensors together.
  std::vector<RatePoint> take_curve();
  // The state of the encoders, one per tensor of a micro-batch; between steps. Waits as finish_encoding() does, but for a sender that was
  // closed in the middle of a step only until its thread is gone.
  std::vector<codec::State> state() const;
  // The same as it was before anything of `step` was sent, where nothing of later steps was. Only where steps overlap.
  std::vector<codec::State> state_before(std::uint64_t step) const;
  void set_state(const std::vector<codec::State>& states);
  void close();
  void join();  // after close(): until the thread, which may be reporting a failure, is gone

 private:
  void run();
  void count(int micro_batches);
  std::unique_lock<std::mutex> lock_when_idle() const;  // nothing is unencoded, or the thread has ended
  void remember_state(const MicroBatchTensors& micro_batch);
  std::vector<codec::State> states() const;
  void encode_and_send(const MicroBatchTensors& micro_batch);
  Bytes encode(const torch::Tensor& x, std::size_t part, const MicroBatchTensors& micro_batch, const codec::FrameTag& tag);
  void add(const Traffic& traffic);
  void encode_frame(const torch::Tensor& x, std::size_t part, const MicroBatchTensors& micro_batch, const codec::FrameTag& tag, Bytes& out);
  void measure(const torch::Tensor& x, const wire::FrameView& frame, Traffic& traffic) const;
  void try_rates(const torch::Tensor& x, std::size_t part, const MicroBatchTensors& micro_batch, const codec::FrameTag& tag);
  codec::Codec& encoder(std::size_t part);

  BoundaryConfig config_;
  transport::Link& link_;
  OnFailure on_failure_;
  Queue<MicroBatchTensors> waiting_;
  ThreadPool pool_;                                      // of whoever has the encoders
  std::vector<std::unique_ptr<codec::Codec>> encoders_;  // see above
  std::optional<std::uint64_t> newest_step_;             // as the encoders
  std::vector<codec::State> before_newest_;              // their state before its first micro-batch
  codec::FrameDecoder decoder_;                          // of its own frames, for measure()
  mutable std::mutex mutex_;                             // guards what follows, held for moments only
  mutable std::condition_variable encoded_;
  std::int64_t unencoded_ = 0;  // micro-batches
  bool over_ = false;           // the thread has ended
  Traffic traffic_;
  std::vector<RatePoint> curve_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace epipe::boundary
