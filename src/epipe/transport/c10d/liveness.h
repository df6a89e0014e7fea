#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "epipe/transport/c10d/backend.h"

namespace epipe::transport {

// Detects dead ranks, for backends that cannot: every rank increments a counter in the store, and a rank whose counter stops is gone.
class Liveness {
 public:
  Liveness(Store store, int rank, int size);
  ~Liveness();
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  std::string lost(int rank);  // why it is gone, or empty while it is there

 private:
  using Clock = std::chrono::steady_clock;
  struct Sign {
    std::int64_t count = -1;
    Clock::time_point at = Clock::now();
  };
  void watch();
  void look();

  Store store_;
  const int rank_;
  const int size_;
  std::mutex mutex_;
  std::condition_variable stopping_;
  bool stopped_ = false;  // mutex_ guards this and lost_
  std::map<int, std::string> lost_;
  std::map<int, Sign> signs_;  // used only by the thread
  std::thread thread_;
};

}  // namespace epipe::transport
