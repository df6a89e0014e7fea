#!/usr/bin/env python3
"""Error and speed of `auto` before and after: features.py EPIPE_BEFORE EPIPE_AFTER OUT.jsonl x.npy...

Both programs measure every tensor at every rate, the one after the other, one thread each; prints a Markdown table.
"""
import json
import subprocess
import sys

RATES = ["2", "1", "0.5", "0.25"]


def measure(program, path):
    command = [program, "codec", "measure", "--json"]
    for rate in RATES:
        command += ["--codec", f"auto:{rate}"]
    lines = subprocess.run(command + [path], check=True, capture_output=True, text=True).stdout.splitlines()
    return {line["codec"].split(":")[1]: line for line in map(json.loads, lines)}


def main():
    before_program, after_program, out, *paths = sys.argv[1:]
    print("| tensor | rate | error before | after | ratio | encode MB/s | decode MB/s |\n|---|---|---|---|---|---|---|")
    with open(out, "w", encoding="utf8") as results:
        for path in paths:
            name = path.rsplit("/", 1)[-1].removesuffix(".npy")
            before, after = measure(before_program, path), measure(after_program, path)
            for rate in RATES:
                b, a = before[rate], after[rate]
                for when, line in (("before", b), ("after", a)):
                    results.write(json.dumps({"when": when, "tensor": name, "rate": float(rate)} |
                                             {k: line[k] for k in ("bits_per_value", "rel_error", "encode_MBps", "decode_MBps")}) + "\n")
                print(f"| {name} | {rate} | {b['rel_error']:.2e} | {a['rel_error']:.2e} | {a['rel_error'] / b['rel_error']:.2f} | "
                      f"{b['encode_MBps']:.0f}, {a['encode_MBps']:.0f} | {b['decode_MBps']:.0f}, {a['decode_MBps']:.0f} |", flush=True)


if __name__ == "__main__":
    main()
