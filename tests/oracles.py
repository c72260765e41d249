"""Slow and obvious: the definitions, as one would write them on a blackboard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np

X6 = np.array([[0.2], [0.1], [0.12], [1.34], [1.11], [1.6]])


def distances(X, dtype=np.longdouble):
    """Euclidean distances by direct differences in extended precision."""
    X = np.asarray(X).astype(dtype)
    return np.sqrt(((X[:, None, :] - X[None, :, :]) ** 2).sum(axis=2))


def two_groups(gap: float) -> np.ndarray:
    """50 + 50 points in the plane, ``gap`` apart."""
    r = np.random.RandomState(0)
    return np.r_[r.randn(50, 2), r.randn(50, 2) + [gap, 0]]


def point_bound(D, i: int, smallest: int, largest: int | None = None):
    """1 - min q(k) of point i over k in [smallest, largest], largest n - smallest by default."""
    n = len(D)
    others = sorted(D[i][j] for j in range(n) if j != i)
    least = None
    for k in range(smallest, (n - smallest if largest is None else largest) + 1):
        if k == 1 or not any(others):
            q = 1
        else:
            own = sum(others[: k - 1]) / (k - 1)
            rest = sum(others[k - 1 :]) / (n - k)
            q = own / rest
        least = q if least is None or q < least else least
    return 1 - least


def upper_bound(D, smallest: int = 1):
    """Mean of the point bounds."""
    return sum(point_bound(D, i, smallest) for i in range(len(D))) / len(D)


def silhouettes(D, labels: Sequence[int]) -> list:
    """Silhouette of each point, by the definition."""
    n = len(D)
    values = []
    for i in range(n):
        own = [D[i][j] for j in range(n) if labels[j] == labels[i] and j != i]
        if not own:
            values.append(0 * D[0][0])
            continue
        a = sum(own) / len(own)
        b = min(
            sum(D[i][j] for j in range(n) if labels[j] == other) / list(labels).count(other)
            for other in set(labels) - {labels[i]}
        )
        values.append((b - a) / max(a, b) if max(a, b) > 0 else 0 * D[0][0])
    return values


def partitions(n: int, smallest: int = 1) -> Iterator[list[int]]:
    """Labels of every partition of n points into two or more clusters of at least ``smallest``."""

    def split(rest: tuple[int, ...], clusters: list[tuple[int, ...]]) -> Iterator[list]:
        if not rest:
            if len(clusters) > 1:
                yield clusters
            return
        head, tail = rest[0], rest[1:]
        for size in range(smallest - 1, len(tail) + 1):
            for mates in combinations(tail, size):
                remaining = tuple(p for p in tail if p not in mates)
                yield from split(remaining, [*clusters, (head, *mates)])

    for clusters in split(tuple(range(n)), []):
        labels = [0] * n
        for label, members in enumerate(clusters):
            for member in members:
                labels[member] = label
        yield labels


def exact(D) -> list[list[Fraction]]:
    """The same matrix in rational arithmetic."""
    return [[Fraction(float(value)) for value in row] for row in D]
