#include "epipe/base/amx.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <string_view>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace epipe {
namespace {

constexpr const char* kLimitVariable = "ONEDNN_MAX_CPU_ISA";
constexpr const char* kOlderVariable = "DNNL_MAX_CPU_ISA";  // oneDNN reads it where the newer one is not set
constexpr const char* kLargestWithoutAmx = "AVX512_CORE_BF16";

#if defined(__x86_64__) && defined(__linux__)

struct CpuidLeaf {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
};

// All zeros beyond the last leaf.
CpuidLeaf cpuid(unsigned leaf, unsigned subleaf) {
  CpuidLeaf got;
  __get_cpuid_count(leaf, subleaf, &got.eax, &got.ebx, &got.ecx, &got.edx);
  return got;
}

// The register states that the operating system saves when it switches tasks.
unsigned saved_states() {
  unsigned low = 0;
  unsigned high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));  // NOLINT(hicpp-no-assembler): the intrinsic needs a target attribute
  return low;
}

bool amx_is_announced() {
  constexpr unsigned kOsXsave = 1U << 27;
  constexpr unsigned kAmxTile = 1U << 24;
  constexpr unsigned kTileStates = (1U << 17) | (1U << 18);  // configuration and data
  if ((cpuid(1, 0).ecx & kOsXsave) == 0 || (cpuid(7, 0).edx & kAmxTile) == 0) return false;
  return (saved_states() & kTileStates) == kTileStates;
}

// Leaf 1DH counts the palettes and describes each: palette 1 has eight tiles of 16 rows by 64 bytes on every CPU so far.
bool amx_has_tiles() {
  const unsigned palettes = cpuid(0x1d, 0).eax;
  const CpuidLeaf first = cpuid(0x1d, 1);
  const unsigned tiles = first.ebx >> 16;
  const unsigned row_bytes = first.ebx & 0xffff;
  const unsigned rows = first.ecx & 0xffff;
  return palettes >= 1 && tiles > 0 && row_bytes > 0 && rows > 0;
}

bool kernel_grants_amx() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

Amx find_amx() {
  if (!amx_is_announced()) return Amx::kAbsent;
  if (!amx_has_tiles()) return Amx::kIncomplete;
  return kernel_grants_amx() ? Amx::kGranted : Amx::kRefused;
}

#else

Amx find_amx() { return Amx::kAbsent; }

#endif

std::optional<std::string> limit_of_environment() {
  for (const char* const name : {kLimitVariable, kOlderVariable}) {
    if (const char* const value = std::getenv(name); value != nullptr && *value != '\0') return value;
  }
  return std::nullopt;
}

// Names that every version of oneDNN knows: it ignores a limit whose name it does not know.
bool keeps_from_amx(std::string limit) {
  std::transform(limit.begin(), limit.end(), limit.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  constexpr std::array<std::string_view, 7> kWithoutAmx = {"SSE41",           "AVX", "AVX2", "AVX2_VNNI", "AVX512_CORE", "AVX512_CORE_VNNI",
                                                           kLargestWithoutAmx};
  return std::find(kWithoutAmx.begin(), kWithoutAmx.end(), limit) != kWithoutAmx.end();
}

}  // namespace

AmxUse prepare_amx() {
  AmxUse use{find_amx(), limit_of_environment()};
  if (use.amx == Amx::kAbsent || use.amx == Amx::kGranted) return use;
  if (!use.onednn_limit || !keeps_from_amx(*use.onednn_limit)) {
    ::setenv(kLimitVariable, kLargestWithoutAmx, 1);
    use.onednn_limit = kLargestWithoutAmx;
  }
  return use;
}

const AmxUse& amx_use() {
  static const AmxUse use = prepare_amx();
  return use;
}

std::string describe(const AmxUse& use) {
  const std::string limit = use.onednn_limit ? "; oneDNN limited to " + *use.onednn_limit : "";
  switch (use.amx) {
    case Amx::kAbsent: return "not on this CPU" + limit;
    case Amx::kGranted: return "granted" + limit;
    case Amx::kRefused: return "refused by the kernel" + limit;
    case Amx::kIncomplete: return "announced without the sizes of its tiles, as by some virtual machines" + limit;
  }
  return "";
}

}  // namespace epipe

// Runs before the constructors of any program that links this: those may compute already. src/epipe/CMakeLists.txt makes the linker
// include this file from the static library even when nothing refers to it.
extern "C" __attribute__((constructor(101))) void epipe_prepare_amx() { epipe::amx_use(); }
