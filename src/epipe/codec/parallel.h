#pragma once

#include <atomic>
#include <cstddef>

#include "epipe/base/thread_pool.h"

namespace epipe::codec {

inline constexpr std::size_t kWorthSharing = std::size_t{1} << 14U;  // values; fewer are done before another thread wakes up

inline std::size_t threads_of(const ThreadPool* pool) { return pool == nullptr ? 1 : static_cast<std::size_t>(pool->threads()); }

// Calls work(thread, next) on one or more threads, fewer than threads_of(pool) where the values are few; next() gives each of the
// items 0 ... count - 1 to one of them and `count` when none is left.
template <typename Work>
void share_items(ThreadPool* pool, std::size_t values, std::size_t count, Work&& work) {
  std::atomic<std::size_t> taken = 0;
  const auto next = [&] { return std::min(count, taken.fetch_add(1, std::memory_order_relaxed)); };
  if (threads_of(pool) == 1 || values < kWorthSharing) return work(std::size_t{0}, next);
  pool->run(std::min(count, threads_of(pool)), [&](std::size_t thread) { work(thread, next); });
}

}  // namespace epipe::codec
