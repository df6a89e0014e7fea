"""Checks of arguments: the name of what is wrong, what is expected, what was given."""

import numbers
import os

import torch


def named(value):
    """The type of a value, as a message names it."""
    return "None" if value is None else type(value).__name__


def text(name, value, example):
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected a string such as {example!r}, got {named(value)}")
    return value


def whole(name, value, least, most):
    """A whole number; NumPy's and 0-dimensional tensors of integers count."""
    try:
        number = value.__index__()
    except (AttributeError, TypeError):
        raise TypeError(f"{name}: expected a whole number, got {value!r}") from None
    if not least <= number <= most:
        raise ValueError(f"{name}: expected a whole number from {least} to {most}, got {number}")
    return number


def number(name, value):
    if not isinstance(value, (numbers.Real, torch.Tensor)) or isinstance(value, torch.Tensor) and value.numel() != 1:
        raise TypeError(f"{name}: expected a number, got {value!r}")
    return float(value)


def flag(name, value):
    if not isinstance(value, bool):
        raise TypeError(f"{name}: expected True or False, got {value!r}")
    return value


def pair(name, value, of):
    """Two things, as in a tuple or a list."""
    if isinstance(value, (str, bytes)) or not hasattr(value, "__len__") or not hasattr(value, "__getitem__"):
        raise TypeError(f"{name}: expected {of}, got {value!r}")
    if len(value) != 2:
        raise ValueError(f"{name}: expected {of}, got {len(value)} of them")
    return value[0], value[1]


def mapping(name, value, keys):
    """A dictionary with no keys but these."""
    if not hasattr(value, "keys"):
        raise TypeError(f"{name}: expected a dictionary with {', '.join(keys)}, got {value!r}")
    for key in value.keys():
        if key not in keys:
            raise ValueError(f"{name}: expected {', '.join(keys)}, got {key!r}")
    return value


def path(name, value):
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name}: expected a path, got {value!r}")
    return os.fspath(value)


def device(name, value):
    """The CPU, or a CUDA device that is there."""
    try:
        there = torch.device("cpu" if value is None else value)
    except (RuntimeError, TypeError):
        there = None
    if there is None or there.type not in ("cpu", "cuda"):
        raise ValueError(f"{name}: expected cpu, cuda or cuda:N, got {str(value)!r}")
    if there.type == "cuda" and (there.index or 0) >= torch.cuda.device_count():
        raise RuntimeError(f"{name}: PyTorch sees {torch.cuda.device_count()} CUDA devices, and {value} is none of them; use cpu")
    return there
