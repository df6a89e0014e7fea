#!/usr/bin/env bash
# glue_pretrained.sh CARRIED OUT [TASK:EPOCHS...]: a pretrained MiniLM on GLUE tasks with coded cuts. CARRIED is by carry.sh; EPIPE names the
# program (default: build/cuda/epipe, see tools/build_on_device.sh). Nothing is built.
#
#   1. Without codec and with a seed of its own (100), every rate of LRS for each task; the best final metric decides. CHOSEN="rte=5e-5 cola=1e-4"
#      leaves this out.
#   2. Every codec of CODECS with SEEDS (3) seeds at that rate, seed 0 of all first, JOBS (8) at a time; none begins after LAST_START (240) seconds, and none
#      runs for longer than UNTIL (300).
#
# OUT gets choice.jsonl and glue.jsonl, a line for each run that ended. A second call leaves out what is there. DEVICES and STEPS (per run; a smoke
# test) are for machines without a GPU. With HF=1 the same training by transformers as well, without cuts: hf.jsonl.
set -euo pipefail
carried=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
shift 2
[ $# -gt 0 ] || set -- rte:20 cola:5
cd "$(dirname "$0")/../.."
epipe=$(realpath "${EPIPE:-build/cuda/epipe}")
[ -x "$epipe" ] || { echo "expected a program at $epipe; set EPIPE" >&2; exit 2; }
work=${WORK:-/tmp/glue}
mkdir -p "$work"

# Several processes on one device take turns unless this service runs; without it everything works, more slowly.
export CUDA_MPS_PIPE_DIRECTORY=$work/mps CUDA_MPS_LOG_DIRECTORY=$work/mps
mkdir -p "$work/mps"
nvidia-cuda-mps-control -d > /dev/null 2>&1 && trap 'echo quit | nvidia-cuda-mps-control > /dev/null 2>&1' EXIT && echo "MPS runs" || unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY

sweep() { python3 bench/sweep.py "$epipe" "$1" "$2" --jobs "${JOBS:-8}" --dir "$work/runs" --seconds "${LAST_START:-240}" --until "${UNTIL:-300}"; }

declare -A rate
for chosen in ${CHOSEN:-}; do rate[${chosen%=*}]=${chosen#*=}; done
: > "$work/choice.jsonl"
for task in "$@"; do
  [ -z "${rate[${task%:*}]:-}" ] || continue
  for lr in ${LRS:-2e-5 5e-5 1e-4 2e-4}; do
    EPOCHS=${CHOICE_EPOCHS:-5} LR=$lr FIRST_SEED=100 bench/accuracy/glue_runs.py "$carried/minilm" "$carried/glue" "${task%:*}" 1 none >> "$work/choice.jsonl"
  done
done
sweep "$work/choice.jsonl" "$out/choice.jsonl"

: > "$work/runs.jsonl"
peers=()
for task in "$@"; do
  name=${task%:*}
  lr=${rate[$name]:-$(python3 - "$out/choice.jsonl" "$name" <<'PY'
import json, sys
runs = [run for run in map(json.loads, open(sys.argv[1])) if run["task"] == sys.argv[2] and "failed" not in run]
best = max(runs, key=lambda run: (run["val_metrics"][run["metric"]], -run["val_loss"]))
print(best["args"][best["args"].index("--lr") + 1])
PY
)}
  echo "$name: learning rate $lr"
  EPOCHS=${task#*:} LR=$lr bench/accuracy/glue_runs.py "$carried/minilm" "$carried/glue" "$name" "${SEEDS:-3}" \
    "${CODECS:-none sort:12+4 sort:9+3 sort:6+2 sort:3+1 ec:2 dct:1 auto}" >> "$work/runs.jsonl"
  if [ "${HF:-0}" = 1 ]; then
    timeout "${UNTIL:-300}" python3 bench/accuracy/glue_hf.py "$carried/minilm" "$carried/glue" "$name" "${task#*:}" "$lr" >> "$out/hf.jsonl" 2> "$out/hf-$name.log" &
    peers+=($!)
  fi
done
# Seed 0 of everything first.
python3 - "$work/runs.jsonl" <<'PY'
import json, sys
lines = sorted(open(sys.argv[1]), key=lambda line: json.loads(line)["seed"])
open(sys.argv[1], "w").writelines(lines)
PY
sweep "$work/runs.jsonl" "$out/glue.jsonl"
for peer in "${peers[@]}"; do wait "$peer" || true; done
