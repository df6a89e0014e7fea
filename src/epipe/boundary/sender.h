#pragma once

#include <torch/types.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "epipe/base/queue.h"
#include "epipe/boundary/boundary.h"

namespace epipe::boundary {

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
  // The state of the encoders, one per tensor of a micro-batch; only between steps.
  std::vector<codec::State> state() const;
  void set_state(const std::vector<codec::State>& states);
  void close();
  void join();  // after close(): until the thread, which may be reporting a failure, is gone

 private:
  void run();
  void count(int micro_batches);
  void encode_and_send(const MicroBatchTensors& micro_batch);
  Bytes encode(const torch::Tensor& x, std::size_t part, const MicroBatchTensors& micro_batch, const codec::FrameTag& tag);
  void encode_frame(const torch::Tensor& x, std::size_t part, const MicroBatchTensors& micro_batch, const codec::FrameTag& tag, Bytes& out);
  void measure(const torch::Tensor& x, const Bytes& frame);
  codec::Codec& encoder(std::size_t part);

  BoundaryConfig config_;
  transport::Link& link_;
  OnFailure on_failure_;
  Queue<MicroBatchTensors> waiting_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable encoded_;
  std::int64_t unencoded_ = 0;  // micro-batches
  bool over_ = false;           // the thread has ended
  std::vector<std::unique_ptr<codec::Codec>> encoders_;
  Traffic traffic_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace epipe::boundary
