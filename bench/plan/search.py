#!/usr/bin/env python3
"""The plan's choice against the simulation of every combination, over links, delays and speeds. Measures each model once.

    python3 bench/plan/search.py --program build/epipe > bench/plan/search.jsonl
"""
import argparse
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
import time

from run import MODELS, model_flags

RATES = [(1, 1), (10, 10), (100, 100), (1000, 1000), (1, 10), (10, 100), (100, 1000)]  # Mbit/s up and down
DELAYS = [0, 20, 100]
SPEEDS = [1, 10]  # of the server, in clients


def run(*command):
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/epipe")
    parser.add_argument("--models", default=",".join(MODELS))
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        costs = folder / "costs.json"
        for model in flags.models.split(","):
            measured = json.loads(run(flags.program, "plan", "--json", *model_flags(model, folder), "--workers", "client:cpu,server:cpu"))["inputs"]
            for speed, (up, down), delay in itertools.product(SPEEDS, RATES, DELAYS):
                inputs = json.loads(json.dumps(measured))
                inputs["workers"][1] |= {way: [[s / speed for s in pair] for pair in inputs["workers"][1][way]] for way in ("forward", "backward")}
                inputs["workers"][1]["machine"] = 1
                inputs["cores"] = [2, 8]
                inputs["link"]["carry"] = 2.5e-9
                costs.write_text(json.dumps(inputs))
                link = ["--costs", costs, "--link", f"up={up}M,down={down}M,delay={delay}ms", "--json"]
                began = time.monotonic()
                plan = json.loads(run(flags.program, "plan", *link))
                seconds = time.monotonic() - began
                every = json.loads(run(flags.program, "plan", "--exhaustive", *link))
                fastest = max(one["predicted"]["samples_per_s"] for one in [every] + every["runners_up"])
                row = {"model": model, "up_mbit": up, "down_mbit": down, "delay_ms": delay, "speed": speed, "flags": plan["command"],
                       "samples_per_s": plan["predicted"]["samples_per_s"], "of_fastest": plan["predicted"]["samples_per_s"] / fastest,
                       "simulated": plan["search"]["simulated"], "all": every["search"]["simulated"], "complete": plan["search"]["complete"],
                       "seconds": seconds, "binds": plan["binds"][0]}
                print(json.dumps(row), flush=True)
        print("done", file=sys.stderr)


if __name__ == "__main__":
    main()
