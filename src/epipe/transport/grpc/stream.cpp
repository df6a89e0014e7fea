#include "epipe/transport/grpc/stream.h"

#include <fmt/format.h>

#include <utility>

#include "epipe/base/queue.h"

namespace epipe::transport {
namespace {

constexpr std::size_t kRow = 4;  // pieces held in each direction
constexpr std::chrono::seconds kLinger{2};

}  // namespace

void Stream::write(::grpc::ByteBuffer piece) {
  std::unique_lock lock(mutex_);
  const auto ready = [this] { return closed_ || lost_ || (!ended_ && outgoing_.size() < kRow); };
  if (!changed_.wait_for(lock, send_timeout_, ready)) {
    lock.unlock();
    cancel_because(fmt::format("it took nothing for {} s", std::chrono::duration<double>(send_timeout_).count()));
    throw ConnectionLost(fmt::format("{}: it took nothing for {} s", peer_, std::chrono::duration<double>(send_timeout_).count()));
  }
  if (closed_) throw Closed();
  if (lost_) throw ConnectionLost(fmt::format("{}: {}", peer_, reason_));
  outgoing_.emplace_back().Swap(&piece);
  advance(lock);
}

bool Stream::read(::grpc::ByteBuffer& piece, Timeout timeout) {
  std::unique_lock lock(mutex_);
  const auto ready = [this] { return closed_ || lost_ || !incoming_.empty(); };
  if (timeout == kNoTimeout) {
    changed_.wait(lock, ready);
  } else if (!changed_.wait_for(lock, timeout, ready)) {
    return false;
  }
  if (closed_) throw Closed();
  if (incoming_.empty()) throw ConnectionLost(fmt::format("{}: {}", peer_, reason_));
  piece.Swap(&incoming_.front());
  incoming_.pop_front();
  advance(lock);
  return true;
}

void Stream::close(const std::string& reason) {
  std::unique_lock lock(mutex_);
  if (closed_) return;
  closed_ = true;
  close_reason_ = reason;
  incoming_.clear();
  written_ = 0;
  const bool wait = !over_;
  advance(lock);
  if (wait) linger();
}

void Stream::cancel_because(const std::string& reason) {
  on_lost(reason);
  cancel();
}

bool Stream::lost() {
  const std::lock_guard lock(mutex_);
  return lost_;
}

void Stream::wait_over() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return over_; });
}

void Stream::begin() {
  std::unique_lock lock(mutex_);
  begun_ = true;
  advance(lock);
}

void Stream::on_read(bool ok) {
  std::unique_lock lock(mutex_);
  reading_ = false;
  if (!ok) ended_ = true;
  if (ok && !closed_) incoming_.emplace_back().Swap(&landing_);
  landing_.Clear();
  if (ended_) outgoing_.clear();
  advance(lock);
}

void Stream::on_write(bool ok) {
  std::unique_lock lock(mutex_);
  writing_ = false;
  ++written_;
  leaving_.Clear();
  if (!ok) ended_ = true;
  if (ended_) outgoing_.clear();
  advance(lock);
}

void Stream::on_ended() {
  std::unique_lock lock(mutex_);
  ended_ = true;
  outgoing_.clear();
  advance(lock);
}

void Stream::on_lost(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!lost_) reason_ = why;
    lost_ = true;
  }
  changed_.notify_all();
}

void Stream::on_over() {
  const auto self = shared_from_this();  // a waiting thread may drop the last other owner as soon as it wakes
  std::unique_ptr<::grpc::Alarm> alarm;
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    alarm_.swap(alarm);
  }
  changed_.notify_all();
}

// What to request from gRPC next. A closed stream goes on reading, because that shows when the peer ends.
Stream::Step Stream::next_step() {
  Step step;
  if (!begun_) return step;
  step.read = !reading_ && !ended_ && (closed_ || incoming_.size() < kRow);
  if (step.read) reading_ = true;
  step.write = !writing_ && !finished_ && !outgoing_.empty();
  if (step.write) {
    writing_ = true;
    leaving_.Swap(&outgoing_.front());
    outgoing_.pop_front();
  }
  step.finish = (closed_ || ended_) && !writing_ && !finished_ && outgoing_.empty();
  if (step.finish) finished_ = true;
  if (step.read || step.write || step.finish) ++asking_;
  step.release = can_release();
  return step;
}

// True once: when nothing is under way, and no thread is about to make a request it decided on before.
bool Stream::can_release() {
  if (!ended_ || !finished_ || reading_ || writing_ || asking_ > 0 || released_) return false;
  released_ = true;
  return true;
}

void Stream::advance(std::unique_lock<std::mutex>& lock) {
  Step step = next_step();
  const std::string reason = close_reason_;
  const auto self = shared_from_this();  // the last step may end the stream
  lock.unlock();
  changed_.notify_all();
  if (step.write) start_write(&leaving_);
  if (step.read) start_read(&landing_);
  if (step.finish) finish(reason);
  if (step.read || step.write || step.finish) {
    lock.lock();
    --asking_;
    step.release = can_release();
    lock.unlock();
  }
  if (step.release) release();
}

// Pieces of a closed stream are written as long as the peer takes them. Each call needs a new alarm: an alarm must not set itself again.
void Stream::linger() {
  auto alarm = std::make_unique<::grpc::Alarm>();
  alarm->Set(std::chrono::system_clock::now() + kLinger, [weak = weak_from_this()](bool expired) {
    const auto self = weak.lock();
    if (expired && self) self->cancel_if_stuck();
  });
  const std::lock_guard lock(mutex_);
  if (!over_) alarm_.swap(alarm);
}

void Stream::cancel_if_stuck() {
  bool stuck = false;
  {
    const std::lock_guard lock(mutex_);
    if (over_) return;
    stuck = std::exchange(written_, 0) == 0;
  }
  stuck ? cancel() : linger();
}

}  // namespace epipe::transport
