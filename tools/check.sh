#!/usr/bin/env bash
# Format, layers, links and line length of the docs, warnings as errors (files compiled together and alone), clang-tidy. Every step runs; the exit code says whether all passed.
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
# Each way of compiling has its own: a name that two files of a folder share fails together, a missing include fails alone.
warnings() { cmake --preset check -DEPIPE_UNITY=ON >/dev/null && cmake --build --preset check -j "$jobs" -- --quiet; }
warnings_alone() {
  cmake --preset check -B build/check_alone -DEPIPE_UNITY=OFF >/dev/null && cmake --build build/check_alone -j "$jobs" -- --quiet
}
tidy() {
  # Precompiled headers are GCC's; clang-tidy reads the sources without them, and one by one.
  cmake --preset check -B build/tidy -DEPIPE_UNITY=OFF -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >/dev/null || return 1
  # Without a database clang-tidy would guess the flags and complain about something else.
  [ -s build/tidy/compile_commands.json ] || { echo "build/tidy/compile_commands.json is missing"; return 1; }
  # Findings go to stdout; of stderr only the count of warnings in headers that are not ours is dropped.
  git ls-files 'src/*.cpp' | xargs -P "$jobs" -n 1 clang-tidy --quiet -p build/tidy 2> >(grep -vE '^[0-9]+ warnings? generated' >&2)
}
shell_scripts() { for script in tools/*.sh .ci/run; do bash -n "$script" || return 1; done; }

step format format
step layers tools/check_layers.py
step links tools/check_links.py
step line_length tools/check_line_length.py
step shell shell_scripts
step warnings warnings
step warnings_alone warnings_alone
step report tools/check_report.sh build/epipe
step watch tools/check_watch.py build/epipe
step tidy tidy
[ -z "$failed" ] || { echo "failed:$failed"; exit 1; }
echo "all checks passed"
