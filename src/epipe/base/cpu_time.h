#pragma once

#include <ctime>

namespace epipe {

// What all threads of this process have used so far, in seconds of a core, the kernel's work for them included.
inline double process_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace epipe
