#pragma once

#include <torch/types.h>

#include <mutex>
#include <vector>

#include "epipe/base/queue.h"
#include "epipe/boundary/boundary.h"

namespace epipe::boundary {

// One direction of one cut between two workers of this process that share a device, with the codec none: tensors pass from one worker's
// stream to the other's as they are. Counted as the frames they would be.
class Direct {
 public:
  explicit Direct(const BoundaryConfig& config) : config_(config), handed_over_(config.capacity) {}

  // As Sender::send and Receiver::recv.
  void send(MicroBatchTensors sent);
  std::vector<torch::Tensor> recv(std::uint64_t step, std::uint32_t micro_batch);
  // Throws std::runtime_error when something that was sent holds NaN or Inf, unless such tensors are to be flagged: NaN then arrives
  // as it is. Waits for what was sent.
  void finish();
  Traffic take_traffic();
  void close() { handed_over_.close(); }

 private:
  struct Range {
    std::uint64_t step;
    std::uint32_t micro_batch;
    std::vector<torch::Tensor> ends;  // least and largest value
    StreamEvent ready;
  };
  void look_at(const torch::Tensor& x, std::uint64_t step, std::uint32_t micro_batch);

  BoundaryConfig config_;
  Queue<MicroBatchTensors> handed_over_;
  std::mutex mutex_;  // guards what follows
  std::vector<Range> unchecked_;
  Traffic traffic_;
};

}  // namespace epipe::boundary
