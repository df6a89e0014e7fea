#pragma once

#include <malloc.h>
#include <sys/resource.h>

#include <cstdint>
#include <fstream>

namespace epipe {

// Peak resident memory of this process, in bytes.
inline std::uint64_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

// Resident memory of this process now, in bytes; 0 if the system does not report it.
inline std::uint64_t resident_bytes() {
  std::uint64_t size = 0;
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> size >> pages;
  return pages * 4096;
}

// Bytes it has allocated and not freed; 0 if the C library does not report it.
inline std::uint64_t allocated_bytes() {
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
  const auto info = mallinfo2();
  return info.uordblks + info.hblkhd;
#else
  return 0;
#endif
}

}  // namespace epipe
