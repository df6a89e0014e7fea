#!/usr/bin/env bash
# Builds and tests `import epipe` against PyTorch 2.x of PyPI: build/python-2x/venv is the environment, build/python-2x the build.
# TORCH names another wheel (default: torch). Needs a registry; everything else comes from packages.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=build/python-2x/venv
[ -x $venv/bin/python3 ] || python3 -m venv $venv || { echo "make python-2x: python3 -m venv failed (Debian: apt-get install python3-venv)" >&2; exit 1; }
$venv/bin/pip install --quiet numpy "${TORCH:-torch}"
torch=$($venv/bin/python3 -c 'import torch; print(torch.__path__[0])')
find_torch=(-DCMAKE_PREFIX_PATH="$torch/share/cmake")
command -v nvcc > /dev/null || find_torch=(-DTorch_DIR="$PWD/tools/torch_cpu" -DEPIPE_TORCH_WHEEL="$torch")
cmake --preset release -B build/python-2x "${find_torch[@]}" -DPython3_EXECUTABLE="$PWD/$venv/bin/python3" > build/python-2x/configure.log ||
  { cat build/python-2x/configure.log; exit 1; }
grep 'epipe:' build/python-2x/configure.log
cmake --build build/python-2x -j "${JOBS:-2}" --target python
ctest --test-dir build/python-2x --output-on-failure -R '^python/'
