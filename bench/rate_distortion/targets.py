#!/usr/bin/env python3
"""Ours against the distortion that a prototype with ideal entropy coding had at the same rate.

usage: targets.py results.jsonl     exits 1 when an error is more than 15 % above its figure, or a rate more than 15 % above its own
"""
import json
import sys

MAPS0, MAPS1 = "mobilenet_cifar10_act0", "mobilenet_cifar10_act1"
GRAD0, GRAD1 = "mobilenet_cifar10_grad0", "mobilenet_cifar10_grad1"
TEXT0, TEXT1, TEXT_GRAD0, TEXT_GRAD1 = "roberta_sst2_act0", "roberta_sst2_act1", "roberta_sst2_grad0", "roberta_sst2_grad1"
PROTOTYPE = {
    MAPS0: {"sort:6+2": 4.5e-5, "ec:4": 2.5e-4, "ec:2": 1.7e-2, "ec:1": 1.6e-1, "dct:2": 9.1e-7, "dct:1": 1.4e-5, "dct:0.5": 1.2e-4},
    GRAD0: {"sort:6+2": 1.5e-2, "ec:4": 1.2e-4, "ec:2": 4.3e-3, "ec:1": 3.1e-2, "dct:4": 1.0e-4, "dct:2": 3.4e-3, "dct:1": 2.3e-2, "dct:0.5": 7.3e-2},
    MAPS1: {"sort:6+2": 1.7e-4, "ec:4": 2.8e-5, "ec:2": 7.0e-3, "ec:1": 8.5e-2, "dct:4": 3.8e-4, "dct:2": 6.1e-3, "dct:1": 2.6e-2, "dct:0.5": 6.6e-2},
    GRAD1: {"sort:6+2": 4.8e-4, "ec:4": 1.6e-3, "ec:2": 4.1e-2, "ec:1": 2.0e-1, "dct:0.25": 1e-4},
    TEXT0: {"sort:6+2": 2.8e-4, "ec:4": 5.6e-3, "ec:2": 8.9e-2, "ec:1": 3.3e-1},
    TEXT_GRAD0: {"sort:6+2": 4.9e-3, "ec:1": 7.0e-6},
    TEXT1: {"sort:6+2": 2.6e-4, "ec:4": 5.5e-3, "ec:2": 8.6e-2, "ec:1": 3.1e-1},
    TEXT_GRAD1: {"sort:6+2": 9.1e-4, "ec:0.25": 1e-4},
}


def main():
    rows = {}
    for line in open(sys.argv[1], encoding="utf-8"):
        row = json.loads(line)
        rows[row["tensor"], row["codec"]] = row
    missed = 0
    print(f"{'tensor':26} {'codec':9} {'bits':>7} {'ours':>9} {'prototype':>9} {'ratio':>6}")
    for tensor, figures in PROTOTYPE.items():
        for codec, figure in figures.items():
            row = rows[tensor, codec]
            rate = 8.0 if codec.startswith("sort") else float(codec.split(":")[1])
            ratio = row["rel_error"] / figure
            held = ratio <= 1.15 and row["bits_per_value"] <= 1.15 * rate
            missed += not held
            print(f"{tensor:26} {codec:9} {row['bits_per_value']:7.4f} {row['rel_error']:9.2g} {figure:9.2g} {ratio:6.2f}{'' if held else '  missed'}")
    print(f"{missed} of {sum(len(f) for f in PROTOTYPE.values())} missed")
    return 1 if missed else 0


sys.exit(main())
