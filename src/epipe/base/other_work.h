#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace epipe {

// What is measured again and again has its code and tables in a core's caches. In a run something else was computed meanwhile, and they
// have to come back: this takes their place.
class OtherWork {
 public:
  void run() {
    for (auto& value : values_) ++value;
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{1} << 23;  // more than a core's own caches hold
  std::vector<std::uint64_t> values_ = std::vector<std::uint64_t>(kBytes / sizeof(std::uint64_t));
};

}  // namespace epipe
