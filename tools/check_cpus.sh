#!/usr/bin/env bash
# The tests on other CPUs than this one. `qemu`: base, wire, kernels, codecs and bf16 on emulated CPUs without AVX-512, AVX2, AVX and SSE4;
# `levels`: the whole suite with oneDNN, ATen, OpenBLAS, the C library and epipe's kernels held at each level this CPU has. Both by default.
# Needs everything built in build/. Every step runs; the exit code says whether all passed.
set -uo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
logs=build/cpus
failed=""
mkdir -p "$logs"

# One line per test: its name and its command.
commands_of() {
  ctest --test-dir build -R "$1" --show-only=json-v1 |
    /usr/bin/python3 -c 'import json, sys
for test in json.load(sys.stdin)["tests"]: print(test["name"], *test["command"])'
}

# emulate CPU NAME COMMAND...: one test; what it printed is shown only when it fails. Data beside the checkout is too much for an emulator.
# qemu-user 7.2 has nothing beyond AVX2, and warns about what else it lacks of a CPU of that name (x2apic, ...).
emulate() {
  local cpu=$1 name=$2
  shift 2
  local log="$logs/$cpu-${name//\//_}.log"
  EPIPE_SHARED=/nonexistent timeout 3600 qemu-x86_64 -cpu "$cpu" "$@" --gtest_brief=1 >"$log" 2>&1 </dev/null && return
  echo "$cpu: $name failed"
  grep -v "TCG doesn't support" "$log" | tail -n 30
  return 1
}
export -f emulate
export logs

qemu() {
  command -v qemu-x86_64 >/dev/null || { echo "qemu-x86_64 is missing: tools/setup.sh packages-check.txt"; failed="$failed qemu"; return; }
  commands_of '^((base|wire|codec)/[^@]*|pipeline/precision)$' >"$logs/commands"
  [ -s "$logs/commands" ] || { echo "no tests in build/: run make all"; failed="$failed qemu"; return; }
  for cpu in max Haswell SandyBridge Nehalem Conroe; do
    echo "== qemu -cpu $cpu: $(wc -l <"$logs/commands") tests"
    xargs -P "$jobs" -L 1 bash -c 'emulate "$@"' emulate "$cpu" <"$logs/commands" || failed="$failed qemu:$cpu"
  done
}

has() { for flag in "$@"; do grep -qwm1 "$flag" /proc/cpuinfo || return 1; done; }

# at NAME FLAGS VARIABLE=VALUE...: all tests with these variables, where /proc/cpuinfo has all the flags.
at() {
  local name=$1 flags=$2
  shift 2
  if ! has $flags; then
    echo "== $name: skipped, this CPU lacks one of: $flags"
    return
  fi
  echo "== $name: $*"
  env "$@" ctest --test-dir build --output-on-failure -j "$jobs" >"$logs/$name.log" 2>&1 || failed="$failed $name"
  grep -vE '^ *Start | Passed ' "$logs/$name.log"
}

levels() {
  local no_amx="GTEST_FILTER=-AmxMachine.*LeavesIt"  # which ask oneDNN for AMX
  # The C library chooses, too: between variants of exp, log and pow that may round differently, and how to compute fma.
  at sse41 "" ONEDNN_MAX_CPU_ISA=SSE41 ATEN_CPU_CAPABILITY=default EPIPE_CPU=scalar OPENBLAS_CORETYPE=Nehalem \
    GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F "$no_amx"
  at avx2 "avx2 fma" ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 EPIPE_CPU=avx2 OPENBLAS_CORETYPE=Haswell "$no_amx"
  at zen "avx2 fma" ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 EPIPE_CPU=avx2 OPENBLAS_CORETYPE=Zen "$no_amx"
  at avx512 "avx512f avx512bw avx512dq avx512vl" ONEDNN_MAX_CPU_ISA=AVX512_CORE ATEN_CPU_CAPABILITY=avx512 EPIPE_CPU=avx512 \
    OPENBLAS_CORETYPE=SkylakeX
  at bf16 "avx512_bf16" ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 ATEN_CPU_CAPABILITY=avx512 EPIPE_CPU=avx512 OPENBLAS_CORETYPE=Cooperlake
}

for part in ${*:-qemu levels}; do
  case $part in
    qemu | levels) "$part" ;;
    *) echo "check_cpus: expected qemu or levels, got $part" >&2; exit 2 ;;
  esac
done
[ -z "$failed" ] || { echo "failed:$failed"; exit 1; }
echo "passed on every CPU"
