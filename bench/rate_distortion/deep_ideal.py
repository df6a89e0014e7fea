#!/usr/bin/env python3
"""Ideal entropies of deep tensors along axes of their channels: deep_ideal.py TENSORS > deep_ideal.jsonl

TENSORS: what deep_tensors.py wrote. One line per tensor and variant: relative errors at 2, 1 and 0.5 bits. Needs numpy.
"""
import json
import sys

import numpy as np

RATES = (2, 1, 0.5)
TABLES = 16
THRESHOLD, OFFSET = 0.62, 0.44  # of the dead zone, in steps


def dct(x):
    n = x.shape[2]
    m = np.sqrt(2 / n) * np.cos(np.pi * np.arange(n)[:, None] * (2 * np.arange(n)[None] + 1) / 2 / n)
    m[0] /= np.sqrt(2)
    return np.einsum("uh,nchw,vw->ncuv", m, x, m)


def rows(x):
    return x.transpose(0, 2, 3, 1).reshape(-1, x.shape[1])


def axes(x):
    """Orthonormal columns, the strongest first."""
    return np.linalg.eigh(rows(x).T @ rows(x))[1][:, ::-1]


def filled_up(leading):
    """These axes, and what is left of the channels."""
    return np.linalg.qr(np.concatenate([leading, np.eye(len(leading))], 1))[0]


def along(x, basis):
    return np.einsum("ncuv,ck->nkuv", x, basis).reshape(len(x), -1)


def quantized(y, step):
    a = np.abs(y) / step
    return (np.sign(y) * np.where(a < THRESHOLD, 0, np.floor(a + OFFSET))).astype(int)


def entropy(q):
    counts = np.unique(q, return_counts=True)[1]
    return -(counts * np.log2(counts / counts.sum())).sum()


def restored(y, q, step):
    x = q * step
    for some in (np.abs(q) == 1, np.abs(q) > 1):
        if some.any():
            x[some] -= np.sign(q[some]) * (np.abs(q[some]) - np.abs(y[some]) / step).mean() * step
    return x


def errors(y, side_bits=0.0):
    """At the finest step that keeps each rate."""
    order = np.argsort(np.argsort(y.std(0)))
    table = order * TABLES // len(order)
    found = []
    for rate in RATES:
        low, high = 1e-4 * y.std(), 1e3 * y.std()
        for _ in range(22):
            step = np.sqrt(low * high)
            q = quantized(y, step)
            bits = sum(entropy(q[:, table == k]) for k in range(TABLES)) + side_bits
            low, high = (step, high) if bits > rate * y.size else (low, step)
        found.append(float(((y - restored(y, quantized(y, high), high)) ** 2).sum() / (y**2).sum()))
    return found


def main():
    for name in ("act15", "grad15"):
        others = axes(dct(np.load(f"{sys.argv[1]}/{name}_other.npy").astype(np.float64)))
        for batch in ("32", "128"):
            x = dct(np.load(f"{sys.argv[1]}/{name}_{batch}.npy").astype(np.float64))
            own, channels = axes(x), x.shape[1]

            def report(variant, y, side_bits=0.0):
                line = {"tensor": f"{name}_{batch}", "variant": variant, "rates": RATES, "errors": errors(y, side_bits)}
                print(json.dumps(line), flush=True)

            report("dct", along(x, np.eye(channels)))
            report("all axes of other samples, free", along(x, others))
            report("all axes, free", along(x, own))
            for count in (8, 16, 32):
                y = along(x, filled_up(own[:, :count]))
                report(f"{count} axes, free", y)
                report(f"{count} axes, 2.5 bits per entry", y, 2.5 * count * channels)
            first = len(x) // 4
            report("dct, without the first quarter", along(x[first:], np.eye(channels)))
            report("without the first quarter, all axes of it, free", along(x[first:], axes(x[:first])))


main()
