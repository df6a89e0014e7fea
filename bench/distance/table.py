#!/usr/bin/env python3
"""The table of bench/distance/README.md from results.jsonl: medians over the steps of all runs of a setting.

Schedules: the share of what a step of T0 + 2L gives. delay-1: of the fastest rate without a delay, whatever the order."""
import json
import pathlib
import statistics
import sys

path = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent / "results.jsonl"
rows = {}
for line in open(path):
    row = json.loads(line)
    all_runs = rows.setdefault((row["schedule"], row["in_flight"], row["delay_ms"]), {"seconds": [], "chosen": set()})
    all_runs["seconds"] += row["seconds"]
    all_runs["chosen"].add(row["chosen"])
delays = sorted({key[2] for key in rows})
LATE = "delay-1"
nearest = {}  # seconds of the faster step without a delay, by schedule
for (schedule, _, delay), row in rows.items():
    row["median"] = statistics.median(row["seconds"])
    if delay == delays[0]:
        nearest[schedule] = min(nearest.get(schedule, 1e9), row["median"])
server_bound = min(row["median"] for key, row in rows.items() if key[2] == delays[0])
print("| schedule | in flight | " + " | ".join(f"{delay:.0f} ms: samples/s | of T0 + 2L" for delay in delays) + " |")
print("|---|---|" + "---|---|" * len(delays))
for schedule, in_flight in sorted({key[:2] for key in rows}):
    cells = []
    for delay in delays:
        row = rows.get((schedule, in_flight, delay))
        if row is None:
            cells += ["", ""]
            continue
        bound = nearest[schedule] + 2 * (delay - delays[0]) / 1e3
        chosen = f" ({', '.join(sorted(row['chosen'], key=int))})" if in_flight == "auto" else ""
        share = server_bound / row["median"] if schedule == LATE else bound / row["median"]
        cells += [f"{128 / row['median']:.1f}{chosen}", f"{share:.2f}"]
    print(f"| `{schedule}` | {in_flight} | " + " | ".join(cells) + " |")
