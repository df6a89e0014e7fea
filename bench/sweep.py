#!/usr/bin/env python3
"""sweep.py EPIPE RUNS.jsonl RESULTS.jsonl [--jobs N] [--dir FOLDER] [--seconds S]: several trainings, N at a time, a line of results each.

A line of RUNS is {"name": ..., "args": [...]}: the arguments of `epipe train` without --run-dir. With "eval", arguments of `epipe eval` in
which RUN is the run's folder, the result has its loss as well: that of the trained model without any cut. Runs whose name is in RESULTS already are
left out; after S seconds no new one begins, and after --until seconds those that run are ended, without a line. Bytes per step include those of
audits, which a result lists."""
import argparse
import concurrent.futures
import json
import pathlib
import shutil
import subprocess
import time


def last(lines, kind):
    return [line for line in lines if line["kind"] == kind][-1]


def result_of(run, folder, seconds):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["kind"] == "step"]
    epochs = [line for line in lines if line["kind"] == "epoch"]
    traffic = {}
    for step in steps:
        for cut in step["cuts"]:
            sums = traffic.setdefault(f"{cut['cut']} {cut['direction']}", [0, 0])
            sums[0] += cut["wire_bytes"]
            sums[1] += cut["wire_bytes"] * 8 / cut["bits_per_value"] if cut["bits_per_value"] else 0
    audits = [line for line in lines if line["kind"] == "audit"]
    found = {"audits": audits, "audit_bytes": sum(audit["wire_bytes"] for audit in audits)} if audits else {}
    return run | found | {"steps": len(steps), "seconds": round(seconds, 1), "val_loss": epochs[-1]["val_loss"], "metric": epochs[-1]["metric"],
                  "val_metrics": epochs[-1]["val_metrics"], "best": max(e["val_metric"] for e in epochs), "val_losses": [e["val_loss"] for e in epochs],
                  "samples_per_s": epochs[-1]["samples_per_s"], "bytes_per_step": (sum(b for b, _ in traffic.values()) + found.get("audit_bytes", 0)) / max(1, len(steps)),
                  "bits_per_value": {name: round(8 * b / max(1, v), 4) for name, (b, v) in traffic.items()}}


def run_one(epipe, run, base, stop_at, end_at):
    if time.time() > stop_at:
        return None
    folder = base / run["name"].replace("/", "_").replace(" ", "_")
    shutil.rmtree(folder, ignore_errors=True)
    begin = time.time()
    try:
        done = subprocess.run([epipe, "train", *run["args"], "--run-dir", str(folder)], capture_output=True, text=True, errors="replace",
                              timeout=max(1, end_at - begin))
    except subprocess.TimeoutExpired:
        return None
    if done.returncode != 0:
        return run | {"failed": (done.stderr or done.stdout)[-600:]}
    result = result_of(run, folder, time.time() - begin)
    if "eval" in run:
        arguments = [argument.replace("RUN", str(folder)) for argument in run["eval"]]
        said = subprocess.run([epipe, "eval", *arguments], capture_output=True, text=True).stdout
        result["uncut_val_loss"] = float(said.split()[2].rstrip(",")) if said.startswith("validation loss") else said
    shutil.rmtree(folder, ignore_errors=True)
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("epipe")
    parser.add_argument("runs", type=pathlib.Path)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--dir", type=pathlib.Path, default=pathlib.Path("runs"))
    parser.add_argument("--seconds", type=float, default=1e6)
    parser.add_argument("--until", type=float, default=1e6)
    args = parser.parse_args()
    have = {json.loads(line)["name"] for line in args.results.read_text().splitlines()} if args.results.exists() else set()
    runs = [run for run in map(json.loads, args.runs.read_text().splitlines()) if run["name"] not in have]
    args.dir.mkdir(parents=True, exist_ok=True)
    stop_at, end_at = time.time() + args.seconds, time.time() + args.until
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool, args.results.open("a") as out:
        for future in concurrent.futures.as_completed([pool.submit(run_one, args.epipe, run, args.dir, stop_at, end_at) for run in runs]):
            if (result := future.result()) is None:
                continue
            out.write(json.dumps(result) + "\n")
            out.flush()
            print(result["name"], result.get("val_loss", result.get("failed")), result.get("val_metrics", ""), result.get("seconds", ""), flush=True)


main()
