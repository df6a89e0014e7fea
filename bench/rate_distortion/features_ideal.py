#!/usr/bin/env python3
"""features_ideal.py x.npy...: what texts [N, T, F] could err at 1 bit per value, with ideal entropies (tables and axes at about their true bytes).

The row "rows" is what `auto` does: eight axes by reflections, contexts by running means per axis. The others change one thing each; README.md has
the table. numpy alone."""
import sys

import numpy as np

EDGES = np.array([0.02, 0.05, 0.1, 0.17, 0.26, 0.4, 0.6, 0.9, 1.5, 3])
AXIS_BYTES = 200  # of a reflection of 256 features, as coded
LAMBDA = 0.1155  # squared steps per bit


def turned(x, count):
    """Rows by their `count` strongest axes and what reflections leave of the other features; by all axes where count is F."""
    vectors = np.linalg.eigh(x.T @ x)[1][:, ::-1]
    if count == x.shape[1]:
        return x @ vectors
    turn = np.eye(x.shape[1])
    for k in range(count):
        u = turn.T @ vectors[:, k]
        u[:k] = 0
        u /= np.linalg.norm(u)
        u[k] += 1 if u[k] >= 0 else -1
        u /= np.linalg.norm(u)
        turn -= 2 * np.outer(turn @ u, u)
    return x @ turn


def running_means(q, keep=0.9):
    means, out = np.full(q.shape[1], 0.3), np.empty(q.shape)
    for row, magnitudes in enumerate(np.minimum(np.abs(q), 15)):
        out[row] = means
        means = keep * means + (1 - keep) * magnitudes
    return out


def by_axis(q):
    return np.digitize(running_means(q), EDGES)


def by_axis_and_row(q):
    """How much more the stronger axes of this row had than was to be expected counts as well."""
    means, magnitudes = running_means(q, 0.97), np.minimum(np.abs(q), 15)
    ratio = (np.cumsum(magnitudes, 1) - magnitudes + 2) / (np.cumsum(means, 1) - means + 2)
    return np.digitize(means * ratio**0.7, EDGES) + 16 * np.digitize(ratio, [0.6, 0.85, 1.2, 1.6])


def counts(contexts, q):
    key = (contexts.ravel() * 64 + np.minimum(np.abs(q).ravel(), 40)).astype(np.int64)
    return np.bincount(key, minlength=int(contexts.max() + 1) * 64).reshape(-1, 64)


def bits(contexts, q):
    table = counts(contexts, q)
    p = table / np.maximum(table.sum(1, keepdims=True), 1)
    return -(table * np.log2(np.where(table > 0, p, 1))).sum() + (q != 0).sum() + 6 * (table > 0).sum()


def rounded(y, _contexts):
    magnitude = np.abs(y)
    return np.where(magnitude < 0.6, 0, np.maximum(1, np.floor(magnitude + 0.4))) * np.sign(y)


def rounded_by_cost(y, contexts):
    """Of the levels around a value the one whose error and bits, in its own context, cost least."""
    q, magnitude = rounded(y, contexts), np.abs(y)
    for _ in range(2):
        context = contexts(q).astype(np.int64)
        table = counts(context, q) + 0.05
        price = -np.log2(table / table.sum(1, keepdims=True))
        price[:, 1:] += 1
        ones = magnitude[np.abs(q) == 1].mean()
        best, least = np.zeros(y.shape), magnitude**2 + LAMBDA * price[context, 0]
        for level in (np.floor(magnitude), np.floor(magnitude) + 1):
            cost = (magnitude - np.where(level == 1, ones, level)) ** 2 + LAMBDA * price[context, np.minimum(level, 40).astype(int)]
            better = (level > 0) & (cost < least)
            best, least = np.where(better, level, best), np.where(better, cost, least)
        q = best * np.sign(y)
    return q


def error(y, side_bytes, contexts=by_axis, quantize=rounded, rate=1.0):
    scale, low, high = np.sqrt((y**2).mean()), 0.02, 20.0
    for _ in range(16):
        step = np.sqrt(low * high) * scale
        q = quantize(y / step, contexts)
        too_many = bits(contexts(q), q) + 8 * side_bytes > rate * y.size
        low, high = (np.sqrt(low * high), high) if too_many else (low, np.sqrt(low * high))
    step = high * scale
    q = quantize(y / step, contexts)
    level = np.abs(q) * step
    for chosen in (np.abs(q) == 1, np.abs(q) > 1):
        if chosen.any():
            level[chosen] += np.abs(y)[chosen].mean() - level[chosen].mean()
    return ((level * np.sign(q) - y) ** 2).sum() / (y**2).sum()


def by_clusters(x, count):
    """Rows of `count` clusters, one after the other, each by its own eight axes."""
    centres = x[np.random.default_rng(0).choice(len(x), count, replace=False)]
    for _ in range(20):
        label = ((x[:, None] - centres[None]) ** 2).sum(2).argmin(1)
        centres = np.array([x[label == k].mean(0) for k in range(count)])
    return np.concatenate([turned(x[label == k], 8) for k in range(count)])


for path in sys.argv[1:]:
    x = np.load(path).astype(np.float64)
    x = x.reshape(-1, x.shape[-1])
    y, paid = turned(x, 8), 8 * AXIS_BYTES
    free = turned(x, x.shape[1])
    print(path, "rows %.4f" % error(y, paid), "all axes, free %.4f" % error(free, 0), "contexts by axis and row %.4f" % error(y, paid, by_axis_and_row),
          "rounding by cost %.4f" % error(y, paid, quantize=rounded_by_cost), "both %.4f" % error(y, paid, by_axis_and_row, rounded_by_cost),
          "both, all axes, free %.4f" % error(free, 0, by_axis_and_row, rounded_by_cost),
          *("%d clusters %.4f" % (k, error(by_clusters(x, k), k * paid + len(x) // 8 * (k - 1))) for k in (2, 3)), sep="\n  ")
