#!/bin/sh
# The SST-2 table: a 4-layer RoBERTa-shaped encoder (roberta4/config.json) from scratch, embeddings and head with the client, the blocks with
# the server, one run per codec and seed, then one line per run in OUT/results.jsonl.
#
#   DATA=DIR     holds glue/SST-2/{train,dev}.tsv and roberta-bpe/{vocab.json,merges.txt}        (needed)
#   EPIPE        the program                                    build/epipe
#   DEVICES      of client and server                           cpu,cpu
#   CODECS, SEEDS                                               "none sort:6+2 ec:2 ec:1", "0"
#   STEPS BATCH LENGTH CHUNKS                                   220 32 32 2
#   JOBS         runs at once                                   1
#   OUT          run folders and results                        build/sst2
#
# On a machine with a GPU and 16 cores, in under 5 minutes (all runs at once):
#   DATA=DIR DEVICES=cuda:0,cuda:0 SEEDS="0 1" STEPS=1052 BATCH=64 LENGTH=64 JOBS=8 bench/accuracy/sst2.sh
set -eu
here=$(dirname "$0")
: "${DATA:?the folder of glue/SST-2 and roberta-bpe}" "${EPIPE:=build/epipe}" "${DEVICES:=cpu,cpu}" "${CODECS:=none sort:6+2 ec:2 ec:1}" "${SEEDS:=0}"
: "${STEPS:=220}" "${BATCH:=32}" "${LENGTH:=32}" "${CHUNKS:=2}" "${JOBS:=1}" "${OUT:=build/sst2}"
mkdir -p "$OUT"
for seed in $SEEDS; do
  for codec in $CODECS; do
    run="$OUT/sst2-$(echo "$codec" | tr ':+' '__')-s$seed"
    [ -f "$run/report.html" ] || echo "--seed $seed --codec $codec --run-dir $run"
  done
done | xargs -P "$JOBS" -I{} sh -c "$EPIPE train --model roberta:$here/roberta4 --data glue/sst2:$DATA/glue --bpe $DATA/roberta-bpe --max-length $LENGTH \
  --cuts layer.0.ffn,classifier --place 0,1,0 --devices $DEVICES --chunks $CHUNKS --batch $BATCH --epochs 20 --max-steps $STEPS \
  --optimizer adamw --lr 5e-4 --weight-decay 0.01 --warmup 20 --clip 1 --error-every 20 {} >/dev/null"
python3 "$here/collect.py" "$OUT"/sst2-* > "$OUT/results.jsonl"
cat "$OUT/results.jsonl"
