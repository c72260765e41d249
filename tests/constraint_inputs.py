"""What the tests of constrained bounds build from."""

from __future__ import annotations

from functools import cache
from itertools import combinations_with_replacement

import numpy as np
import oracles

KINDS = ["uniform", "ties", "zeros", "line"]
METHODS = ["assignment", "rearrangement"]


@cache
def matrix(n, kind):
    """Distances with few digits, so that their rational numbers are short."""
    rng = np.random.default_rng(100 * n + KINDS.index(kind))
    if kind == "line":
        points = np.round(rng.standard_normal(n) + 5 * (np.arange(n) % 3), 2)
        D = np.abs(points[:, None] - points)
    else:
        D = rng.integers(1, 1024, (n, n)) / 1024
        D = rng.integers(0, 4, (n, n)) / 1.0 if kind == "ties" else D
        D = D * (rng.random((n, n)) < 0.3) if kind == "zeros" else D
    D = np.triu(D, 1)
    return D + D.T


@cache
def clusterings(n, kind):
    """(ascending sizes, ASW, macro silhouette) of every clustering, in rational numbers."""
    rational = oracles.exact(matrix(n, kind))
    found = []
    for labels in oracles.partitions(n):
        values = oracles.silhouettes(rational, labels)
        members = [[v for v, of in zip(values, labels, strict=True) if of == c] for c in {*labels}]
        macro = sum(sum(cluster) / len(cluster) for cluster in members) / len(members)
        found.append((tuple(sorted(map(len, members))), sum(values) / n, macro))
    return found


@cache
def size_lists(n):
    """All lists of two or more cluster sizes, each ascending."""
    return [
        sizes
        for k in range(2, n + 1)
        for sizes in combinations_with_replacement(range(1, n), k)
        if sum(sizes) == n
    ]


def table_of(D, sizes):
    """What each point reaches in a cluster of each size (n, K)."""
    return [[oracles.point_bound(D, i, size, size) for size in sizes] for i in range(len(D))]


def quick_table(D, sizes):
    """The same by cumulative sums, for more points."""
    n = len(D)
    D = np.sort(D, axis=1)
    assert (D[:, 0] == 0).all()
    sums = np.cumsum(D, axis=1)
    table = np.zeros((n, len(sizes)))
    for j, size in enumerate(sizes):
        if size > 1:
            own = sums[:, size - 1] / (size - 1)
            table[:, j] = 1 - own / (D[:, size:].sum(axis=1) / (n - size))
    return table


def blobs(sizes, d, seed, gap=6.0):
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    X = rng.standard_normal((len(labels), d))
    return X + gap * rng.standard_normal((len(sizes), d))[labels], labels
