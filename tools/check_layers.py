#!/usr/bin/env python3
"""Fails when a folder of src/epipe includes a folder that is not below it, when a folder that does without LibTorch includes it,
or when a header of ours is named by a path that hides its folder."""
import pathlib
import re
import sys

# Bottom up, the README's picture upside down: a folder may include itself and every folder before it.
LAYERS = [
    "base", "schedule", "report", "wire", "codec/kernels", "codec", "transport", "boundary", "layer",
    "pipeline", "data", "model", "train", "serve", "experiment", "cli",
]
TOP = "epipe.h"
LAYERS.append(TOP)
PUBLIC_HEADER = "epipe.h"
WITHOUT_TORCH = {"base", "schedule", "report", "wire", "codec/kernels", "experiment"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def layer_of(path):
    """The layer of a path below src/epipe; the longest name wins, so codec/kernels is not codec. The library's own files are on top."""
    if "/" not in path:
        return TOP
    folder = path.rsplit("/", 1)[0]
    while folder:
        if folder in LAYERS:
            return folder
        folder = folder.rpartition("/")[0]
    return None


def main():
    root = pathlib.Path(__file__).resolve().parent.parent / "src" / "epipe"
    errors = []
    for file in sorted(root.rglob("*")):
        if file.suffix not in {".h", ".cpp", ".cu", ".cuh"}:
            continue
        name = file.relative_to(root).as_posix()
        own = layer_of(name)
        if own is None:
            errors.append(f"{name}: its folder has no place in the stack; add it to LAYERS")
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            quote, target = match.groups()
            if own in WITHOUT_TORCH and re.match(r"(torch|ATen|c10|caffe2)/", target):
                errors.append(f"{name}:{number}: {own} must not include LibTorch ({target})")
            if not target.startswith("epipe/"):
                if quote == '"' or ".." in target.split("/"):
                    errors.append(f"{name}:{number}: expected \"epipe/...\" or <...>, got {target}")
                continue
            if name == PUBLIC_HEADER:
                errors.append(f"{name}:{number}: the public header must do without {target}: it is installed alone")
            other = layer_of(target.removeprefix("epipe/"))
            if other is None or LAYERS.index(other) > LAYERS.index(own):
                errors.append(f"{name}:{number}: {own} must not include {target}, which is not below it")
    for error in errors:
        print(error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
