#!/usr/bin/env python3
"""A training step with the middle of MobileNetV2 on a server: `epipe train --connect` against the same work from Python; prints a table.

    [BATCH=32 EDGE=64 ROUNDS=7] PYTHONPATH=build/python bench/python/remote_step.py [SPEC...]

Same layers with the client, batch, micro-batches, codec, one thread for each operator, one server; from Python once with stage(x) and once with
stage.submit(x). They take turns, each round in another order; a round's figure is the median of its steps after the first three. The table has the
best round of each, the rates of Python that follow, and the lowest and highest rate of stage(x) within a single round."""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import torch
import torchvision

import epipe

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests" / "python"))
from support import Server  # noqa: E402

STEPS, CHUNKS, CUTS = 12, 4, (1, 19)
BATCH, EDGE, ROUNDS = (int(os.environ.get(name, default)) for name, default in (("BATCH", 32), ("EDGE", 64), ("ROUNDS", 7)))


def program_step(server, spec, folder):
    """Seconds, by its own metrics."""
    subprocess.run([epipe.program(), "train", "--connect", server.address, "--insecure", "--model", "mobilenet_v2", "--data", f"npy:{folder}/data",
                    "--cuts", ",".join(map(str, CUTS)), "--place", "0,1,0", "--chunks", str(CHUNKS), "--batch", str(BATCH), "--codec", spec,
                    "--lr", "0.01", "--momentum", "0.9", "--max-steps", str(STEPS), "--error-every", "0", "--no-shuffle",
                    "--run-dir", str(folder / f"run-{time.monotonic_ns()}")], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    run = max(folder.glob("run-*"), key=lambda path: path.stat().st_mtime)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return statistics.median([line["seconds"] for line in lines if line["kind"] == "step"][3:])


def module_step(server, spec, images, labels, submit):
    torch.manual_seed(1)
    net = torchvision.models.mobilenet_v2(num_classes=10)
    front = net.features[:1]
    head = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), net.classifier)
    optimizer = torch.optim.SGD([*front.parameters(), *head.parameters()], lr=0.01, momentum=0.9)
    stage = epipe.RemoteStage(server.address, "mobilenet_v2", layers=CUTS, data={"shape": (3, EDGE, EDGE), "classes": 10}, insecure=True,
                              codec=spec, optimizer={"kind": "sgd", "lr": 0.01, "momentum": 0.9})
    seconds = []
    with stage:
        for _ in range(STEPS):
            begin = time.perf_counter()
            optimizer.zero_grad()
            sent = [(stage.submit if submit else stage)(front(part)) for part in images.chunk(CHUNKS)]
            outputs = (one.result() if submit else one for one in sent)
            losses = [torch.nn.functional.cross_entropy(head(y), t) / CHUNKS for y, t in zip(outputs, labels.chunk(CHUNKS))]
            sum(losses).backward()
            optimizer.step()
            stage.step()
            seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[3:])


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    images, labels = torch.randn(STEPS * BATCH, 3, EDGE, EDGE), torch.arange(STEPS * BATCH) % 10
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "data").mkdir()
        for split, count in (("train", STEPS * BATCH), ("val", 2)):
            numpy.save(folder / "data" / f"{split}_x.npy", images[:count].numpy())
            numpy.save(folder / "data" / f"{split}_y.npy", labels[:count].numpy())
        server = Server(folder, "--max-sessions", "8").start()
        ways = {"program": lambda spec: program_step(server, spec, folder),
                "stage": lambda spec: module_step(server, spec, images[:BATCH], labels[:BATCH], submit=False),
                "submit": lambda spec: module_step(server, spec, images[:BATCH], labels[:BATCH], submit=True)}
        print("| codec | `epipe train --connect` | `stage(x)` | `stage.submit(x)` | rate of `stage(x)` | in single rounds | rate of `submit` |")
        print("|---|---|---|---|---|---|---|")
        for spec in sys.argv[1:] or ["none", "ec:2", "dct:1"]:
            rounds = []
            for i in range(ROUNDS):
                order = [*ways][i % 3:] + [*ways][:i % 3]
                rounds.append({way: ways[way](spec) for way in order})
            program, stage, submit = (min(one[way] for one in rounds) for way in ways)
            single = sorted(one["program"] / one["stage"] for one in rounds)
            print(f"| {spec} | {1000 * program:.0f} | {1000 * stage:.0f} | {1000 * submit:.0f} | {program / stage:.2f} | "
                  f"{single[0]:.2f} to {single[-1]:.2f}, median {statistics.median(single):.2f} | {program / submit:.2f} |", flush=True)
        server.stop()


if __name__ == "__main__":
    main()
