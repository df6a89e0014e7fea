#include "epipe/transport/c10d/liveness.h"

#include <fmt/format.h>

namespace epipe::transport {
namespace {

constexpr std::chrono::milliseconds kInterval{250};
constexpr std::chrono::seconds kTimeout{3};

std::string key(int rank) { return fmt::format("alive/{}", rank); }

}  // namespace

Liveness::Liveness(Store store, int rank, int size) : store_(std::move(store)), rank_(rank), size_(size) {
  thread_ = std::thread([this] { watch(); });
}

Liveness::~Liveness() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  stopping_.notify_all();
  thread_.join();
}

std::string Liveness::lost(int rank) {
  const std::lock_guard lock(mutex_);
  const auto found = lost_.find(rank);
  return found == lost_.end() ? std::string() : found->second;
}

// The thread's loop. Without the store no rank can be seen.
void Liveness::watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_.wait_for(lock, kInterval, [this] { return stopped_; })) {
    lock.unlock();
    std::string failure;
    try {
      look();
    } catch (const std::exception& caught) {
      failure = caught.what();
    }
    lock.lock();
    if (failure.empty()) continue;
    for (int rank = 0; rank < size_; ++rank) lost_.emplace(rank, fmt::format("rank {} cannot be seen: the store of rank 0 is gone", rank));
    return;
  }
}

void Liveness::look() {
  store_->add(key(rank_), 1);
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    Sign& sign = signs_[rank];
    const std::int64_t count = store_->add(key(rank), 0);
    if (count != sign.count) sign = {count, Clock::now()};
    if (Clock::now() - sign.at < kTimeout) continue;
    const std::lock_guard lock(mutex_);
    lost_.emplace(rank, fmt::format("rank {} is gone: no sign of it for {} s", rank, kTimeout.count()));
  }
}

}  // namespace epipe::transport
