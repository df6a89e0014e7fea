#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "epipe/base/clock.h"

namespace epipe {

// Records events for a timeline. Any thread may add; events beyond `capacity` are dropped.
class Tracer {
 public:
  struct Event {
    int track = 0;              // a worker, or a thread beside it
    std::string_view category;  // a literal: forward, backward, encode, ...
    std::string name;
    double begin = 0;  // seconds since the tracer was made
    double end = 0;
    std::uint64_t step = 0;
  };

  explicit Tracer(std::size_t capacity) : capacity_(capacity) {}

  double now() const { return clock_.seconds(); }
  bool full() const { return full_; }
  void add(Event event) {
    if (full_) return;
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    full_ = events_.size() >= capacity_;
  }
  std::vector<Event> events() const {
    const std::lock_guard lock(mutex_);
    return events_;
  }

 private:
  const std::size_t capacity_;
  const Stopwatch clock_;
  mutable std::mutex mutex_;
  std::vector<Event> events_;
  std::atomic<bool> full_ = false;
};

// Measures the time from construction to the end of its scope, adds it to a sum, and reports it to the tracer if there is one.
class Span {
 public:
  Span(double& sum, Tracer* tracer, int track, std::string_view category, std::uint64_t step, std::string name = {})
      : sum_(sum), tracer_(tracer), event_{track, category, std::move(name), tracer == nullptr ? 0 : tracer->now(), 0, step} {}
  ~Span() {
    sum_ += watch_.seconds();
    if (tracer_ == nullptr || tracer_->full()) return;
    event_.end = tracer_->now();
    tracer_->add(std::move(event_));
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  double& sum_;
  Tracer* tracer_;
  Tracer::Event event_;
  Stopwatch watch_;
};

}  // namespace epipe
