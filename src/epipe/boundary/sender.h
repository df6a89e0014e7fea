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

// One thread at a time uses the encoders, without a lock, so that a worker that calls send() never waits for a codec: the sender's own
// thread while a micro-batch is unencoded, state() and set_state() while none is. `unencoded_` says who may use them; it changes under
// the lock, which state() and set_state() hold until they are done.
class Sender {
 public:
  // The link outlives the sender.
  Sender(BoundaryConfig config, transport::Link& link, OnFailure on_failure);
  ~Sender();
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  // Takes the tensors, which must not change afterwards. Waits while `capacity` micro-batches are queued. Throws Closed or TimedOut.
  void send(MicroBatchTensors micro_batch);
  // Waits until everything sent so far is encoded, so that traffic and state are complete. Throws Closed or TimedOut; std::runtime_error if
  // a tensor whose frame stays on a device could not be encoded, which shows later there.
  void finish_encoding();
  // The traffic since the last call.
  Traffic take_traffic();
  // The losses measured at `try_rates` since the last call, in their order, summed over all tensors.
  std::vector<RatePoint> take_curve();
  // The state of the encoders, one per tensor of a micro-batch; call between steps. Waits like finish_encoding(), but if the sender was
  // closed in the middle of a step, only until its thread has ended.
  std::vector<codec::State> state() const;
  // The same as it was before anything of `step` was sent, where nothing of later steps was. Only where steps overlap.
  std::vector<codec::State> state_before(std::uint64_t step) const;
  void set_state(const std::vector<codec::State>& states);
  void close();
  void join();  // after close(): waits until the thread, which may be reporting a failure, has ended

 private:
  void run();
  void count(int micro_batches);
  std::unique_lock<std::mutex> lock_when_idle() const;  // nothing is unencoded, or the thread has ended
  void remember_state(const MicroBatchTensors& micro_batch);
  std::vector<codec::State> states() const;
  void encode_and_send(const MicroBatchTensors& micro_batch);
  Frame encode(const torch::Tensor& x, std::size_t part, const MicroBatchTensors& micro_batch, const codec::FrameTag& tag);
  void add(const Traffic& traffic);
  void check_encoded();
  Frame encode_frame(const torch::Tensor& x, std::size_t part, const MicroBatchTensors& micro_batch, const codec::FrameTag& tag);
  Bytes encode_bytes(const torch::Tensor& x, std::size_t part, const MicroBatchTensors& micro_batch, const codec::FrameTag& tag);
  void describe_frame(const torch::Tensor& x, const Frame& frame, bool measure_error, Traffic& traffic) const;
  void measure(const torch::Tensor& x, const wire::FrameView& frame, Traffic& traffic) const;
  void try_rates(const torch::Tensor& x, std::size_t part, const MicroBatchTensors& micro_batch, const codec::FrameTag& tag);
  codec::Codec& encoder(std::size_t part);

  BoundaryConfig config_;
  transport::Link& link_;
  OnFailure on_failure_;
  Queue<MicroBatchTensors> waiting_;
  ThreadPool pool_;                                      // used by the thread that has the encoders
  std::vector<std::unique_ptr<codec::Codec>> encoders_;  // see above
  std::optional<std::uint64_t> newest_step_;             // of what the encoders have seen; guarded like them
  std::vector<codec::State> before_newest_;              // their state before its first micro-batch
  codec::FrameDecoder decoder_;                          // for its own frames, in measure()
  mutable std::mutex mutex_;                             // guards the members below, held only briefly
  mutable std::condition_variable encoded_;
  std::int64_t unencoded_ = 0;  // micro-batches
  bool over_ = false;           // the thread has ended
  Traffic traffic_;
  std::vector<RatePoint> curve_;
  struct Unchecked {
    std::uint64_t step;
    std::uint32_t micro_batch;
    torch::Tensor fault;  // see codec::DevicePayload
    StreamEvent ready;
  };
  std::vector<Unchecked> unchecked_;
  std::mutex checking_;  // workers that finish at the same time name the same tensor, the first one
  std::thread thread_;  // last: it uses all members above
};

}  // namespace epipe::boundary
