#!/usr/bin/env bash
# The tests of CUDA code under compute-sanitizer's memcheck. LibTorch's allocator is set to cudaMallocAsync for it: then every tensor is an
# allocation of its own, so that an access beyond its end is seen, and memory is freed in the order of a stream, so that a use on another
# stream that nothing keeps it for is seen as well. A control shows that the second is: it does just that, and must be reported.
#
#   tools/check_device.sh [NAME...]    all, or those whose name begins so: control, streams, pipeline, dropout, codec
#   BUILD      the build's folder       build/cuda
#   JOBS       programs at once         8
#   TOOL       memcheck, racecheck, synccheck or initcheck
#
# One line each; whole logs in BUILD/sanitizer. Exit code 1 if anything failed or was reported.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${BUILD:=build/cuda}" "${JOBS:=8}" "${TOOL:=memcheck}"
command -v compute-sanitizer > /dev/null || { echo "check_device: expected compute-sanitizer (CUDA toolkit) on the PATH" >&2; exit 2; }
[ -x "$BUILD/tests/codec_tests" ] || { echo "check_device: expected tests in $BUILD/tests; build with: cmake --build --preset cuda" >&2; exit 2; }
logs=$BUILD/sanitizer
mkdir -p "$logs"
shards=12

# name, program, file ("all" when the program has only one), tests
checks() {
  if [ "$TOOL" = memcheck ]; then echo "control pipeline_device_test all Control.*"; fi
  for test in 0 1 2 3 4; do echo "streams.$test pipeline_device_test all *SideStreams*/$test"; done
  echo "pipeline pipeline_device_test all OnDevice.*"
  echo "dropout layer_tests layer/dropout *Device*"
  for shard in $(seq 0 $((shards - 1))); do echo "codec.$shard codec_tests codec/device *"; done
}

check() {
  local name=$1 program=$2 file=$3 filter=$4 started=$SECONDS status=0 shard=() only=()
  [ "$file" = all ] || only=(--only="$file")
  case $name in codec.*) shard=(GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX="${name#codec.}") ;; esac
  local options=(--tool "$TOOL" --error-exitcode 99 --print-limit 20)
  [ "$TOOL" = memcheck ] && options+=(--track-stream-ordered-races all)
  env "${shard[@]}" PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync \
    compute-sanitizer "${options[@]}" "$BUILD/tests/$program" "${only[@]}" --gtest_also_run_disabled_tests --gtest_filter="$filter" > "$logs/$name.log" 2>&1 || status=$?
  local said tests expected=0
  said=$(grep -a "SUMMARY:" "$logs/$name.log" | tail -1 | sed 's/=* *//')
  tests=$(grep -a -c "^\[       OK" "$logs/$name.log") || true
  [ "$name" = control ] && expected=99
  if [ "$status" = "$expected" ] && [ "$tests" != 0 ]; then echo "ok      $name: $tests tests passed, $said, $((SECONDS - started)) s"
  else echo "FAILED  $name: exit code $status (expected $expected), $tests tests passed, ${said:-no summary}; see $logs/$name.log"; return 1; fi
}
export -f check
export BUILD TOOL logs shards

wanted=${*:-.}
checks | grep -E "^(${wanted// /|})" | xargs -r -P "$JOBS" -L 1 bash -c 'check "$@"' check || exit 1
