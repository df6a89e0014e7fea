#!/usr/bin/env python3
"""Error against bits of every codec on real tensors: one JSON line per tensor and codec.

usage: measure.py EPIPE TENSORS_DIR > results.jsonl     (needs numpy, and the zstd program for its row)
"""
import json
import pathlib
import subprocess
import sys

import numpy

RATES = [4, 3, 2, 1.5, 1, 0.75, 0.5, 0.25, 0.125]
CODECS = (
    ["fp16"]
    + [f"uniform:{b}" for b in (2, 3, 4, 6, 8)]
    + ["sort:1+1", "sort:2+1", "sort:3+1", "sort:4+2", "sort:6+2"]
    + [f"kmeans:{b}" for b in (1, 2, 3, 4, 6)]
    + [f"topk:{r}" for r in (0.001, 0.01, 0.03, 0.1)]
    + [f"power:{r}" for r in (1, 2, 4, 8)]
    + [f"topk:{r}>ec:4" for r in (0.01, 0.1)]
    + [f"power:{r}>ec:4" for r in (2, 8)]
    + [f"{name}:{rate}" for name in ("ec", "dct", "auto") for rate in RATES]
)


def measured(epipe, codec, paths):
    """Bits and error by path; without the tensors that the codec cannot hold."""
    call = [epipe, "codec", "measure", "--codec", codec, "--seconds", "0.001", "--json"]
    lines = subprocess.run(call + paths, capture_output=True, text=True, check=False)
    if lines.returncode != 0 and len(paths) > 1:
        return {path: row for own in paths for path, row in measured(epipe, codec, [own]).items()}
    if lines.returncode != 0:
        print(f"{codec} {paths[0]}: {lines.stderr.strip()}", file=sys.stderr)
        return {}
    rows = [json.loads(line) for line in lines.stdout.splitlines()]
    return {row["file"]: {"bits_per_value": row["bits_per_value"], "rel_error": row["rel_error"]} for row in rows}


def zstd_of_fp16(path):
    x = numpy.load(path)
    half = x.astype(numpy.float16)
    packed = subprocess.run(["zstd", "-3", "-c"], input=half.tobytes(), capture_output=True, check=True).stdout
    error = numpy.sum((x.astype(numpy.float64) - half) ** 2) / numpy.sum(x.astype(numpy.float64) ** 2)
    return {"bits_per_value": 8 * len(packed) / x.size, "rel_error": float(error)}


def main():
    epipe, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    paths = [str(path) for path in sorted(folder.glob("*.npy"))]
    rows = {codec: measured(epipe, codec, paths) for codec in CODECS}
    rows["zstd -3 of fp16"] = {path: zstd_of_fp16(path) for path in paths}
    for path in paths:
        for codec in rows:
            if path in rows[codec]:
                print(json.dumps({"tensor": pathlib.Path(path).stem, "codec": codec, **rows[codec][path]}), flush=True)


main()
