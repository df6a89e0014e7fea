#pragma once

#include <cstdint>
#include <optional>
#include <string>

// AMX is a set of tile registers for products of bf16 and int8 matrices. oneDNN, which LibTorch computes bf16 with, uses it wherever the
// CPU's feature bits announce it. That ends in SIGILL on a virtual machine that announces AMX but hides the CPUID leaf with the tile
// sizes, so oneDNN is kept away from AMX that cannot work.
namespace epipe {

enum class Amx : std::uint8_t {
  kAbsent,      // not on this CPU, or not switched on by the operating system
  kGranted,     // the kernel lets this process use it
  kRefused,     // the kernel does not
  kIncomplete,  // announced without the sizes of its tiles
};

struct AmxUse {
  Amx amx = Amx::kAbsent;
  std::optional<std::string> onednn_limit;  // the instruction set oneDNN may use at most, by epipe or by the user
};

// The result found when the library was loaded: every program that links it asks the kernel before its main() begins.
const AmxUse& amx_use();

// Detects again, asks again, and limits oneDNN where AMX is announced but cannot be used. The limit is the environment variable
// ONEDNN_MAX_CPU_ISA, unless the user limits oneDNN further; oneDNN reads it once, on first use.
AmxUse prepare_amx();

// "granted", "refused; oneDNN limited to AVX512_CORE_BF16", ...
std::string describe(const AmxUse& use);

}  // namespace epipe
