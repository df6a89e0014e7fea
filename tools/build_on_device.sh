#!/usr/bin/env bash
# build_on_device.sh DEPS [TARGET...]: builds with CUDA on a machine that has nvcc, CMake and a CUDA PyTorch, but not Debian's packages: their headers
# and archives are in DEPS (bench/accuracy/carry.sh gathers them elsewhere). Leaves build/cuda/epipe, or the targets; logs are beside it.
set -euo pipefail
cd "$(dirname "$0")/.."
deps=$(realpath "$1")
shift
[ $# -gt 0 ] || set -- epipe
lib=$deps/lib/x86_64-linux-gnu
mkdir -p build/cuda
if [ ! -f build/cuda/build.ninja ]; then
  cmake --preset cuda -DCMAKE_PREFIX_PATH="$(python3 -c 'import torch; print(torch.utils.cmake_prefix_path)')" -DCMAKE_CUDA_ARCHITECTURES=90 \
    -DTORCH_CUDA_ARCH_LIST=9.0 -Dfmt_DIR="$lib/cmake/fmt" -DCLI11_DIR="$deps/share/cmake/CLI11" -Dnlohmann_json_DIR="$deps/share/cmake/nlohmann_json" \
    -DPCRE2_INCLUDE_DIR="$deps/include" -DPCRE2_LIBRARY="$lib/libpcre2-8.a" -DUTF8PROC_INCLUDE_DIR="$deps/include" \
    -DUTF8PROC_LIBRARY="$lib/libutf8proc.a" > build/cuda/configure.log 2>&1 || { tail -30 build/cuda/configure.log; exit 1; }
  grep 'epipe:' build/cuda/configure.log
fi
began=$SECONDS
ninja -C build/cuda "$@" > build/cuda/build.log 2>&1 || { grep -a -E 'error|FAILED' build/cuda/build.log | cut -c1-300 | head -30; exit 1; }
echo "built $* in $((SECONDS - began)) s"
