#!/usr/bin/env bash
# Builds `import epipe` with CUDA for the PyTorch of a python3, and runs the tests that need no server: codecs, cuts, and tensors on a CUDA
# device. Needs nvcc, CMake, Ninja and a CUDA PyTorch 2.x; no registry, no gRPC, and no pybind11 but PyTorch's own.
#
#   tools/check_python_device.sh [NAME...]    tests of tests/python: device codec cut package, unless named
#   PYTHON     the interpreter                python3
#   BUILD      the build's folder             build/python-cuda
#   JOBS       compilers at once              nproc
#   ARCH       of the device's code           90
#   CMAKE_ARGS more for CMake, e.g. -DCLI11_DIR=... -Dnlohmann_json_DIR=...; or their prefixes in CMAKE_PREFIX_PATH
#
# One line each; exit code 1 if anything failed or the device was not there, 2 if something is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${PYTHON:=python3}" "${BUILD:=build/python-cuda}" "${JOBS:=$(nproc)}" "${ARCH:=90}" "${CMAKE_ARGS:=}"
[ $# -gt 0 ] || set -- device codec cut package
case $BUILD in /*) ;; *) BUILD=$PWD/$BUILD ;; esac  # tests change their folder
missing() { echo "check_python_device: $*" >&2; exit 2; }

command -v nvcc > /dev/null || missing "expected nvcc (CUDA toolkit) on the PATH"
python=$(command -v "$PYTHON") || missing "expected $PYTHON on the PATH; PYTHON names another one"
"$python" -c 'import torch, numpy; assert torch.cuda.is_available()' || missing "expected $python to import torch and numpy and to see a CUDA device"
"$python" -c 'import torch; print(f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, {torch.cuda.get_device_name()}")'
headers=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
[ -e "$headers/Python.h" ] || missing "expected Python.h in $headers: the headers of $python"

mkdir -p "$BUILD"
prefix=$("$python" -c 'import torch; print(torch.utils.cmake_prefix_path)')
# shellcheck disable=SC2086
cmake -S . -B "$BUILD" -G Ninja -DCMAKE_BUILD_TYPE=Release -DEPIPE_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES="$ARCH" -DBUILD_TESTING=OFF \
  -DCMAKE_PREFIX_PATH="$prefix${CMAKE_PREFIX_PATH:+;${CMAKE_PREFIX_PATH//:/;}}" -DPython3_EXECUTABLE="$python" $CMAKE_ARGS > "$BUILD/configure.log" 2>&1 ||
  { tail -30 "$BUILD/configure.log"; exit 1; }
grep 'epipe:' "$BUILD/configure.log"
started=$SECONDS
cmake --build "$BUILD" -j "$JOBS" --target python > "$BUILD/build.log" 2>&1 || { tail -60 "$BUILD/build.log"; exit 1; }
echo "built in $((SECONDS - started)) s"

failed=0
for name in "$@"; do
  started=$SECONDS
  log=$BUILD/$name.log
  if PYTHONPATH="$BUILD/python" EPIPE_PROGRAM="$BUILD/epipe" PYTHONDONTWRITEBYTECODE=1 "$python" "tests/python/${name}_test.py" > "$log" 2>&1
  then echo "ok      $name: $(grep -E '^Ran ' "$log"), $(tail -1 "$log"), $((SECONDS - started)) s"
  else echo "FAILED  $name: see $log"; tail -60 "$log"; failed=1; fi
done
exit $failed
