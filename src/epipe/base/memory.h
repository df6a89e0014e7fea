#pragma once

#include <sys/resource.h>

#include <cstdint>

namespace epipe {

// The most memory this process has held, in bytes.
inline std::uint64_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace epipe
