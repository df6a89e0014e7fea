#pragma once

#include <torch/types.h>

#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "epipe/base/queue.h"
#include "epipe/boundary/boundary.h"
#include "epipe/boundary/reused_frames.h"

namespace epipe::boundary {

// The other end of a ReusingSender: assembles a micro-batch from frames that arrive and frames in the store. A missing or damaged frame is
// forgotten, and ConnectionLost ends the link: over a new link the sender learns which samples are here and sends the others again.
class ReusingReceiver {
 public:
  // The store is shared with the receivers of later links, and used by one receiver at a time.
  ReusingReceiver(BoundaryConfig config, transport::Link& link, std::shared_ptr<FrameStore> store, OnFailure on_failure);
  ~ReusingReceiver();
  ReusingReceiver(const ReusingReceiver&) = delete;
  ReusingReceiver& operator=(const ReusingReceiver&) = delete;

  // Like Receiver; recv() returns the tensor of the micro-batch, [samples, ...].
  std::vector<torch::Tensor> recv(std::uint64_t step, std::uint32_t micro_batch);
  Traffic take_traffic();
  void close();
  void join();

 private:
  void recv_next();
  torch::Tensor decode(const SampleFrame& sample, wire::Limits& left, std::vector<SampleKey>& kept);
  Result<torch::Tensor> decode_frame(ByteView frame, const wire::Limits& left) const;

  BoundaryConfig config_;
  transport::Link& link_;
  std::shared_ptr<FrameStore> store_;
  OnFailure on_failure_;
  mutable ThreadPool pool_;  // used by thread_
  codec::FrameDecoder decoder_;
  Queue<MicroBatchTensors> arrived_;
  std::mutex mutex_;  // guards traffic_
  Traffic traffic_;
  std::thread thread_;
};

}  // namespace epipe::boundary
