#!/usr/bin/env python3
"""glue_table.py glue.jsonl...: the rows of README.md's table: for each task, epochs and codec the mean and the spread of the final metric over seeds,
of the best epoch, and bits per value."""
import json
import statistics
import sys

rows = {}
for path in sys.argv[1:]:
    for run in map(json.loads, open(path)):
        if "failed" not in run:
            epochs = run["args"][run["args"].index("--epochs") + 1]
            rows.setdefault((run["task"], int(epochs), run["codec"]), []).append(run)


def text(values):
    return f"{statistics.mean(values):.3f}" + (f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else "")


print("| task, epochs | codec | bits | seeds | at the end | best epoch |\n|---|---|---|---|---|---|")
for (task, epochs, codec), runs in rows.items():
    bits = statistics.mean(statistics.mean(run["bits_per_value"].values()) for run in runs)
    end = text([run["val_metrics"][run["metric"]] for run in runs])
    print(f"| {task}, {epochs} | {codec} | {bits:.2f} | {len(runs)} | {end} | {text([run['best'] for run in runs])} |")
