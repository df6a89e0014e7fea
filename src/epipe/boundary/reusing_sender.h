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

// Sends activations sample by sample to a receiver that keeps them; a sample it has is sent as its key only (reused_frames.h). Every sample
// is encoded separately by a stateless encoder, so its frame is the same whenever it is sent.
class ReusingSender {
 public:
  // The link outlives the sender.
  ReusingSender(BoundaryConfig config, transport::Link& link, OnFailure on_failure);
  ~ReusingSender();
  ReusingSender(const ReusingSender&) = delete;
  ReusingSender& operator=(const ReusingSender&) = delete;

  // Whether the receiver has reported that it has this. Waits for its first list. Throws Closed or TimedOut.
  bool holds(const SampleKey& key) const;
  // Like Sender. Each tensor is one sample, and undefined if holds() was true.
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
  ThreadPool pool_;  // used by the sending thread
  std::unique_ptr<codec::Codec> encoder_;
  codec::FrameDecoder decoder_;  // for its own frames, in measure()
  mutable std::mutex mutex_;     // guards the members below
  mutable std::condition_variable changed_;
  std::unordered_map<std::uint64_t, std::uint64_t> held_;  // tags by sample
  bool listed_ = false;                                    // the first list has arrived
  std::int64_t unencoded_ = 0;                             // micro-batches
  bool over_ = false;                                      // a thread has ended
  Traffic traffic_;
  std::thread sending_;  // last: the threads use all members above
  std::thread receiving_;
};

}  // namespace epipe::boundary
