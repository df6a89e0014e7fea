#!/usr/bin/env bash
# subdirectory.sh SOURCE COMPILER: a project that adds epipe as a folder is configured, and nothing but the library's header reaches it.
set -euo pipefail
source=$1
compiler=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

cat > "$work/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(outside LANGUAGES CXX)
add_subdirectory($source epipe)
add_executable(codec $source/examples/codec.cpp)
target_link_libraries(codec PRIVATE epipe::epipe)
END
cmake -S "$work" -B "$work/build" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON > "$work/log" 2>&1 || { cat "$work/log"; fail "configure"; }
own=$(grep -A3 -B3 'examples/codec.cpp' "$work/build/compile_commands.json" | grep '"command"' | grep 'examples/codec.cpp')
[ -n "$own" ] || fail "no command compiles the example"
for leak in Wconversion fpch-preprocess "I$source/src" O3; do
  ! grep -q -- "-$leak" <<< "$own" || fail "-$leak reaches those who add the folder: $own"
done
[ -f "$work/build/epipe/include/epipe/epipe.h" ] || fail "the header is not there"
(cd "$work/build" && ctest -N) | grep -q 'Total Tests: 0' || fail "epipe's tests are part of another project"
