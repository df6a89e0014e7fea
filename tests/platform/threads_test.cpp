// The libraries underneath keep to the number of threads a worker asks for.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/types.h>

#include "epipe/base/clock.h"

namespace epipe {
namespace {

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Spinning helper threads of a BLAS that ignores the setting would show up as CPU time beyond the wall time.
TEST(Threads, AOneThreadWorkerUsesOneCore) {
  at::set_num_threads(1);
  const auto a = torch::randn({700, 700});
  auto b = torch::mm(a, a);  // start-up is not counted
  const double cpu = cpu_seconds();
  const Stopwatch watch;
  while (watch.seconds() < 0.5) b = torch::mm(a, a);
  const double cores = (cpu_seconds() - cpu) / watch.seconds();
  EXPECT_LE(cores, 1.1) << "matrix products use " << cores
                        << " cores with one thread asked for; the BLAS in use ignores it. On Debian install libopenblas0-openmp "
                           "and select it with update-alternatives --config libblas.so.3-x86_64-linux-gnu";
}

}  // namespace
}  // namespace epipe
