#include "epipe/transport/c10d/mailbox.h"

#include <fmt/format.h>

#include <utility>

#include "epipe/base/queue.h"

namespace epipe::transport {

bool Mailbox::push(Bytes message) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closed_ || messages_.size() < capacity_; });
  if (closed_) return false;
  messages_.push_back(std::move(message));
  ++pushed_;
  lock.unlock();
  changed_.notify_all();
  return true;
}

Bytes Mailbox::pop(Timeout timeout) {
  std::unique_lock lock(mutex_);
  const auto ready = [this] { return closed_ || !messages_.empty() || nothing_left(); };
  if (timeout == kNoTimeout) {
    changed_.wait(lock, ready);
  } else if (!changed_.wait_for(lock, timeout, ready)) {
    throw TimedOut(fmt::format("nothing arrived within {} ms", timeout.count()));
  }
  if (closed_) throw Closed();
  if (messages_.empty()) throw ConnectionLost(reason_);
  Bytes message = std::move(messages_.front());
  messages_.pop_front();
  lock.unlock();
  changed_.notify_all();
  return message;
}

void Mailbox::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

void Mailbox::lose(const std::string& reason, std::uint64_t messages) {
  {
    const std::lock_guard lock(mutex_);
    if (lost_after_) return;
    lost_after_ = messages;
    reason_ = reason;
  }
  changed_.notify_all();
}

}  // namespace epipe::transport
