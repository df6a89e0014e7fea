#!/usr/bin/env bash
# on_device.sh CARRIED DIR: builds with CUDA on a machine without Debian's packages, and unpacks what this benchmark needs. CARRIED holds
# deps/ (bench/accuracy/carry.sh), the packed corpus and the tokenizer. Leaves build/cuda/epipe, DIR/c, DIR/java, DIR/init.
set -euo pipefail
cd "$(dirname "$0")/../.."
carried=$(realpath "$1")
dir=$2
tools/build_on_device.sh "$carried/deps"
mkdir -p "$dir/init"
for packed in "$carried"/*.tar.xz; do tar xJf "$packed" -C "$dir"; done
cp "$carried/tokenizer.json" "$dir/init/"
cp bench/language/llama_32m.json "$dir/init/config.json"
