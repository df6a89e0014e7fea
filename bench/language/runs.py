#!/usr/bin/env python3
"""runs.py MODEL JAVA lora|full [SEEDS]: the trainings of this benchmark, a line for bench/sweep.py each. MODEL: the pretrained folder."""
import json
import sys

MODEL, JAVA, KIND = sys.argv[1:4]
SEEDS = int(sys.argv[4]) if len(sys.argv) > 4 else 3
ONLY = sys.argv[5].split() if len(sys.argv) > 5 else None  # specs of activations
CODECS = [("none", "none"), ("uniform:4", "uniform:4"), ("sort:3+1", "sort:3+1"), ("ec:4", "ec:4"), ("ec:3", "ec:3"), ("ec:2", "ec:2"), ("ec:1", "ec:0.5"),
          ("dct:1", "dct:0.5"), ("auto:4", "auto:4"), ("auto:3", "auto:3"), ("auto:2", "auto:2"), ("auto:1", "auto:0.5"), ("auto:2", "auto:1"), ("auto", "auto")]
COMMON = ["--model", f"hf:{MODEL}", "--data", f"text:{JAVA}", "--max-length", "256", "--cuts", "block.1,block.7", "--place", "0,1,0", "--chunks", "2",
          "--batch", "16", "--optimizer", "adamw", "--lr-schedule", "linear", "--clip", "1", "--devices", "cuda:0,cuda:0", "--precision", "bf16",
          "--data-part", "0.06", "--error-every", "50"]
HOW = {"lora": ["--lora", "r=8,alpha=16,targets=q_proj+k_proj+v_proj+o_proj+gate_proj+up_proj+down_proj", "--lr", "1e-3", "--epochs", "2"],
       "full": ["--lr", "2e-4", "--epochs", "2"]}
EVAL = ["--model", f"hf:{MODEL}", "--data", f"text:{JAVA}", "--max-length", "256", "--batch", "64", "--devices", "cuda:0", "--precision", "bf16", "--data-part", "0.06"]
EVAL += {"lora": ["--adapter", "RUN/adapter"], "full": ["--weights", "RUN/model.safetensors"]}[KIND]
for seed in range(SEEDS):
    for forward, backward in CODECS:
        if ONLY and forward not in ONLY:
            continue
        print(json.dumps({"name": f"{KIND} {forward} {backward} seed {seed}", "kind": KIND, "forward": forward, "backward": backward, "seed": seed, "eval": EVAL,
                          "args": COMMON + HOW[KIND] + ["--codec-forward", forward, "--codec-backward", backward, "--seed", str(seed)]}))
