#pragma once

#include <cstdint>
#include <string_view>

namespace epipe {

// Instruction sets that epipe has its own code for, in ascending order. kScalar is plain x86-64, or any other CPU.
enum class CpuLevel : std::uint8_t { kScalar, kAvx2, kAvx512 };

// "scalar", "avx2" or "avx512"; anything else throws std::invalid_argument.
CpuLevel parse_cpu_level(std::string_view text);

// The highest level that may be used if the CPU supports it: the environment variable EPIPE_CPU, read once, or kAvx512 if that is unset or
// empty. Code that dispatches by instruction set checks this first and the CPU second, so that a machine can act as a smaller one.
CpuLevel cpu_level_limit();

}  // namespace epipe
