#!/usr/bin/env python3
"""glue_runs.py MODEL GLUE rte|cola|sst2 [SEEDS [CODECS]]: fine-tuning a pretrained MiniLM (hf:MODEL) with cut tensors coded in both directions,
a line for bench/sweep.py each: the settings of the reference's tables, first two and last two layers with the client. EPOCHS, LR, DEVICES,
FIRST_SEED and STEPS (the most in a run) are taken from the environment."""
import json
import os
import sys

MODEL, GLUE, TASK = sys.argv[1:4]
SEEDS = int(sys.argv[4]) if len(sys.argv) > 4 else 3
CODECS = sys.argv[5].split() if len(sys.argv) > 5 else ["none", "sort:12+4", "sort:9+3", "sort:6+2", "sort:3+1", "ec:2", "ec:1", "dct:1", "auto:1", "auto:0.5"]
EPOCHS = os.environ.get("EPOCHS", {"rte": "20", "cola": "20", "sst2": "2"}[TASK])
STEPS = {"rte": 78, "cola": 268, "sst2": 2105}[TASK] * int(EPOCHS)
LR = os.environ.get("LR", "5e-5")
DEVICES = os.environ.get("DEVICES", "cuda:0,cuda:0")
LENGTH = {"rte": "128", "cola": "48", "sst2": "64"}[TASK]
COMMON = ["--model", f"hf:{MODEL}", "--data", f"glue/{TASK}:{GLUE}", "--max-length", LENGTH, "--cuts", "layer.2.attention,layer.4.attention", "--place", "0,1,0",
          "--chunks", "4", "--batch", "32", "--optimizer", "adamw", "--lr", LR, "--weight-decay", "0.01", "--lr-schedule", "polynomial",
          "--lr-power", "1", "--warmup", str(STEPS // 10), "--epochs", EPOCHS, "--devices", DEVICES, "--error-every", "200"]
if "STEPS" in os.environ:
    COMMON += ["--max-steps", os.environ["STEPS"], "--data-part", "0.05"]
FIRST = int(os.environ.get("FIRST_SEED", "0"))
for seed in range(FIRST, FIRST + SEEDS):
    for codec in CODECS:
        print(json.dumps({"name": f"{TASK} {codec} lr {LR} epochs {EPOCHS} seed {seed}", "task": TASK, "codec": codec, "seed": seed,
                          "args": COMMON + ["--codec", codec, "--seed", str(seed)]}))
