#include "epipe/serve/channel_broker.h"

#include <fmt/format.h>

namespace epipe::serve {
namespace {

constexpr std::size_t kMaxWaiting = 64;

}  // namespace

void ChannelBroker::put(const Key& key, std::unique_ptr<transport::Link> link) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(waiting_, [&](const auto& entry) { return entry.first.attempt < key.attempt; });
    if (waiting_.size() >= kMaxWaiting) return;  // more than any session needs: the link closes
    waiting_[key] = std::move(link);
  }
  changed_.notify_all();
}

std::unique_ptr<transport::Link> ChannelBroker::take(const Key& key, transport::Timeout timeout) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, timeout, [&] { return waiting_.contains(key) || over_; })) {
    throw transport::TimedOut(fmt::format("worker {} did not open its data channel at cut {} within {} s", key.from, key.cut,
                                          std::chrono::duration<double>(timeout).count()));
  }
  if (over_) throw transport::ConnectionLost("the client connected again");
  auto link = std::move(waiting_[key]);
  waiting_.erase(key);
  return link;
}

void ChannelBroker::set_over(bool over) {
  {
    const std::lock_guard lock(mutex_);
    over_ = over;
  }
  changed_.notify_all();
}

}  // namespace epipe::serve
