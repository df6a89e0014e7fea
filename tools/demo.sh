#!/usr/bin/env bash
# What epipe does, in about a minute: a small CNN trained as client and server with several codecs, then every codec by itself.
set -euo pipefail
cd "$(dirname "$0")/.."
program=build/epipe
runs=build/demo
rm -rf "$runs"
mkdir -p "$runs"

echo "A CNN on generated images, first and last layers on worker 0, the middle on worker 1 (--place 0,1,0):"
printf '%-20s %16s %8s %12s %20s\n' codec "bytes per step" ratio samples/s "validation accuracy"
baseline=""
for codec in none fp16 uniform:8 sort:6+2 fast:6+2 kmeans:4 sort:3+1 topk:0.1 power:4 ec:4 ec:2 dct:1 auto:1 auto; do
  line=$($program train --model cnn --data synthetic --cuts 1,4 --place 0,1,0 --chunks 4 --codec "$codec" \
    --epochs 4 --lr 0.1 --momentum 0.9 --lr-schedule cosine --run-dir "$runs/$codec" 2>"$runs/log" | grep ' steps, ')
  # "128 steps, validation accuracy 0.9395, 2623488 bytes per step on the cuts, 4119 samples/s"
  read -r accuracy bytes rate <<<"$(sed -E 's/.*accuracy ([0-9.]+), ([0-9]+) bytes.*, ([0-9]+) samples.*/\1 \2 \3/' <<<"$line")"
  baseline=${baseline:-$bytes}
  awk -v c="$codec" -v a="$accuracy" -v n="$bytes" -v b="$baseline" -v r="$rate" \
    'BEGIN { printf "%-20s %16d %8.1f %12d %20.4f\n", c, n, b / n, r, a }'
done

# The last codec was auto. "audit before step 0: loss added 0.004, harm 0.517; bits per value: cut 0 backward 1.19, ..."
read -r step loss harm bits <<<"$(grep '^audit ' "$runs/log" | tail -1 |
  sed -E 's/.*step ([0-9]+): loss added ([0-9.e-]+), harm ([0-9.e-]+); bits per value: /\1 \2 \3 /')"
echo
echo "auto was told no number: it measured. Its last audit, before step $step, found that coding the activations added $loss to the loss, and that"
echo "the error in the gradients was $harm of what they are in a batch anyway. From there on it has the bits per value that keep these below"
echo "0.01 and 0.1 (--loss-added, --harm; docs/codecs.md):"
echo "$bits."

$program report "$runs/none" "$runs/sort:6+2" "$runs/dct:1" "$runs/auto" -o "$runs/report.html"

echo
echo "Every codec by itself, on generated tensors, one thread:"
$program bench codec --quick
