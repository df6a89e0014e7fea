#!/usr/bin/env bash
# Format, layers, warnings as errors, clang-tidy. Every step runs; the exit code says whether all passed.
set -uo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
failed=""
step() {
  local name=$1
  shift
  echo "== $name"
  "$@" || failed="$failed $name"
}

format() { git ls-files '*.cpp' '*.h' '*.cu' '*.cuh' | xargs clang-format --dry-run --Werror; }
warnings() { cmake --preset check >/dev/null && cmake --build --preset check -j "$jobs" -- --quiet; }
tidy() {
  # Precompiled headers are GCC's; clang-tidy reads the sources without them.
  cmake --preset check -B build/tidy -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >/dev/null || return 1
  # Without a database clang-tidy would guess the flags and complain about something else.
  [ -s build/tidy/compile_commands.json ] || { echo "build/tidy/compile_commands.json is missing"; return 1; }
  # Findings go to stdout; of stderr only the count of warnings in headers that are not ours is dropped.
  git ls-files 'src/*.cpp' | xargs -P "$jobs" -n 1 clang-tidy --quiet -p build/tidy 2> >(grep -vE '^[0-9]+ warnings? generated' >&2)
}
shell_scripts() { for script in tools/*.sh .ci/run; do bash -n "$script" || return 1; done; }

step format format
step layers tools/check_layers.py
step shell shell_scripts
step warnings warnings
step report tools/check_report.sh build/epipe
step tidy tidy
[ -z "$failed" ] || { echo "failed:$failed"; exit 1; }
echo "all checks passed"
