#pragma once

#include <csignal>
#include <cstdint>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstddef>

// Another machine for the rest of this process's life: one whose CPUID has AMX's tiles or lacks them, one whose kernel refuses AMX. For
// children that end soon.
namespace epipe::testing {

inline constexpr long kSetCpuid = 0x1012;           // ARCH_SET_CPUID
inline constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM

inline bool allow_cpuid(bool allowed) { return ::syscall(SYS_arch_prctl, kSetCpuid, allowed ? 1L : 0L) == 0; }

// Whether this CPU can be told to fault on CPUID, which is how the answers are changed.
inline bool cpuid_can_be_faked() {
  if (!allow_cpuid(false)) return false;
  return allow_cpuid(true);
}

inline bool fake_tiles_shown = false;

// Stands in for the CPUID instruction that faulted: the CPU's own answer, but for the leaf of the tiles.
inline void answer_cpuid(int, siginfo_t*, void* context) {
  auto* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const auto* const code = reinterpret_cast<const std::uint8_t*>(registers[REG_RIP]);
  if (code[0] != 0x0f || code[1] != 0xa2) {  // a crash like any other
    std::signal(SIGSEGV, SIG_DFL);
    return;
  }
  const auto leaf = static_cast<unsigned>(registers[REG_RAX]);
  const auto subleaf = static_cast<unsigned>(registers[REG_RCX]);
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  allow_cpuid(true);
  __cpuid_count(leaf, subleaf, eax, ebx, ecx, edx);
  allow_cpuid(false);
  if (leaf == 0) eax = fake_tiles_shown ? (eax < 0x1e ? 0x1e : eax) : 0x1c;
  if (leaf == 0x1d) {
    eax = ebx = ecx = edx = 0;
    if (fake_tiles_shown && subleaf == 0) eax = 1;  // one palette: 8 KiB in 8 tiles of 16 rows by 64 bytes
    if (fake_tiles_shown && subleaf == 1) eax = 0x04002000, ebx = 0x00080040, ecx = 16;
  }
  registers[REG_RAX] = eax;
  registers[REG_RBX] = ebx;
  registers[REG_RCX] = ecx;
  registers[REG_RDX] = edx;
  registers[REG_RIP] += 2;
}

inline void fake_tiles(bool shown) {
  fake_tiles_shown = shown;
  struct sigaction action {};
  action.sa_sigaction = answer_cpuid;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, nullptr);
  allow_cpuid(false);
}

// A kernel that says no to AMX. False where it cannot be had.
inline bool refuse_amx() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kRequestPermission, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),  // EPERM
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{sizeof(code) / sizeof(code[0]), code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace epipe::testing

#endif
