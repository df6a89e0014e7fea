#!/usr/bin/env python3
"""Draws results.jsonl: one panel per tensor, relative error against bits per value, both logarithmic.

usage: curves.py results.jsonl > curves.svg
"""
import json
import math
import sys
from collections import defaultdict

# Codec families: what their specs begin with, colour, dash pattern.
FAMILIES = [
    ("auto", "#000000", ""),
    ("dct", "#d62728", ""),
    ("ec", "#1f77b4", ""),
    ("uniform", "#2ca02c", "4 3"),
    ("sort", "#ff7f0e", "4 3"),
    ("kmeans", "#9467bd", "4 3"),
    ("topk", "#8c564b", "2 2"),
    ("power", "#e377c2", "2 2"),
    ("fp16", "#7f7f7f", ""),
    ("zstd -3 of fp16", "#bcbd22", ""),
]
WIDTH, HEIGHT, MARGIN, LEFT, TOP = 360, 270, 46, 58, 34
BITS = (0.1, 40)
ERRORS = (1e-8, 1.0)


def x_of(bits):
    share = math.log(bits / BITS[0]) / math.log(BITS[1] / BITS[0])
    return LEFT + share * (WIDTH - LEFT - 12)


def y_of(error):
    error = min(max(error, ERRORS[0]), ERRORS[1])
    share = math.log(error / ERRORS[0]) / math.log(ERRORS[1] / ERRORS[0])
    return HEIGHT - MARGIN - share * (HEIGHT - MARGIN - TOP)


def family_of(codec):
    return next((f for f in FAMILIES if codec.split(">")[0].split(":")[0] == f[0] or codec == f[0]), None)


def axes(tensor):
    out = [f'<text x="{(LEFT + WIDTH) / 2}" y="20" text-anchor="middle" font-weight="bold">{tensor}</text>']
    for bits in (0.125, 0.5, 2, 8, 32):
        x = x_of(bits)
        out.append(f'<path d="M{x:.1f} {TOP}V{HEIGHT - MARGIN}" stroke="#ddd"/>')
        out.append(f'<text x="{x:.1f}" y="{HEIGHT - MARGIN + 15}" text-anchor="middle">{bits:g}</text>')
    for exponent in range(-8, 1, 2):
        y = y_of(10.0**exponent)
        out.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - 12}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">1e{exponent}</text>')
    out.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - MARGIN + 31}" text-anchor="middle">bits per value on the wire</text>')
    out.append(f'<text transform="translate(14 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">relative error</text>')
    return out


def panel(tensor, rows):
    out = axes(tensor)
    for name, colour, dash in FAMILIES:
        points = sorted((r["bits_per_value"], r["rel_error"]) for r in rows if family_of(r["codec"])[0] == name and ">" not in r["codec"])
        path = " ".join(f"{'M' if i == 0 else 'L'}{x_of(b):.1f} {y_of(e):.1f}" for i, (b, e) in enumerate(points))
        out.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6" stroke-dasharray="{dash}"/>')
        out += [f'<circle cx="{x_of(b):.1f}" cy="{y_of(e):.1f}" r="2.2" fill="{colour}"/>' for b, e in points]
    return out


def legend():
    out = []
    for i, (name, colour, dash) in enumerate(FAMILIES):
        x = 20 + i * 140 if i < 7 else 20 + (i - 7) * 140
        y = 14 if i < 7 else 32
        out.append(f'<path d="M{x} {y}h24" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>')
        out.append(f'<text x="{x + 30}" y="{y + 4}">{name}</text>')
    return out


def main():
    tensors = defaultdict(list)
    for line in open(sys.argv[1], encoding="utf-8"):
        row = json.loads(line)
        tensors[row["tensor"]].append(row)
    columns = 3
    rows = -(-len(tensors) // columns)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{columns * WIDTH}" height="{rows * HEIGHT + 44}" font-family="sans-serif" font-size="11">')
    print('<rect width="100%" height="100%" fill="white"/>')
    print("\n".join(legend()))
    for i, (tensor, measured) in enumerate(sorted(tensors.items())):
        print(f'<g transform="translate({i % columns * WIDTH} {i // columns * HEIGHT + 44})">')
        print("\n".join(panel(tensor, measured)))
        print("</g>")
    print("</svg>")


main()
