#!/usr/bin/env bash
# glue_pretrained.sh CARRIED OUT SECONDS [TASK:EPOCHS...]: a pretrained MiniLM on GLUE tasks with coded cuts, on a machine with a CUDA device.
# CARRIED is by carry.sh. Builds if build/cuda/epipe is missing; then trains JOBS (8) at a time, seed 0 of every codec first, and begins no
# run after SECONDS of them. OUT gets glue.jsonl, a line for each run that ended, and hf.jsonl, the same training by transformers without
# cuts. Runs whose lines are in OUT/glue.jsonl already are left out, so that a second call goes on.
set -euo pipefail
carried=$(realpath "$1") seconds=$3
mkdir -p "$2"
out=$(realpath "$2")
shift 3
[ $# -gt 0 ] || set -- rte:20 cola:5
cd "$(dirname "$0")/../.."
work=${WORK:-/tmp/glue}
mkdir -p "$work"

[ -x build/cuda/epipe ] || tools/build_on_device.sh "$carried/deps"

# Several processes on one device take turns unless this service runs; without it everything works, more slowly.
export CUDA_MPS_PIPE_DIRECTORY=$work/mps CUDA_MPS_LOG_DIRECTORY=$work/mps
mkdir -p "$work/mps"
nvidia-cuda-mps-control -d > /dev/null 2>&1 && trap 'echo quit | nvidia-cuda-mps-control > /dev/null 2>&1' EXIT && echo "MPS runs" || unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY

rm -f "$work/runs.jsonl"
peers=()
for task in "$@"; do
  EPOCHS=${task#*:} bench/accuracy/glue_runs.py "$carried/minilm" "$carried/glue" "${task%:*}" "${SEEDS:-3}" "${CODECS:-none sort:12+4 sort:9+3 sort:6+2 sort:3+1 ec:2 dct:1 auto:1}" >> "$work/runs.jsonl"
  if [ "${HF:-1}" = 1 ]; then
    timeout "$seconds" python3 bench/accuracy/glue_hf.py "$carried/minilm" "$carried/glue" "${task%:*}" "${task#*:}" ${HF_LR:-5e-5 2e-5 1e-4} >> "$out/hf.jsonl" 2> "$out/hf-${task%:*}.log" &
    peers+=($!)
  fi
done
# Seed 0 of everything first.
python3 - "$work/runs.jsonl" <<'PY'
import json, sys
lines = sorted(open(sys.argv[1]), key=lambda line: json.loads(line)["seed"])
open(sys.argv[1], "w").writelines(lines)
PY
python3 bench/sweep.py build/cuda/epipe "$work/runs.jsonl" "$out/glue.jsonl" --jobs "${JOBS:-8}" --dir "$work/runs" --seconds "$seconds" --until "${UNTIL:-100000}"
for peer in "${peers[@]}"; do wait "$peer" || true; done
