#pragma once

#include <cstdint>
#include <string_view>

namespace epipe {

// Instruction sets that code of epipe's own exists for, in ascending order. kScalar is plain x86-64, or any other CPU.
enum class CpuLevel : std::uint8_t { kScalar, kAvx2, kAvx512 };

// "scalar", "avx2" or "avx512"; anything else throws std::invalid_argument.
CpuLevel parse_cpu_level(std::string_view text);

// The highest level that may be used where the CPU has it: the environment's EPIPE_CPU, read once, or kAvx512 where that is unset or
// empty. Whoever chooses between instruction sets asks here first and the CPU second, so that a machine can play a smaller one.
CpuLevel cpu_level_limit();

}  // namespace epipe
