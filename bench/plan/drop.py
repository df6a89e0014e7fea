#!/usr/bin/env python3
"""A link that drops from 100 to 5 Mbit/s and comes back, under a training with --follow-link and under fixed bits. Run as root.

    python3 bench/plan/drop.py --program build/epipe --results bench/plan/drop.jsonl

A line for each run, appended; runs that the file has are left out: what every step took and when it began, and where bits were chosen. table() prints the README's rows from such a file:
drop.py --table drop.jsonl
"""
import argparse
import contextlib
import json
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import network

PHASES = [(100, 20), (5, 45), (100, 35)]  # Mbit/s, seconds
SETTLED = 10  # the last seconds of a phase: rates have been chosen
RUNS = {"auto:1 --follow-link": ["--codec", "auto:1", "--follow-link"], "auto:1": ["--codec", "auto:1"], "auto:4": ["--codec", "auto:4"]}


def train(bench, net, name, folder):
    run_dir = folder / "run"
    subprocess.run(["rm", "-rf", run_dir], check=True)
    arguments = bench.arguments("mobilenet_v2", "none", 4, 1_000_000, run_dir)
    at = arguments.index("--codec")
    arguments[at:at + 2] = RUNS[name]
    arguments[arguments.index("--epochs") + 1] = 1_000_000
    net.rates(PHASES[0][0], PHASES[0][0])
    with bench.server(net):
        command = net.enter(0) + [bench.program, *map(str, arguments), "--connect", "10.77.0.2:7000", "--tls", str(bench.folder / "tls")]
        client = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        metrics = run_dir / "metrics.jsonl"
        while not metrics.exists() or not metrics.read_text():
            time.sleep(0.02)
            if client.poll() is not None:
                raise SystemExit(client.stderr.read())
        # When a line is seen is when its step ended.
        lines, ends, began = [], [], time.monotonic()
        file = open(metrics)
        part = ""
        phases = []
        for mbit, seconds in PHASES:
            net.rates(mbit, mbit)
            phases.append({"mbit": mbit, "from": time.monotonic() - began})
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                part += file.readline()
                if not part.endswith("\n"):
                    time.sleep(0.005)
                    continue
                lines.append((time.monotonic() - began, json.loads(part)))
                part = ""
        client.send_signal(signal.SIGINT)
        client.wait()
    steps = [{"end": end, "samples": line["samples"], "seconds": line["seconds"], "wire_bytes": sum(cut["wire_bytes"] for cut in line["cuts"])}
             for end, line in lines if line["kind"] == "step"]
    changes = [dict(line, end=end) for end, line in lines if line["kind"] == "rates"]
    return {"run": name, "phases": phases, "until": time.monotonic() - began, "steps": steps, "changes": changes}


def settled(row, phase):
    """samples/s in the last seconds of a phase, and bytes of its last step."""
    ends = [phase["from"] for phase in row["phases"][1:]] + [row["until"]]
    steps = [step for step in row["steps"] if ends[phase] - SETTLED <= step["end"] < ends[phase]]
    return statistics.median(step["samples"] / step["seconds"] for step in steps), steps[-1]["wire_bytes"]


def reaction(row, phase):
    """Seconds from the change of the link to the last choice of bits that it led to."""
    begin = row["phases"][phase]["from"]
    end = row["phases"][phase + 1]["from"] if phase + 1 < len(row["phases"]) else row["until"]
    chosen = [change["end"] - begin for change in row["changes"] if begin <= change["end"] < end]
    return f"{chosen[-1]:.0f} s" if chosen and phase > 0 else "-"


def table(rows):
    print("| run | " + " | ".join(f"{mbit} Mbit/s: samples/s | bytes per step | bits chosen after" for mbit, _ in PHASES) + " | samples in all |")
    print("|---" * (2 + 3 * len(PHASES)) + "|")
    for row in rows:
        cells = ["{:.1f} | {} | {}".format(*settled(row, phase), reaction(row, phase)) for phase in range(len(PHASES))]
        print(f"| {row['run']} | " + " | ".join(cells) + f" | {sum(step['samples'] for step in row['steps'])} |")
        for change in row["changes"]:
            bits = ", ".join(f"{cut['rate']:g}" for cut in change["cuts"])
            print(f"  {change['end']:.1f} s, step {change['step']}: {8 * change['up_MBps']:.3g} Mbit/s up, {8 * change['down_MBps']:.3g} down; bits {bits}; "
                  f"predicted {1e3 * change['predicted_seconds']:.0f} ms", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/epipe")
    parser.add_argument("--runs", default=",".join(RUNS))
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--table")
    flags = parser.parse_args()
    if flags.table:
        return table([json.loads(line) for line in open(flags.table)])
    done = {json.loads(line)["run"] for line in open(flags.results)} if flags.results and flags.results.exists() else set()
    with contextlib.closing(network.Network()) as net, tempfile.TemporaryDirectory() as folder:
        bench = network.link_bench.Bench(flags, pathlib.Path(folder))
        for name in flags.runs.split(","):
            if name in done:
                continue
            load = network.link_bench.Load()
            row = train(bench, net, name, pathlib.Path(folder)) | {"others_cores": load.others()}
            with open(flags.results, "a") if flags.results else contextlib.nullcontext(sys.stdout) as out:
                print(json.dumps(row), file=out, flush=True)


if __name__ == "__main__":
    main()
