#!/usr/bin/env python3
"""One JSON line per run folder (as `epipe train --run-dir` leaves it): what was run, how well, how many bits, how fast."""
import json
import pathlib
import sys


def setting(config, name):
    """A value of config.toml, whose strings and lists are also JSON."""
    for line in config.splitlines():
        key, _, value = line.partition(" = ")
        if key == name:
            return json.loads(value)
    return None


def ways(steps):
    """Bits and error per cut and direction, over all steps."""
    sums = {}
    for step in steps:
        for cut in step["cuts"]:
            at = sums.setdefault((cut["cut"], cut["direction"]), {"bytes": 0, "values": 0, "errors": []})
            at["bytes"] += cut["wire_bytes"]
            at["values"] += cut["values"]
            if cut["rel_error"] is not None:
                at["errors"].append(cut["rel_error"])
    return [{"cut": cut, "direction": direction, "bits_per_value": round(8 * s["bytes"] / s["values"], 4),
             "rel_error": float(f"{sum(s['errors']) / max(1, len(s['errors'])):.3e}")} for (cut, direction), s in sums.items()]


def summary(folder):
    config = (folder / "config.toml").read_text()
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    steps = [line for line in lines if line["kind"] == "step"]
    last = [line for line in lines if line["kind"] == "epoch"][-1]
    wire = sum(cut["wire_bytes"] for step in steps for cut in step["cuts"])
    values = sum(cut["values"] for step in steps for cut in step["cuts"])
    timed = steps[1:] or steps
    return {"model": pathlib.Path(setting(config, "model")).name, "data": setting(config, "data").split(":")[0],
            "image_size": setting(config, "image-size"), "max_length": setting(config, "max-length"), "batch": setting(config, "batch"),
            "chunks": setting(config, "chunks"), "lr": setting(config, "lr"), "codec": setting(config, "codec"), "codec_at": setting(config, "codec-at") or [], "precision": setting(config, "precision"), "moments": setting(config, "moments") or False,
            "seed": setting(config, "seed"), "devices": setting(config, "devices") or ["cpu"], "steps": len(steps),
            "metric": last["metric"], "val_metric": round(last["val_metric"], 4), "val_accuracy": round(last["val_accuracy"], 4),
            "val_loss": round(last["val_loss"], 4), "train_loss_last_10": round(sum(s["loss"] for s in steps[-10:]) / len(steps[-10:]), 4),
            "bits_per_value": round(8 * wire / values, 3) if values else None, "wire_bytes_per_step": wire // len(steps),
            "samples_per_s": round(sum(s["samples"] for s in timed) / sum(s["seconds"] for s in timed), 1), "cuts": ways(steps)}


for name in sys.argv[1:]:
    print(json.dumps(summary(pathlib.Path(name))))
