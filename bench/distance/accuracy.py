#!/usr/bin/env python3
"""Validation accuracy of synchronous steps and of --delay 1 after some epochs, on several seeds: the small cnn on generated images.

  bench/distance/accuracy.py --epipe build/epipe --out bench/distance/accuracy.jsonl

One process and one stage, because placement and schedule change no weight. A line of JSON for each run.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# By name: what the run adds to model, data and epochs.
TRAININGS = {
    "sgd, momentum 0.9": ["--optimizer", "sgd", "--momentum", "0.9", "--lr", "0.02"],
    "adamw": ["--optimizer", "adamw", "--lr", "0.002"],
}


def accuracies(flags, training, delay, seed):
    with tempfile.TemporaryDirectory() as folder:
        command = [flags.epipe, "train", "--model", "cnn", "--data", flags.data, "--epochs", str(flags.epochs), "--batch", "64", "--chunks", "4",
                   "--seed", str(seed), "--error-every", "0", "--delay", str(delay), *TRAININGS[training], "--run-dir", folder + "/run"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            sys.exit(done.stdout)
        lines = [json.loads(line) for line in open(folder + "/run/metrics.jsonl")]
        epochs = [line for line in lines if line["kind"] == "epoch"]
        return [line["val_accuracy"] for line in epochs], [line["val_loss"] for line in epochs]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epipe", default="build/epipe")
    parser.add_argument("--data", default="synthetic")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--out", default=str(HERE / "accuracy.jsonl"))
    flags = parser.parse_args()
    for training in TRAININGS:
        for seed in flags.seeds.split(","):
            for delay in (0, 1):
                accuracy, loss = accuracies(flags, training, delay, seed)
                line = {"training": training, "delay": delay, "seed": int(seed), "epochs": flags.epochs, "val_accuracy": accuracy, "val_loss": loss}
                print(json.dumps(line), flush=True)
                with open(flags.out, "a") as out:
                    out.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
