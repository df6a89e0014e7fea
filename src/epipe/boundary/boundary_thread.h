#pragma once

#include <exception>

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

inline double seconds(transport::Timeout timeout) { return static_cast<double>(timeout.count()) / 1000; }

}  // namespace epipe::boundary
