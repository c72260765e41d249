"""Draws of points, all at random or some of every cluster."""

from __future__ import annotations

from typing import Any

import numpy as np

from silchunk.errors import InputError
from silchunk.labels import Labels
from silchunk.plan import ranges

Vector = np.ndarray[Any, np.dtype[Any]]

# Points of every cluster that are drawn at least: fewer have no spread.
LEAST_OF_A_CLUSTER = 2
# Codes are looked through this many at a time.
BLOCK_CODES = 1 << 20


def draw_rows(sample_size: Any, random_state: Any, n: int) -> Vector:
    """``sample_size`` of n rows, none twice, in the order they were drawn.

    Parameters
    ----------
    sample_size : int
        2 … n.
    random_state : None, int, numpy.random.Generator or RandomState
        As in scikit-learn; None is new randomness.

    Raises
    ------
    InputError
    """
    size = checked_sample_size(sample_size, n)
    return generator(random_state).choice(n, size, replace=False, shuffle=True).astype(np.int64)


def draw_stratified(sample_size: Any, random_state: Any, labels: Labels) -> Vector:
    """Points (s,) int64, ascending: of each cluster in proportion to its size, and two at least.

    Raises
    ------
    InputError
        If ``sample_size`` is not from what every cluster needs to the number of points.
    """
    size = checked_sample_size(sample_size, labels.n_kept)
    counts = allocation(size, labels.sizes)
    random = generator(random_state)
    ranks = [
        np.sort(random.choice(total, count, replace=False))
        for total, count in zip(labels.sizes.tolist(), counts.tolist(), strict=True)
    ]
    drawn: list[Vector] = []
    seen = np.zeros(labels.n_clusters, np.int64)
    for start, stop in ranges(len(labels.codes), BLOCK_CODES):
        codes = labels.codes[start:stop]
        order = np.argsort(codes, kind="stable")
        edges = np.searchsorted(codes[order], np.arange(labels.n_clusters + 1))
        for cluster in np.flatnonzero(np.diff(edges)):
            members = order[edges[cluster] : edges[cluster + 1]]
            first, last = np.searchsorted(
                ranks[cluster], [seen[cluster], seen[cluster] + len(members)]
            )
            drawn.append(start + members[ranks[cluster][first:last] - seen[cluster]])
            seen[cluster] += len(members)
    return np.sort(np.concatenate(drawn)).astype(np.int64)


def allocation(sample_size: int, sizes: Vector) -> Vector:
    """How many points of each cluster are drawn: (K,) int64, ``sample_size`` in all.

    Raises
    ------
    InputError
        If that is too few for two points of every cluster that has two.
    """
    least = np.minimum(sizes, LEAST_OF_A_CLUSTER)
    if sample_size < least.sum():
        raise InputError(
            f"sample_size is {sample_size:,}, but two points of each of the {len(sizes):,} "
            f"clusters are needed to tell an error: give {least.sum():,} or more."
        )
    wanted = sample_size * sizes / sizes.sum()
    counts = np.clip(np.floor(wanted).astype(np.int64), least, sizes)
    while (missing := sample_size - int(counts.sum())) != 0:
        # One each of those that are furthest from what they should have.
        step = 1 if missing > 0 else -1
        room = np.flatnonzero(counts < sizes if step > 0 else counts > least)
        furthest = room[np.argsort(step * (counts - wanted)[room], kind="stable")]
        counts[furthest[: abs(missing)]] += step
    allocated: Vector = counts
    return allocated


def checked_sample_size(sample_size: Any, n: int) -> int:
    """A number of points that can be drawn.

    Raises
    ------
    InputError
    """
    if isinstance(sample_size, bool) or not isinstance(sample_size, (int, np.integer)):
        raise InputError(f"sample_size takes an integer; got {sample_size!r}.")
    if not 2 <= sample_size <= n:
        raise InputError(f"sample_size must be from 2 to n = {n:,}; got {sample_size:,}.")
    return int(sample_size)


def generator(random_state: Any) -> np.random.Generator:
    """A generator from None, a seed, or a generator of either kind.

    Raises
    ------
    InputError
    """
    if isinstance(random_state, bool):
        raise InputError(f"random_state takes an integer or a generator; got {random_state!r}.")
    if isinstance(random_state, np.random.RandomState):
        # Its own draws without replacement take memory for all n.
        random_state = random_state.randint(0, 2**32, 4, dtype=np.uint64)
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"random_state must be None, an integer or a generator; got {random_state!r}."
        ) from error
