#!/usr/bin/env python3
"""encode and decode from Python against the program's own rates, on 50 MB of float32; prints a table.

    PYTHONPATH=build/python bench/python/rate.py [SPEC...]

Program and module take turns, so that both see the same machine; each figure is the best of its rounds, which are medians."""
import json
import pathlib
import statistics
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


def medians(*works):
    """Seconds of each, taking turns as encode, decode and a plain copy do in `epipe codec measure`."""
    seconds, start = [], time.perf_counter()
    while len(seconds) < 3 or time.perf_counter() - start < SECONDS:
        times = [time.perf_counter()]
        for work in works:
            work()
            times.append(time.perf_counter())
        seconds.append([end - begin for begin, end in zip(times, times[1:])])
    return [statistics.median(column) for column in zip(*seconds)]


def module_rates(spec, x):
    codec, frame, megabytes = epipe.Codec(spec), epipe.Codec(spec).encode(x), x.numel() * 4 / 1e6
    out, copy = torch.empty_like(x), torch.empty_like(x)
    decode, plain = (lambda: epipe.decode(frame, out=out)), (lambda: copy.copy_(x))
    view, decoded, _ = medians(lambda: codec.encode_view(x), decode, plain)
    copied, _, _ = medians(lambda: codec.encode(x), decode, plain)
    return megabytes / view, megabytes / decoded, megabytes / copied


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
