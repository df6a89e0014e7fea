#pragma once

#include <algorithm>
#include <exception>
#include <mutex>

#include "epipe/base/queue.h"
#include "epipe/boundary/boundary.h"

// Shared by the threads of senders and receivers.
namespace epipe::boundary {

// The loop of a boundary's thread: runs until the queues are closed or something fails.
template <typename Work>
void run_until_closed(const Work& work, const OnFailure& on_failure) {
  try {
    while (true) work();
  } catch (const Closed&) {
    // Another thread ended the run and reports why.
  } catch (...) {
    on_failure(std::current_exception());
  }
}

// After a push: how many micro-batches wait for their worker now. One that did not have to wait is gone already.
inline void note_depth(const Queue<MicroBatchTensors>& arrived, std::mutex& mutex, Traffic& traffic) {
  const auto depth = static_cast<std::uint64_t>(arrived.size());
  const std::lock_guard lock(mutex);
  traffic.recv_queue_depth = std::max(traffic.recv_queue_depth, depth);
}

inline double seconds(transport::Timeout timeout) { return static_cast<double>(timeout.count()) / 1000; }

}  // namespace epipe::boundary
