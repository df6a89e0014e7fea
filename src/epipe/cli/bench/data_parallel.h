#pragma once

#include <cstdint>

#include "epipe/cli/bench/subject.h"

namespace epipe::cli {

// Two replicas with one single-threaded worker each, in two threads of this process, connected by gloo over loopback.
struct DataParallel {
  double one_ms = 0;  // per step, one worker with the whole batch
  double two_ms = 0;
  double bound_ms = 0;           // one_ms / 2, plus sending the sums at the loopback's rate without overlap
  double wait_ms = 0;            // waiting for sums, after the backward
  std::uint64_t sent_bytes = 0;  // by each replica
  double loopback_MBps = 0;
};

// Each replica has half of the micro-batches. Alternates with the single worker.
DataParallel measure_data_parallel(const Subject& subject, int chunks, int rounds);

}  // namespace epipe::cli
