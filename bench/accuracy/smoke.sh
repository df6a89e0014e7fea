#!/bin/sh
# Smoke runs on a CPU, minutes: Food-101-mini with MobileNetV2 at 64 px, RTE and CoLA with the 4-layer RoBERTa from scratch.
#   DATA=DIR     holds food101-mini, glue/{RTE,CoLA}, roberta-bpe; WEIGHTS=DIR holds mobilenet_v2.safetensors        (needed)
#   EPIPE CODECS SEEDS STEPS OUT                                build/epipe, "none ec:2", "0 1", 40, build/smoke
set -eu
here=$(dirname "$0")
: "${DATA:?the folder of food101-mini, glue and roberta-bpe}" "${WEIGHTS:?the folder of mobilenet_v2.safetensors}"
: "${EPIPE:=build/epipe}" "${CODECS:=none ec:2}" "${SEEDS:=0 1}" "${STEPS:=40}" "${OUT:=build/smoke}"
mkdir -p "$OUT"
one() {  # NAME FLAGS...
  name=$1
  shift
  [ -f "$OUT/$name/report.html" ] || "$EPIPE" train --place 0,1,0 --max-steps "$STEPS" --error-every 10 --run-dir "$OUT/$name" "$@" > /dev/null
}
for seed in $SEEDS; do
  for codec in $CODECS; do
    tag=$(echo "$codec" | tr ':+' '__')-s$seed
    one "food101-$tag" --model mobilenet_v2 --weights "$WEIGHTS/mobilenet_v2.safetensors" --data "food101:$DATA/food101-mini" --image-size 64 \
      --cuts 1,19 --chunks 2 --batch 32 --epochs 3 --lr 0.005 --lr-schedule cosine --momentum 0.9 --codec "$codec" --seed "$seed"
    for task in rte cola; do
      one "$task-$tag" --model "roberta:$here/roberta4" --data "glue/$task:$DATA/glue" --bpe "$DATA/roberta-bpe" --max-length 48 --cuts layer.0.ffn,classifier \
        --chunks 2 --batch 32 --epochs 20 --optimizer adamw --lr 3e-4 --weight-decay 0.01 --warmup 5 --clip 1 --codec "$codec" --seed "$seed"
    done
  done
done
python3 "$here/collect.py" "$OUT"/*-s[0-9]* > "$OUT/results.jsonl"
cat "$OUT/results.jsonl"
