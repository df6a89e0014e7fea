#!/usr/bin/env python3
"""glue_runs.py MODEL GLUE rte|cola|sst2 [SEEDS [CODECS]]: fine-tuning a pretrained MiniLM (hf:MODEL) with cut tensors coded in both directions,
a line for bench/sweep.py each: the settings of the reference's tables, first two and last two layers with the client."""
import json
import sys

MODEL, GLUE, TASK = sys.argv[1:4]
SEEDS = int(sys.argv[4]) if len(sys.argv) > 4 else 3
CODECS = sys.argv[5].split() if len(sys.argv) > 5 else ["none", "sort:12+4", "sort:9+3", "sort:6+2", "sort:3+1", "ec:2", "ec:1", "dct:1", "auto:1", "auto:0.5"]
STEPS = {"rte": 78 * 20, "cola": 268 * 20, "sst2": 2105 * 2}[TASK]
EPOCHS = {"rte": "20", "cola": "20", "sst2": "2"}[TASK]
LENGTH = {"rte": "128", "cola": "48", "sst2": "64"}[TASK]
COMMON = ["--model", f"hf:{MODEL}", "--data", f"glue/{TASK}:{GLUE}", "--max-length", LENGTH, "--cuts", "layer.2.attention,layer.4.attention", "--place", "0,1,0",
          "--chunks", "4", "--batch", "32", "--optimizer", "adamw", "--lr", "1e-4", "--weight-decay", "0.01", "--lr-schedule", "polynomial",
          "--lr-power", "1", "--warmup", str(STEPS // 10), "--epochs", EPOCHS, "--devices", "cuda:0,cuda:0", "--error-every", "50"]
for seed in range(SEEDS):
    for codec in CODECS:
        print(json.dumps({"name": f"{TASK} {codec} seed {seed}", "task": TASK, "codec": codec, "seed": seed,
                          "args": COMMON + ["--codec", codec, "--seed", str(seed)]}))
