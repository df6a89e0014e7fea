#!/usr/bin/env python3
"""The table of bench/distance/README.md from results.jsonl: medians over the rounds, in brackets the least and the most.

A row's k-th line is its k-th round. Samples/s are by the median step. Shares compare with the same round, because the machine is not
equally fast in all of them. Schedules: the share of what a step of T0 + 2L gives, T0 being the schedule's faster row without a delay.
delay-1: the share of the fastest rate without a delay, whatever the order."""
import json
import pathlib
import statistics
import sys

LATE = "delay-1"
path = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent / "results.jsonl"
rounds = {}  # [(schedule, in flight, delay)] -> a line for each round
for line in open(path):
    row = json.loads(line)
    rounds.setdefault((row["schedule"], row["in_flight"], row["delay_ms"]), []).append(row)
seconds = {key: [statistics.median(row["seconds"]) for row in rows] for key, rows in rounds.items()}
delays = sorted({key[2] for key in rounds})
no_delay = {key[:2]: values for key, values in seconds.items() if key[2] == delays[0]}


def least(of, k):
    """Seconds of the fastest step without a delay, of the orders for which of(schedule) holds, in round k."""
    return min(values[k] for (schedule, _), values in no_delay.items() if of(schedule) and k < len(values))


def share(schedule, delay, k, step):
    if schedule == LATE:
        return least(lambda _: True, k) / step
    return (least(lambda name: name == schedule, k) + 2 * (delay - delays[0]) / 1e3) / step


def with_range(values, form):
    middle = form(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({form(min(values))} to {form(max(values))})"


print("| schedule | in flight | " + " | ".join(f"{delay:.0f} ms: samples/s | share" for delay in delays) + " |")
print("|---|---|" + "---|---|" * len(delays))
for schedule, in_flight in sorted({key[:2] for key in rounds}):
    cells = []
    for delay in delays:
        key = (schedule, in_flight, delay)
        if key not in rounds:
            cells += ["", ""]
            continue
        chosen = f"; {', '.join(sorted({row['chosen'] for row in rounds[key]}, key=int))} in flight" if in_flight == "auto" else ""
        cells.append(f"{128 / statistics.median(seconds[key]):.1f}{chosen}")
        cells.append(with_range([share(schedule, delay, k, step) for k, step in enumerate(seconds[key])], "{:.2f}".format))
    print(f"| `{schedule}` | {in_flight} | " + " | ".join(cells) + " |")
