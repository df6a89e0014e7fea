#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace epipe {

// A fixed number of threads that split one loop at a time. The caller counts as one, so a pool of 1 starts none.
// run() is not reentrant and one thread at a time may call it.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(helpers_.size()) + 1; }

  // Calls task(0) ... task(count - 1), each once, in no particular order, and returns when all are done. Rethrows the first exception.
  void run(std::size_t count, const std::function<void(std::size_t)>& task);

 private:
  void help();
  void drain(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  const std::function<void(std::size_t)>* task_ = nullptr;  // null: nothing to do
  std::size_t next_ = 0;
  std::size_t count_ = 0;
  std::size_t running_ = 0;
  std::exception_ptr failure_;
  bool stop_ = false;
  std::vector<std::thread> helpers_;
};

// Splits [0, n) into one contiguous part per thread, each but the last a multiple of `align` long, and calls
// part(index, begin, end). A null pool, or too little work to split, gives one part. Returns the number of parts.
template <typename Part>
std::size_t for_parts(ThreadPool* pool, std::size_t n, std::size_t align, Part&& part) {
  constexpr std::size_t kWorthSharing = std::size_t{1} << 15;
  const std::size_t threads = pool == nullptr || n < kWorthSharing ? 1 : static_cast<std::size_t>(pool->threads());
  if (threads == 1) {
    part(std::size_t{0}, std::size_t{0}, n);
    return 1;
  }
  const std::size_t each = ((n + threads - 1) / threads + align - 1) / align * align;
  const std::size_t parts = (n + each - 1) / each;
  pool->run(parts, [&](std::size_t i) { part(i, i * each, std::min(n, (i + 1) * each)); });
  return parts;
}

}  // namespace epipe
