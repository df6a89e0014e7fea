#!/usr/bin/env python3
"""Milliseconds per step of MobileNetV2, 128 images of 224 px in micro-batches, on one GPU: a plain PyTorch loop, the same in a CUDA graph,
and epipe with its stages as CUDA graphs and without. One JSON line each; medians are over the last half of the steps.

    micro_batches.py EPIPE [--codecs none,sort:6+2,dct:0.25] [--chunks 1,4] [--steps 60] [--no-peers] [--no-eager]
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

BATCH = 128


def write_random_cifar(folder):
    """Random images in CIFAR-10's binary layout: a label and 3072 bytes each."""
    import numpy
    draw = numpy.random.default_rng(0)
    folder.mkdir(parents=True)
    for name, count in [*((f"data_batch_{k}.bin", 10000) for k in range(1, 6)), ("test_batch.bin", 10000)]:
        records = draw.integers(0, 256, (count, 3073), dtype=numpy.uint8)
        records[:, 0] %= 10
        records.tofile(folder / name)


def mobilenet_v2(classes):
    """The published architecture, in the plainest PyTorch."""
    from torch import nn

    def conv(i, o, kernel, stride=1, groups=1, act=True):
        layers = [nn.Conv2d(i, o, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False), nn.BatchNorm2d(o)]
        return nn.Sequential(*layers, *([nn.ReLU6(inplace=True)] if act else []))

    class Block(nn.Module):
        def __init__(self, i, o, stride, expand):
            super().__init__()
            hidden = i * expand
            self.same = stride == 1 and i == o
            widen = [conv(i, hidden, 1)] if expand != 1 else []
            self.body = nn.Sequential(*widen, conv(hidden, hidden, 3, stride, hidden), conv(hidden, o, 1, act=False))

        def forward(self, x):
            return x + self.body(x) if self.same else self.body(x)

    layers, i = [conv(3, 32, 3, 2)], 32
    for expand, o, count, stride in [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]:
        for k in range(count):
            layers.append(Block(i, o, stride if k == 0 else 1, expand))
            i = o
    layers += [conv(i, 1280, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1280, classes)]
    return nn.Sequential(*layers)


def plain_loop(chunks, graphed, steps):
    import torch
    from torch.nn import functional
    net = mobilenet_v2(10).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    images = torch.randn(BATCH, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(10, (BATCH,), device="cuda")

    def step():
        for x, y in zip(images.chunk(chunks), labels.chunk(chunks)):
            (functional.cross_entropy(net(x), y, reduction="sum") / BATCH).backward()

    def update():
        optimizer.step()
        optimizer.zero_grad(set_to_none=not graphed)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
            update()
    torch.cuda.synchronize()
    if graphed:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
            update()
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        if graphed:
            graph.replay()
        else:
            step()
            update()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - begin))
    return times


def epipe_run(program, data, folder, codec, chunks, graphs, steps, cuts=("1", "19"), place="0,1,0"):
    run = folder / f"{codec}-{chunks}-{graphs}".replace(":", "_")
    command = [program, "train", "--model", "mobilenet_v2", "--data", f"cifar10:{data}", "--image-size", "224", "--resize-on", "device",
               "--cuts", ",".join(cuts), "--place", place, "--devices", "cuda:0,cuda:0", "--codec", codec, "--chunks", str(chunks), "--batch",
               str(BATCH), "--lr", "0.02", "--momentum", "0.9", "--max-steps", str(steps), "--error-every", "0", "--data-part", "0.2",
               "--run-dir", str(run)] + ([] if graphs else ["--no-graphs"])
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "step"], done.stderr.strip().splitlines()


def codec_times(steps):
    """Milliseconds per step in all encoders and in all decoders together, as their threads see it; medians."""
    tail = steps[len(steps) // 2:]
    return {f"{name}_ms": round(1e3 * statistics.median(sum(cut[f"{name}_seconds"] for cut in step["cuts"]) for step in tail), 2) for name in ("encode", "decode")}


def report(times, **what):
    tail = times[len(times) // 2:]
    print(json.dumps({**what, "ms": round(statistics.median(tail), 2), "quartiles": [round(q, 2) for q in statistics.quantiles(tail)][::2]}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--codecs", default="none,sort:6+2,dct:0.25")
    parser.add_argument("--chunks", default="1,4")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--no-eager", action="store_true", help="leave out the rows with --no-graphs")
    flags = parser.parse_args()
    chunks = [int(m) for m in flags.chunks.split(",")]
    if not flags.no_peers:
        for m, graphed in [(m, g) for m in chunks for g in (False, True)]:
            report(plain_loop(m, graphed, flags.steps), what="PyTorch", chunks=m, graph=graphed)
    with tempfile.TemporaryDirectory() as scratch:
        data = pathlib.Path(scratch) / "cifar"
        write_random_cifar(data)
        for codec, m, graphs in [(c, m, g) for c in flags.codecs.split(",") for m in chunks for g in (True, False)[:2 - flags.no_eager]]:
            steps, notes = epipe_run(flags.program, data, pathlib.Path(scratch), codec, m, graphs, flags.steps)
            report([1e3 * step["seconds"] for step in steps], what="epipe", codec=codec, chunks=m, graph=graphs, **codec_times(steps),
                   notes=[n for n in notes if "graphs" in n])


if __name__ == "__main__":
    main()
