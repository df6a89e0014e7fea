#pragma once

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <torch/types.h>

#include <memory>
#include <vector>

// Device streams: each thread queues its work on its own stream, so that computing, coding and copying overlap on the device as well.
// Nothing here waits for a whole device; on the CPU all of it is a no-op.
namespace epipe::boundary {

// Makes a new stream the thread's current stream on a device, until destroyed.
class OwnStream {
 public:
  explicit OwnStream(torch::Device device);
  void synchronize() const;  // waits for the work queued on this stream, and for nothing else

 private:
  std::unique_ptr<c10::StreamGuard> guard_;
};

// Waits for the work queued on the thread's current stream on a device.
void synchronize_current_stream(torch::Device device);

// Keeps the memory of tensors from another stream until the current stream has done all work queued before they are destroyed.
void keep_for_current_stream(const std::vector<torch::Tensor>& tensors);

// A point in the work queued on one thread's stream, for another thread's stream to wait for.
class StreamEvent {
 public:
  StreamEvent() = default;
  // Records the work queued so far on the current stream of the tensors' device.
  explicit StreamEvent(const std::vector<torch::Tensor>& tensors);
  // Makes the current stream wait for that point, and keeps the tensors' memory until it is done with them.
  void take(const std::vector<torch::Tensor>& tensors) const;

 private:
  std::shared_ptr<c10::Event> event_;
};

}  // namespace epipe::boundary
