#!/usr/bin/env python3
"""encode and decode from Python against the program's own rates, on 50 MB of float32; prints a table.

    PYTHONPATH=build/python bench/python/rate.py [SPEC...]

Program and module take turns, so that both see the same machine; each figure is the best of its rounds."""
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy
import torch

import epipe

ROUNDS = 4
SECONDS = 1.0


def program_rates(spec, path):
    said = subprocess.run([epipe.program(), "codec", "measure", "--codec", spec, path, "--json", "--seconds", str(SECONDS)],
                          check=True, stdout=subprocess.PIPE, text=True).stdout
    line = json.loads(said)
    return line["encode_MBps"], line["decode_MBps"]


def best_rate(work, megabytes):
    best, start = 0.0, time.perf_counter()
    while time.perf_counter() - start < SECONDS:
        begin = time.perf_counter()
        work()
        best = max(best, megabytes / (time.perf_counter() - begin))
    return best


def module_rates(spec, x):
    codec = epipe.Codec(spec)
    frame = codec.encode(x)
    megabytes = x.numel() * 4 / 1e6
    out = torch.empty_like(x)  # the program reads into the same tensor again, too
    return (best_rate(lambda: codec.encode_view(x), megabytes), best_rate(lambda: epipe.decode(frame, out=out), megabytes),
            best_rate(lambda: codec.encode(x), megabytes))


def main():
    torch.manual_seed(1)
    x = torch.nn.functional.avg_pool2d(torch.randn(32, 32, 114, 114), 3, 1).relu()  # 51 MB, smooth as feature maps are
    specs = sys.argv[1:] or ["none", "fp16", "uniform:8", "sort:6+2", "topk:0.1>fp16", "ec:2", "dct:1"]
    print("| codec | encode: program | Python, encode_view | ratio | encode, ratio | decode: program | Python | ratio |\n|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "x.npy"
        numpy.save(path, x.numpy())
        for spec in specs:
            rounds = [(program_rates(spec, path), module_rates(spec, x)) for _ in range(ROUNDS)]
            (pe, pd), (view, md, copied) = ([max(values) for values in zip(*side)] for side in zip(*rounds))
            print(f"| {spec} | {pe:.0f} | {view:.0f} | {view / pe:.2f} | {copied / pe:.2f} | {pd:.0f} | {md:.0f} | {md / pd:.2f} |", flush=True)


if __name__ == "__main__":
    main()
