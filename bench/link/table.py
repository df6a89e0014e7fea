#!/usr/bin/env python3
"""results.jsonl -> the README's table on stdout, and samples.svg: what was reached (bars) of the simulator's bound (frames).

    python3 bench/link/table.py bench/link/results.jsonl bench/link/samples.svg
"""
import json
import math
import sys

WIDTH, HEIGHT, BAR, LEFT, TOP = 900, 200, 14, 60, 30
COLORS = ["#777777", "#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#000000"]


def table(rows):
    rates = sorted({row["mbit"] for row in rows})
    print("| model | codec | bytes per step |" + "".join(f" {rate} Mbit/s: samples/s | of the bound |" for rate in rates))
    print("|---" * (3 + 2 * len(rates)) + "|")
    for model in dict.fromkeys(row["model"] for row in rows):
        for codec in dict.fromkeys(row["codec"] for row in rows):
            found = {row["mbit"]: row for row in rows if row["model"] == model and row["codec"] == codec}
            cells = "".join(f" {found[rate]['samples_per_s']:.1f} | {found[rate]['of_bound']:.2f} |" for rate in rates)
            print(f"| {model} | {codec} | {found[rates[0]]['wire_bytes']} |{cells}")


def bars(rows, model, top):
    """One group per rate, one bar per codec, on a logarithmic scale."""
    rows = [row for row in rows if row["model"] == model]
    bounds = [row["samples"] / row["bound_seconds"] for row in rows]
    low = math.floor(math.log10(min(row["samples_per_s"] for row in rows)))
    high = math.ceil(math.log10(max(bounds)))
    height = lambda value: (math.log10(value) - low) / (high - low) * HEIGHT
    out = [f'<text x="{LEFT}" y="{top - 12}" font-weight="bold">{model}: samples/s</text>']
    for power in range(low, high + 1):
        y = top + HEIGHT - height(10 ** power)
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y}" y2="{y}" stroke="#dddddd"/><text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{10 ** power}</text>')
    codecs = list(dict.fromkeys(row["codec"] for row in rows))
    for group, rate in enumerate(sorted({row["mbit"] for row in rows})):
        x = LEFT + 20 + group * (WIDTH - LEFT - 20) / 3
        out.append(f'<text x="{x}" y="{top + HEIGHT + 18}">{rate} Mbit/s</text>')
        for row in (row for row in rows if row["mbit"] == rate):
            at = x + codecs.index(row["codec"]) * (BAR + 8)
            reached, bound = height(row["samples_per_s"]), height(row["samples"] / row["bound_seconds"])
            out.append(f'<rect x="{at}" y="{top + HEIGHT - reached}" width="{BAR}" height="{reached}" fill="{COLORS[codecs.index(row["codec"])]}"/>')
            out.append(f'<rect x="{at - 2}" y="{top + HEIGHT - bound}" width="{BAR + 4}" height="{bound}" fill="none" stroke="#333333"/>')
    return out


def picture(rows):
    models = list(dict.fromkeys(row["model"] for row in rows))
    codecs = list(dict.fromkeys(row["codec"] for row in rows))
    out = []
    for number, model in enumerate(models):
        out += bars(rows, model, TOP + number * (HEIGHT + 70))
    bottom = TOP + len(models) * (HEIGHT + 70)
    for number, codec in enumerate(codecs):
        x = LEFT + 20 + number * 120
        out.append(f'<rect x="{x}" y="{bottom - 22}" width="12" height="12" fill="{COLORS[number]}"/><text x="{x + 18}" y="{bottom - 12}">{codec}</text>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{bottom}" font-family="sans-serif" font-size="12">'
            f'<rect width="100%" height="100%" fill="white"/>' + "".join(out) + "</svg>\n")


def main():
    rows = [json.loads(line) for line in open(sys.argv[1])]
    table(rows)
    with open(sys.argv[2], "w") as file:
        file.write(picture(rows))


if __name__ == "__main__":
    main()
