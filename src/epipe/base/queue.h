#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

namespace epipe {

// Thrown to a thread that waits on a closed queue: the run has ended, or another thread has failed.
class Closed : public std::exception {
 public:
  const char* what() const noexcept override { return "the queue was closed"; }
};

// Passes values between threads, at most `capacity` at a time. close() wakes all waiters; nobody waits after that.
template <typename T>
class Queue {
 public:
  explicit Queue(std::size_t capacity) : capacity_(capacity) {}

  // Waits for room. Throws Closed.
  void push(T value) {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [this] { return closed_ || values_.size() < capacity_; });
    if (closed_) throw Closed();
    values_.push_back(std::move(value));
    lock.unlock();
    filled_.notify_one();
  }

  // True if there was room in time; only then is `value` moved from. Throws Closed.
  bool push_within(T& value, std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    if (!room_.wait_for(lock, timeout, [this] { return closed_ || values_.size() < capacity_; })) return false;
    if (closed_) throw Closed();
    values_.push_back(std::move(value));
    lock.unlock();
    filled_.notify_one();
    return true;
  }

  // Waits for a value. Throws Closed even if values are left: once the queue is closed, nobody wants them.
  T pop() {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [this] { return closed_ || !values_.empty(); });
    if (closed_) throw Closed();
    return take(lock);
  }

  // A value, or nullopt if none came in time. Throws Closed.
  std::optional<T> pop_within(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    if (!filled_.wait_for(lock, timeout, [this] { return closed_ || !values_.empty(); })) return std::nullopt;
    if (closed_) throw Closed();
    return take(lock);
  }

  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return values_.size();
  }

  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    room_.notify_all();
    filled_.notify_all();
  }

 private:
  T take(std::unique_lock<std::mutex>& lock) {
    T value = std::move(values_.front());
    values_.pop_front();
    lock.unlock();
    room_.notify_one();
    return value;
  }

  const std::size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable room_;
  std::condition_variable filled_;
  std::deque<T> values_;
  bool closed_ = false;
};

}  // namespace epipe
