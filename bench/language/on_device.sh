#!/usr/bin/env bash
# on_device.sh CARRIED DIR: builds with CUDA on a machine without Debian's packages, and unpacks what this benchmark needs. CARRIED holds
# PCRE2's and utf8proc's headers and archives (deps/), the packed corpus and the tokenizer. Leaves build/cuda/epipe, DIR/c, DIR/java, DIR/init.
set -euo pipefail
cd "$(dirname "$0")/../.."
carried=$(realpath "$1")
dir=$2
torch=$(python3 -c 'import torch; print(torch.utils.cmake_prefix_path)')
cmake --preset cuda -DCMAKE_PREFIX_PATH="$torch" -DCMAKE_CUDA_ARCHITECTURES=90 -DTORCH_CUDA_ARCH_LIST=9.0 -DPCRE2_INCLUDE_DIR="$carried/deps/include" -DPCRE2_LIBRARY="$carried/deps/lib/libpcre2-8.a" \
  -DUTF8PROC_INCLUDE_DIR="$carried/deps/include" -DUTF8PROC_LIBRARY="$carried/deps/lib/libutf8proc.a" > /tmp/configure.log 2>&1 || { tail -30 /tmp/configure.log; exit 1; }
grep 'epipe:' /tmp/configure.log
time ninja -C build/cuda -k 0 ${TARGETS:-epipe} > /tmp/build.log 2>&1 || { grep -a -E 'error|FAILED' /tmp/build.log | cut -c1-300 | head -30; exit 1; }
mkdir -p "$dir/init"
for packed in "$carried"/*.tar.xz; do tar xJf "$packed" -C "$dir"; done
cp "$carried/tokenizer.json" "$dir/init/"
cp bench/language/llama_32m.json "$dir/init/config.json"
