#include "epipe/base/cpu_level.h"

#include <fmt/format.h>

#include <cstdlib>
#include <stdexcept>

namespace epipe {

CpuLevel parse_cpu_level(std::string_view text) {
  if (text == "scalar") return CpuLevel::kScalar;
  if (text == "avx2") return CpuLevel::kAvx2;
  if (text == "avx512") return CpuLevel::kAvx512;
  throw std::invalid_argument(fmt::format("EPIPE_CPU: expected scalar, avx2 or avx512, got '{}'; unset it to use all this CPU has", text));
}

CpuLevel cpu_level_limit() {
  static const CpuLevel limit = [] {
    const char* const text = std::getenv("EPIPE_CPU");
    return text == nullptr || *text == '\0' ? CpuLevel::kAvx512 : parse_cpu_level(text);
  }();
  return limit;
}

}  // namespace epipe
