#!/usr/bin/env python3
"""Milliseconds per training step on the CPU: a plain PyTorch loop, torchgpipe, and epipe, with the same model, batch, micro-batches and
threads. Two workers of one thread each; the plain loop has one thread, and two, and epipe's one stage two. Needs torch and torchvision
(Debian: python3-torch, python3-torchvision) and a checkout of torchgpipe. All take turns, so that what else the machine does meets all
of them.

    run.py EPIPE --torchgpipe DIR [--models mobilenet_v2,resnet18,vgg13] [--rows TEXT] [--rounds 3] > results.jsonl
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

SETTINGS = {"mobilenet_v2": {"edge": 64, "batch": 32}, "resnet18": {"edge": 64, "batch": 32}, "vgg13": {"edge": 32, "batch": 32}}
CHUNKS = 4
CLASSES = 10
TWO_STAGES = ["--place", "0,1", "--balance", "measured", "--threads", "1", "--schedule"]
ONE_STAGE = ["--place", "0", "--threads", "2"]


def sequential(name):
    import torchvision
    from torch import nn
    model = getattr(torchvision.models, name)(num_classes=CLASSES)
    if name == "mobilenet_v2":
        return nn.Sequential(*model.features, nn.AdaptiveAvgPool2d(1), nn.Flatten(), model.classifier)
    if name == "vgg13":
        return nn.Sequential(*model.features, model.avgpool, nn.Flatten(), model.classifier)
    stages = [block for layer in (model.layer1, model.layer2, model.layer3, model.layer4) for block in layer]
    return nn.Sequential(model.conv1, model.bn1, model.relu, model.maxpool, *stages, model.avgpool, nn.Flatten(), model.fc)


def python_steps(name, kind, threads, steps):
    """In a process of its own: one line of milliseconds."""
    import torch
    from torch.nn import functional
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    setting = SETTINGS[name]
    net = sequential(name)
    x = torch.randn(setting["batch"], 3, setting["edge"], setting["edge"])
    y = torch.randint(CLASSES, (setting["batch"],))
    if kind == "torchgpipe":
        from torchgpipe import GPipe
        from torchgpipe.balance import balance_by_time
        for layer in net:  # its profiler gives each layer a leaf, which may not be changed in place
            if getattr(layer, "inplace", False):
                layer.inplace = False
        balance = balance_by_time(2, net, x[: setting["batch"] // CHUNKS], device=torch.device("cpu"))
        net = GPipe(net, balance, devices=["cpu", "cpu"], chunks=CHUNKS, checkpoint="never")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    parts = [(x, y)] if kind == "torchgpipe" else list(zip(x.chunk(CHUNKS), y.chunk(CHUNKS)))
    times = []
    for _ in range(steps + 2):
        begin = time.perf_counter()
        for some, labels in parts:
            (functional.cross_entropy(net(some), labels, reduction="sum") / len(x)).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(1e3 * (time.perf_counter() - begin))
    print(json.dumps(times[2:]))


def in_python(name, kind, threads, steps, torchgpipe):
    command = [sys.executable, __file__, "--child", name, kind, str(threads), str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(torchgpipe), "OMP_NUM_THREADS": str(threads), "PATH": "/usr/bin:/bin"})
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def in_epipe(program, name, order, steps, folder):
    import numpy
    setting = SETTINGS[name]
    data = folder / f"data-{name}"
    if not data.exists():
        data.mkdir()
        draw = numpy.random.default_rng(0)
        for part, count in (("train", setting["batch"] * 2), ("val", CLASSES)):
            numpy.save(data / f"{part}_x.npy", draw.standard_normal((count, 3, setting["edge"], setting["edge"]), dtype=numpy.float32))
            numpy.save(data / f"{part}_y.npy", numpy.arange(count) % CLASSES)
    run = pathlib.Path(tempfile.mkdtemp(dir=folder))
    command = [program, "train", "--model", name, "--data", f"npy:{data}", *order, "--chunks", str(CHUNKS),
               "--batch", str(setting["batch"]), "--lr", "0.01", "--momentum", "0.9",
               "--load-threads", "1", "--epochs", "1000", "--max-steps", str(steps + 2), "--error-every", "0", "--run-dir", str(run / "run")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    lines = [json.loads(line) for line in (run / "run" / "metrics.jsonl").read_text().splitlines()]
    return [1e3 * line["seconds"] for line in lines if line["kind"] == "step"][2:]


def main():
    if sys.argv[1:2] == ["--child"]:
        return python_steps(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--torchgpipe", required=True, type=pathlib.Path, help="the folder that holds the package torchgpipe")
    parser.add_argument("--models", default=",".join(SETTINGS))
    parser.add_argument("--rows", default="", help="only those with this in their names")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    flags = parser.parse_args()
    if not (flags.torchgpipe / "torchgpipe" / "__init__.py").exists():
        raise SystemExit(f"expected the package torchgpipe in {flags.torchgpipe}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        for name in flags.models.split(","):
            rows = {
                "plain, 1 thread": lambda: in_python(name, "plain", 1, flags.steps, flags.torchgpipe),
                "plain, 2 threads": lambda: in_python(name, "plain", 2, flags.steps, flags.torchgpipe),
                "torchgpipe": lambda: in_python(name, "torchgpipe", 1, flags.steps, flags.torchgpipe),
                "epipe gpipe": lambda: in_epipe(flags.program, name, [*TWO_STAGES, "gpipe"], flags.steps, folder),
                "epipe 1f1b": lambda: in_epipe(flags.program, name, [*TWO_STAGES, "1f1b"], flags.steps, folder),
                "epipe zb-h1": lambda: in_epipe(flags.program, name, [*TWO_STAGES, "zb-h1"], flags.steps, folder),
                "epipe, 1 stage, 2 threads": lambda: in_epipe(flags.program, name, ONE_STAGE, flags.steps, folder),
            }
            rows = {row: measure for row, measure in rows.items() if flags.rows in row}
            times = {row: [] for row in rows}
            for _ in range(flags.rounds):
                for row, measure in rows.items():
                    times[row] += measure()
            for row, all_times in times.items():
                print(json.dumps({"model": name, **SETTINGS[name], "chunks": CHUNKS, "row": row, "ms": round(statistics.median(all_times), 1),
                                  "quartiles": [round(q, 1) for q in statistics.quantiles(all_times)][::2], "steps": len(all_times)}), flush=True)


if __name__ == "__main__":
    main()
