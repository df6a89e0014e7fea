#pragma once

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <torch/types.h>

#include <memory>
#include <vector>

// Streams of devices: each thread queues its work on a stream of its own, so that computing, coding and copying overlap there as well.
// Nothing here waits for a whole device, and on the CPU all of it does nothing.
namespace epipe::boundary {

// Makes a stream of its own the thread's current one on a device, until destroyed.
class OwnStream {
 public:
  explicit OwnStream(torch::Device device);
  void synchronize() const;  // waits for what this stream has queued, and for nothing else

 private:
  std::unique_ptr<c10::StreamGuard> guard_;
};

// Waits for what the thread's current stream on a device has queued.
void synchronize_current_stream(torch::Device device);

// The memory of tensors that came from another stream is kept until the current one is done with what it has queued when they go.
void keep_for_current_stream(const std::vector<torch::Tensor>& tensors);

// A point in the order of work that one thread's stream has queued, for another thread's to wait for.
class StreamEvent {
 public:
  StreamEvent() = default;
  // After all that the current stream of the tensors' device has queued so far.
  explicit StreamEvent(const std::vector<torch::Tensor>& tensors);
  // The current stream goes on only after that. The tensors' memory is kept until it is done with them.
  void take(const std::vector<torch::Tensor>& tensors) const;

 private:
  std::shared_ptr<c10::Event> event_;
};

}  // namespace epipe::boundary
