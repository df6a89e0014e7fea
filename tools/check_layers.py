#!/usr/bin/env python3
"""Fails when a folder of src/epipe includes a folder it must not, when a folder without LibTorch includes LibTorch, when an include path
hides the folder of one of our headers, or when the public header includes anything of ours.

    check_layers.py [ROOT]    the folder src/epipe; by default the one beside this script's"""
import pathlib
import re
import sys

TOP = "epipe.h"  # the library's own files, beside the folders

# Which folders each folder may include, besides itself. Others are refused.
MAY_INCLUDE = {
    "base": set(),
    "schedule": {"base"},
    "planner": {"base", "schedule"},
    "report": {"base"},
    "monitor": {"base"},
    "wire": {"base"},
    "codec/kernels": {"base"},
    "codec": {"base", "wire", "codec/kernels"},
    "transport": {"base"},
    "boundary": {"base", "wire", "codec", "transport"},
    "layer": {"base", "codec/kernels"},
    "pipeline": {"base", "wire", "schedule", "codec", "transport", "boundary", "layer"},
    "data": {"base", "layer"},
    "model": {"base", "layer", "data"},
    "session": {"base", "wire", "codec", "transport", "boundary", "layer", "pipeline", "model"},
    "train": {"base", "wire", "schedule", "planner", "codec", "transport", "boundary", "layer", "pipeline", "data", "model", "session"},
    "serve": {"base", "monitor", "schedule", "transport", "model", "session", "train"},
    "experiment": {"base"},
}
MAY_INCLUDE["cli"] = set(MAY_INCLUDE)
MAY_INCLUDE[TOP] = set(MAY_INCLUDE)
WITHOUT_TORCH = {"base", "schedule", "planner", "report", "monitor", "wire", "codec/kernels", "experiment"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def folder_of(path):
    """The folder of a path below src/epipe, or None; the longest name wins, so codec/kernels is not codec."""
    if "/" not in path:
        return TOP
    folder = path.rsplit("/", 1)[0]
    while folder and folder not in MAY_INCLUDE:
        folder = folder.rpartition("/")[0]
    return folder or None


def complaints(name, own, quote, target):
    """What is wrong with one include of file `name` in folder `own`."""
    if own in WITHOUT_TORCH and re.match(r"(torch|ATen|c10|caffe2)/", target):
        yield f"{own} must not include LibTorch ({target})"
    if not target.startswith("epipe/"):
        if quote == '"' or ".." in target.split("/"):
            yield f'expected "epipe/..." or <...>, got {target}'
        return
    if name == TOP:
        yield f"the public header must do without {target}: it is installed alone"
    other = folder_of(target.removeprefix("epipe/"))
    if other != own and other not in MAY_INCLUDE[own]:
        yield f"{own} must not include {target}"


def main():
    default = pathlib.Path(__file__).resolve().parent.parent / "src" / "epipe"
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    errors = []
    for file in sorted(root.rglob("*")):
        if file.suffix not in {".h", ".cpp", ".cu", ".cuh", ".def"}:
            continue
        name = file.relative_to(root).as_posix()
        own = folder_of(name)
        if own is None:
            errors.append(f"{name}: its folder is not in MAY_INCLUDE (tools/check_layers.py)")
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if match := INCLUDE.match(line):
                errors += [f"{name}:{number}: {text}" for text in complaints(name, own, *match.groups())]
    print("\n".join(errors), end="\n" if errors else "")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
