#!/usr/bin/env python3
"""Writes a run directory like a training with three stages on two workers (--place 0,1,0), with invented numbers."""
import argparse
import json
import math
import pathlib
import random

# codec: (bits per value, relative error, loss of accuracy)
CODECS = {"none": (32.0, 0.0, 0.0), "sort:6+2": (8.02, 4.5e-5, 0.012), "uniform:4": (4.01, 6e-3, 0.06), "ec:2": (2.0, 2e-2, 0.02)}
PLACE = [0, 1, 0]
CHUNKS = 4
CUT_VALUES = [262144, 131072]


def cut_lines(rng, codec, step):
    bits, error, _ = CODECS[codec]
    lines = []
    for cut, values in enumerate(CUT_VALUES):
        for direction in ("forward", "backward"):
            spread = 3.0 if direction == "backward" else 1.0
            wander = rng.uniform(0.95, 1.05) if codec.startswith("ec") else 1.0
            wire = int(values * bits * wander / 8) + 64 * CHUNKS
            lines.append({
                "cut": cut, "direction": direction, "codec": codec, "wire_bytes": wire, "values": values,
                "bits_per_value": 8 * wire / values, "recv_MBps": rng.uniform(700, 900),
                "rel_error": error * spread * (cut + 1) * rng.uniform(0.7, 1.4) if step % 10 == 0 else None})
    return lines


def worker_lines(rng, codec):
    slow = CODECS[codec][0] / 32
    lines = []
    for worker in range(2):
        near = lambda seconds: seconds * rng.uniform(0.9, 1.1)
        lines.append({
            "worker": worker, "data": near(0.002) if worker == 0 else 0.0, "forward": near(0.021 + 0.006 * worker),
            "backward": near(0.043 + 0.01 * worker), "optimizer": near(0.003), "encode": near(0.006) if codec != "none" else near(0.001),
            "decode": near(0.003) if codec != "none" else near(0.001), "all_reduce": 0.0, "wait": near(0.012 + 0.02 * slow),
            "peak_memory_bytes": 180_000_000 + 40_000_000 * worker})
    return lines


def metrics(rng, codec, epochs, steps):
    cost = CODECS[codec][2]
    for epoch in range(epochs):
        losses, hits, time = [], [], 0.0
        for k in range(steps):
            step = epoch * steps + k
            done = step / (epochs * steps)
            loss = 2.3 * math.exp(-3.2 * done) + 0.25 + 4 * cost * done + rng.gauss(0, 0.09)
            accuracy = min(1.0, max(0.0, 0.1 + (0.85 - cost) * (1 - math.exp(-4 * done)) + rng.gauss(0, 0.04)))
            workers = worker_lines(rng, codec)
            seconds = max(sum(w[a] for a in ("data", "forward", "backward", "optimizer", "wait")) for w in workers)
            losses.append(loss), hits.append(accuracy)
            time += seconds
            yield {"kind": "step", "epoch": epoch, "step": step, "loss": loss, "accuracy": accuracy, "lr": 0.01, "samples": 64,
                   "seconds": seconds, "samples_per_s": 64 / seconds, "cuts": cut_lines(rng, codec, step), "workers": workers}
        done = (epoch + 1) / epochs
        yield {"kind": "epoch", "epoch": epoch, "steps": steps, "loss": sum(losses) / steps, "accuracy": sum(hits) / steps,
               "val_loss": 2.3 * math.exp(-3 * done) + 0.33 + 4 * cost * done, "val_samples": 1000, "lr": 0.01, "seconds": time,
               "val_accuracy": 0.08 + (0.83 - cost) * (1 - math.exp(-4 * done)), "samples_per_s": 64 * steps / time, "wire_bytes": 123456}


class Tracks:
    """The events of a trace; every track does one thing at a time."""

    def __init__(self):
        self.free = {}
        self.events = []

    def run(self, track, name, category, ready, length, step):
        start = max(ready, self.free.get(track, 0.0))
        if category in ("forward", "backward") and start > self.free.get(track, 0.0):
            self.add(track, "wait", "wait", self.free.get(track, 0.0), start, step)
        self.add(track, name, category, start, start + length, step)
        return start + length

    def add(self, track, name, category, start, end, step):
        self.free[track] = end
        self.events.append({"name": name, "cat": category, "ph": "X", "ts": round(start, 3), "dur": round(end - start, 3), "pid": 0,
                            "tid": track, "args": {"step": step}})


def cross(tracks, rng, codec, stage, to, i, ready, step):
    """One frame across a cut: encoded and sent on the sender's encoder thread, decoded on the receiver's."""
    bits = CODECS[codec][0]
    encoder, decoder = 100 + 2 * PLACE[stage], 101 + 2 * PLACE[to]
    length = 300.0 if codec == "none" else 900.0
    encoded = tracks.run(encoder, f"encode {i}", "encode", ready, length * rng.uniform(0.9, 1.1), step)
    sent = tracks.run(encoder, f"send {i}", "send", encoded, 60 + 30 * bits, step)
    return tracks.run(decoder, f"decode {i}", "decode", sent, length / 2 * rng.uniform(0.9, 1.1), step)


def trace(rng, codec, steps):
    tracks = Tracks()
    for step in range(steps):
        begin = tracks.run(0, "batch", "data", max(tracks.free.values(), default=0.0), 1500, step)
        ready = {i: begin for i in range(CHUNKS)}
        for stage, worker in enumerate(PLACE):
            for i in range(CHUNKS):
                ready[i] = tracks.run(worker, f"F {i} {stage}", "forward", ready[i], 4000 * rng.uniform(0.9, 1.1), step)
                if stage + 1 < len(PLACE):
                    ready[i] = cross(tracks, rng, codec, stage, stage + 1, i, ready[i], step)
        for stage, worker in reversed(list(enumerate(PLACE))):
            for i in range(CHUNKS):
                ready[i] = tracks.run(worker, f"B {i} {stage}", "backward", ready[i], 7500 * rng.uniform(0.9, 1.1), step)
                if stage > 0:
                    ready[i] = cross(tracks, rng, codec, stage, stage - 1, i, ready[i], step)
        for worker in range(2):
            tracks.run(worker, "optimizer", "optimizer", max(ready.values()), 2500, step)
    names = {0: "worker 0", 1: "worker 1", 100: "worker 0 encoder", 101: "worker 0 decoder", 102: "worker 1 encoder", 103: "worker 1 decoder"}
    meta = [{"ph": "M", "name": "thread_name", "pid": 0, "tid": t, "args": {"name": n}} for t, n in names.items()]
    return {"traceEvents": meta + tracks.events}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--codec", choices=CODECS, default="sort:6+2")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--steps", type=int, default=50, help="per epoch")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    args.folder.mkdir(parents=True, exist_ok=True)
    with open(args.folder / "metrics.jsonl", "w") as file:
        for line in metrics(rng, args.codec, args.epochs, args.steps):
            file.write(json.dumps(line) + "\n")
    (args.folder / "trace.json").write_text(json.dumps(trace(rng, args.codec, min(10, args.steps))))
    (args.folder / "config.toml").write_text(f'model = "cnn"\ndata = "synthetic"\nplace = "0,1,0"\nchunks = {CHUNKS}\ncodec = "{args.codec}"\n')


if __name__ == "__main__":
    main()
