#pragma once

#include <torch/types.h>

#include <mutex>
#include <vector>

#include "epipe/base/queue.h"
#include "epipe/boundary/boundary.h"

namespace epipe::boundary {

// One direction of one cut between two workers of this process that share a device, with the codec none: tensors pass from one worker's
// stream to the other's unchanged. Traffic counts the frames they would have been.
class Direct {
 public:
  explicit Direct(const BoundaryConfig& config) : config_(config), handed_over_(config.capacity) {}

  // Like Sender::send and Receiver::recv.
  void send(MicroBatchTensors sent);
  std::vector<torch::Tensor> recv(std::uint64_t step, std::uint32_t micro_batch);
  // Throws std::runtime_error if a sent tensor holds NaN or Inf, unless such tensors are to be flagged: NaN then arrives unchanged. Waits
  // until all sent tensors have been computed.
  void finish();
  Traffic take_traffic();
  void close() { handed_over_.close(); }

 private:
  struct Range {
    std::uint64_t step;
    std::uint32_t micro_batch;
    std::vector<torch::Tensor> ends;  // smallest and largest value
    StreamEvent ready;
  };
  void look_at(const torch::Tensor& x, std::uint64_t step, std::uint32_t micro_batch);

  BoundaryConfig config_;
  Queue<MicroBatchTensors> handed_over_;
  std::mutex checking_;  // workers that finish at the same time name the same tensor, the first one
  std::mutex mutex_;  // guards the members below
  std::vector<Range> unchecked_;
  Traffic traffic_;
};

}  // namespace epipe::boundary
