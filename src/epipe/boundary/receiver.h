#pragma once

#include <torch/types.h>

#include <mutex>
#include <thread>
#include <vector>

#include "epipe/base/queue.h"
#include "epipe/boundary/boundary.h"

namespace epipe::boundary {

class Receiver {
 public:
  Receiver(BoundaryConfig config, transport::Link& link, OnFailure on_failure);
  ~Receiver();
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  // Waits for the tensors of this micro-batch, which must be the next to arrive. Throws Closed, TimedOut, or std::runtime_error if
  // something else arrives.
  std::vector<torch::Tensor> recv(std::uint64_t step, std::uint32_t micro_batch);
  Traffic take_traffic();
  void close();
  void join();

 private:
  void run();
  MicroBatchTensors recv_tensors();
  Frame next_frame();
  torch::Tensor decode(const wire::FrameView& frame) const;
  torch::Tensor decode(const FrameOnDevice& frame) const;
  void expect(const wire::FrameHeader& header, const MicroBatchTensors& micro_batch, std::size_t part, std::size_t parts) const;
  MicroBatchTensors next(std::uint64_t step, std::uint32_t micro_batch);

  BoundaryConfig config_;
  transport::Link& link_;
  OnFailure on_failure_;
  ThreadPool pool_;  // used by thread_
  codec::FrameDecoder decoder_;
  Queue<MicroBatchTensors> arrived_;
  std::mutex mutex_;  // guards traffic_
  Traffic traffic_;
  std::thread thread_;
};

}  // namespace epipe::boundary
