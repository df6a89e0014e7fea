#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <utility>

namespace epipe::pipeline {

// The first error of any thread of a run. Reporting it stops all other threads; errors they report as a result are dropped.
class Failure {
 public:
  // `stop` ends every wait of the run; called once, by the thread that failed.
  explicit Failure(std::function<void()> stop) : stop_(std::move(stop)) {}

  void report(std::exception_ptr error) {
    {
      const std::lock_guard lock(mutex_);
      if (first_) return;
      first_ = std::move(error);
    }
    stop_();
  }
  void rethrow_if_any() const {
    const std::lock_guard lock(mutex_);
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::function<void()> stop_;
  mutable std::mutex mutex_;
  std::exception_ptr first_;
};

}  // namespace epipe::pipeline
