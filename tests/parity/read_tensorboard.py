#!/usr/bin/env python3
"""Fails unless TensorBoard reads from a run's folder what its metrics.jsonl says: read_tensorboard.py RUN"""
import json
import pathlib
import struct
import sys

from tensorboard.backend.event_processing import event_accumulator


def as_float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def main():
    folder = pathlib.Path(sys.argv[1])
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["kind"] == "step"]
    epochs = [line for line in lines if line["kind"] == "epoch"]
    read = event_accumulator.EventAccumulator(str(folder), size_guidance={event_accumulator.SCALARS: 0})
    read.Reload()
    for tag in ("loss", "accuracy", "lr", "samples_per_s"):
        assert [(e.step, e.value) for e in read.Scalars(tag)] == [(s["step"], as_float32(s[tag])) for s in steps], tag
    assert [(e.step + 1, e.value) for e in read.Scalars("val_loss")] == [(e["end_step"], as_float32(e["val_loss"])) for e in epochs]
    cut = steps[0]["cuts"][0]
    assert read.Scalars("cut_0_forward/wire_bytes")[0].value == as_float32(cut["wire_bytes"])
    assert read.Scalars("cut_0_forward/bits_per_value")[0].value == as_float32(cut["bits_per_value"])


if __name__ == "__main__":
    main()
