#pragma once

#include <torch/types.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "epipe/base/queue.h"
#include "epipe/boundary/boundary.h"

namespace epipe::boundary {

// Sends activations sample by sample to a receiver that keeps them, and what it keeps only by name (reused_frames.h). Every sample is coded
// by itself with an encoder that remembers nothing, so that its frame is the same whenever it is sent.
class ReusingSender {
 public:
  // The link outlives the sender.
  ReusingSender(BoundaryConfig config, transport::Link& link, OnFailure on_failure);
  ~ReusingSender();
  ReusingSender(const ReusingSender&) = delete;
  ReusingSender& operator=(const ReusingSender&) = delete;

  // Whether the receiver has said that it keeps this. Waits for its first list. Throws Closed, or TimedOut.
  bool holds(const SampleKey& key) const;
  // As Sender has them. Tensors are of one sample each, and undefined where holds() was true.
  void send(MicroBatchTensors micro_batch);
  void finish_encoding() const;
  Traffic take_traffic();
  void close();
  void join();

 private:
  void send_next();
  void recv_held();
  void end();
  Bytes encode(const torch::Tensor& x, const MicroBatchTensors& micro_batch);
  void measure(const torch::Tensor& x, ByteView frame);
  template <typename Condition>
  void wait_until(const Condition& condition, const char* what) const;

  BoundaryConfig config_;
  transport::Link& link_;
  OnFailure on_failure_;
  Queue<MicroBatchTensors> waiting_;
  ThreadPool pool_;  // of the sending thread
  std::unique_ptr<codec::Codec> encoder_;
  codec::FrameDecoder decoder_;  // of its own frames, for measure()
  mutable std::mutex mutex_;     // guards what follows
  mutable std::condition_variable changed_;
  std::unordered_map<std::uint64_t, std::uint64_t> held_;  // tags by sample
  bool listed_ = false;                                    // the first list is here
  std::int64_t unencoded_ = 0;                             // micro-batches
  bool over_ = false;                                      // a thread has ended
  Traffic traffic_;
  std::thread sending_;  // last: they use all of the above
  std::thread receiving_;
};

}  // namespace epipe::boundary
