#!/usr/bin/env bash
# Builds epipe against PyTorch 2.x of PyPI and tests it there: first `import epipe`, then the C++ tests, whose Python peers (torchvision,
# Hugging Face, TensorBoard) are in the same virtual environment, $BUILD/venv; environment and build are several gigabytes. Needs a
# registry; everything else comes from packages.txt. Without nvcc on the PATH the CPU part of the wheel is used.
#
#   tools/python_2x.sh [TARGET...]    test programs to build and run, e.g. codec_tests; by default all, "none" for the module alone
#   TORCH    another wheel, e.g. torch==2.6.0    torch
#   PYTHON   the interpreter                     python3
#   BUILD    the build's folder                  build/python-2x
#   JOBS     compilers and tests at once         2
set -euo pipefail
cd "$(dirname "$0")/.."
: "${TORCH:=torch}" "${PYTHON:=python3}" "${BUILD:=build/python-2x}" "${JOBS:=2}"
case $BUILD in /*) ;; *) BUILD=$PWD/$BUILD ;; esac  # tests change their folder
python=$BUILD/venv/bin/python3
[ -x "$python" ] || "$PYTHON" -m venv "$BUILD/venv" || { echo "make python-2x: $PYTHON -m venv failed (Debian: apt-get install python3-venv)" >&2; exit 1; }
"$python" -m pip install --quiet numpy "$TORCH" torchvision transformers peft safetensors tensorboard matplotlib
"$python" -c 'import torch; print(f"PyTorch {torch.__version__}")'

torch=$("$python" -c 'import torch; print(torch.__path__[0])')
find_torch=(-DCMAKE_PREFIX_PATH="$torch/share/cmake")
command -v nvcc > /dev/null || find_torch=(-DTorch_DIR="$PWD/tools/torch_cpu" -DEPIPE_TORCH_WHEEL="$torch")
cmake --preset release -B "$BUILD" "${find_torch[@]}" -DPython3_EXECUTABLE="$python" > "$BUILD/configure.log" || { cat "$BUILD/configure.log"; exit 1; }
grep 'epipe:' "$BUILD/configure.log"

test_there() { EPIPE_PYTHON=$python ctest --test-dir "$BUILD" --output-on-failure -j "$JOBS" "$@"; }
cmake --build "$BUILD" -j "$JOBS" --target python
failed=0
test_there -R '^python/' || failed=1
if [ $# -eq 0 ]; then
  cmake --build "$BUILD" -j "$JOBS"
  test_there -E '^python/' || failed=1
elif [ "$*" != none ]; then
  cmake --build "$BUILD" -j "$JOBS" --target "$@"
  folders=$(printf '%s\n' "$@" | sed 's/_tests$//' | paste -sd'|')  # codec_tests has the tests codec/...
  test_there -R "^($folders)/" || failed=1
fi
exit $failed
