#!/usr/bin/env python3
"""table.py RESULTS.jsonl: accuracies by setting and codec, and which criterion of the audits predicts what is lost.

A run's criterion is the mean over its audits of the sum over cuts and directions (of progress_lost and loss_difference: what is above 0). What is lost is
the mean accuracy of none in the setting less the run's. Rank correlations (Spearman) are over all runs with audits."""
import collections
import json
import math
import sys

CRITERIA = ["rel_error", "gradient_error", "harm", "progress_lost", "loss_difference", "loss_added"]


def criterion(run, name):
    audits = [audit for audit in run.get("audits", []) if audit["valid"]]
    sums = [sum(max(0, cut[name]) for cut in audit["cuts"] if cut.get(name) is not None) for audit in audits]
    return sum(sums) / len(sums) if sums else math.nan


def worst_gradient(run):
    """The relative error of the gradient tensor that errs most, mean over the audits."""
    errors = [max((cut["rel_error"] for cut in audit["cuts"] if cut["direction"] == "backward"), default=0) for audit in run["audits"] if audit["valid"]]
    return sum(errors) / len(errors)


def ranks(values):
    order = sorted(range(len(values)), key=lambda i: values[i])
    result = [0] * len(values)
    for rank, i in enumerate(order):
        result[i] = rank
    return result


def correlation(x, y):
    x, y = ranks(x), ranks(y)
    mean = (len(x) - 1) / 2
    return sum((a - mean) * (b - mean) for a, b in zip(x, y)) / max(1e-9, sum((a - mean) ** 2 for a in x))


def main():
    runs = [run for run in map(json.loads, open(sys.argv[1])) if "failed" not in run]
    groups = collections.defaultdict(list)
    for run in runs:
        groups[run["setting"], run["codec"]].append(run)
    accuracy = lambda run: 100 * run["val_metrics"][run["metric"]]
    mean = lambda values: sum(values) / max(1, len(values))
    base = {setting: mean([accuracy(run) for run in group]) for (setting, codec), group in groups.items() if codec == "none"}
    print("| setting | codec | runs | accuracy | lost | kB per step | of it audits | " + " | ".join(CRITERIA) + " |")
    print("|" + "---|" * (7 + len(CRITERIA)))
    for (setting, codec), group in groups.items():
        row = [setting, codec, len(group), f"{mean([accuracy(r) for r in group]):.2f}", f"{base.get(setting, math.nan) - mean([accuracy(r) for r in group]):.2f}",
               f"{mean([r['bytes_per_step'] for r in group]) / 1e3:.1f}", f"{mean([r.get('audit_bytes', 0) / r['steps'] for r in group]) / 1e3:.2f}"]
        row += [f"{mean([criterion(r, name) for r in group]):.3g}" for name in CRITERIA]
        print("| " + " | ".join(map(str, row)) + " |")
    audited = [run for run in runs if run["codec"] != "none" and run["setting"] in base and run.get("audits")]
    if len(audited) > 2:
        lost = [base[run["setting"]] - accuracy(run) for run in audited]
        for name, of_run in [*((name, lambda run, name=name: criterion(run, name)) for name in CRITERIA), ("worst gradient tensor", worst_gradient)]:
            print(f"{name}: rank correlation with what is lost {correlation([of_run(run) for run in audited], lost):.3f} over {len(audited)} runs")


main()
