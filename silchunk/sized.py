"""Bounds for fixed cluster sizes, from the table of what each point reaches in each of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from silchunk import engine, transport
from silchunk.bound_jobs import Path, bound_job
from silchunk.bound_result import SizedBounds
from silchunk.constraints import FixedSizes, fixed_sizes
from silchunk.plan import TABLE_ROWS, ranges
from silchunk.prepare import Arguments
from silchunk.reduction import Wanted
from silchunk.rounding import UNIT_ROUNDOFF
from silchunk.rows import Block, RowSource

Vector = np.ndarray[Any, np.dtype[Any]]

# How far an assignment bound may be above its least value.
ASSIGNMENT_GAP = 1e-6


def sized_bound(
    X: Any,
    arguments: Arguments,
    cluster_sizes: Any,
    labels: Any,
    method: str,
    checkpoint: Path,
    *,
    macro: bool = False,
) -> float:
    """Bound of the average silhouette width, or of the mean of cluster means."""

    def wanted_of(n: int) -> Wanted:
        return Wanted(fixed=fixed_sizes(cluster_sizes, labels, n))

    with bound_job(X, arguments, wanted_of, checkpoint=checkpoint) as (_, reduced):
        sizes, certify = reduced.wanted.fixed, arguments.certify
        assert sizes is not None
        weaker = rearrangement_bounds(reduced.table, sizes, certify=certify)[macro]
        if method == "rearrangement":
            return weaker
        weights = sizes.macro_weights if macro else sizes.asw_weights
        # Within its gap the assignment bound may be above the other: both hold.
        return min(weaker, assignment_bound(reduced.table, sizes, weights, certify=certify)[0])


def sized_bounds(table: RowSource, sizes: FixedSizes, certify: bool) -> SizedBounds:
    """All bounds that follow from the bounds of each point in a cluster of each size (n, J)."""
    weaker = rearrangement_bounds(table, sizes, certify=certify)
    asw, asw_gap = assignment_bound(table, sizes, sizes.asw_weights, certify=certify)
    macro, macro_gap = assignment_bound(table, sizes, sizes.macro_weights, certify=certify)
    return SizedBounds(
        cluster_sizes=tuple(np.repeat(sizes.sizes, sizes.counts)[::-1].tolist()),
        asw=min(asw, weaker[0]),
        macro=min(macro, weaker[1]),
        asw_rearrangement=weaker[0],
        macro_rearrangement=weaker[1],
        asw_gap=asw_gap,
        macro_gap=macro_gap,
    )


def assignment_bound(
    table: RowSource, sizes: FixedSizes, weights: Vector, *, certify: bool
) -> tuple[float, float]:
    """Mean of the best assignment of points to sizes, from above, and how far above at most.

    Parameters
    ----------
    table : (n, J), bounds of each point in a cluster of each size
    sizes : FixedSizes
    weights : (J,) float64, of a point in a cluster of each size, times n

    Notes
    -----
    Exact for up to `transport.EXACT_POINTS` points; beyond, by the dual of the transportation
    problem over row panels, each of whose values is a bound, to within ASSIGNMENT_GAP.
    """
    n = table.shape[0]
    capacities = sizes.capacities
    if n <= transport.EXACT_POINTS:
        found = transport.exact_multipliers(table.rows(0, n), weights, capacities)
    else:
        where = engine.executor("threads")

        def evaluate(multipliers: Vector, temperature: float) -> transport.Terms:
            task = _BlockTerms(table, weights, multipliers, temperature)
            if n <= TABLE_ROWS:
                return task(0, n)
            total: list[transport.Terms] = []

            def add(_: int, terms: transport.Terms) -> None:
                total[:] = [total[0] + terms if total else terms]

            engine.map_panels(task, ranges(n, TABLE_ROWS), add, where=where, progress=False)
            return total[0]

        found = transport.smallest_dual(evaluate, capacities, weights, gap=ASSIGNMENT_GAP)
    return _dual(table, sizes, weights, found.values, certify), found.gap


class _BlockTerms:
    """Panel task: terms of the dual of a range of rows."""

    def __init__(
        self, table: RowSource, weights: Vector, multipliers: Vector, temperature: float
    ) -> None:
        self.table = table
        self.arguments = weights, multipliers, temperature

    def __call__(self, start: int, stop: int) -> transport.Terms:
        return transport.block_terms(self.table.rows(start, stop), *self.arguments)


def _dual(
    table: RowSource, sizes: FixedSizes, weights: Vector, multipliers: Vector, certify: bool
) -> float:
    """The dual at given multipliers, its sums without rounding."""
    best = math.fsum(
        value
        for block in _blocks(table)
        for value in (weights * block - multipliers).max(axis=1).tolist()
    )
    total = math.fsum([best, *(sizes.capacities * multipliers).tolist()])
    bound = total / table.shape[0]
    if certify:
        # Each of the n terms is off by two roundings of numbers of this size.
        largest = float(weights.max() + np.abs(multipliers).max())
        bound = bound * (1.0 + 4.0 * UNIT_ROUNDOFF) + 4.0 * UNIT_ROUNDOFF * largest
    return min(bound, 1.0)


def rearrangement_bounds(
    table: RowSource, sizes: FixedSizes, *, certify: bool
) -> tuple[float, float]:
    """The forms of Sträng & Dinh: each point in the size that suits it best.

    Returns
    -------
    asw : mean of the points' bounds
    macro : the same ascending, matched with cluster sizes descending, each over its size
    """
    n = table.shape[0]
    best = np.concatenate([block.max(axis=1) for block in _blocks(table)])
    best.sort()
    asw = math.fsum(best) / n
    shares, start = [], 0
    for size, count in zip(sizes.sizes[::-1].tolist(), sizes.counts[::-1].tolist(), strict=True):
        stop = start + size * count
        shares.append(math.fsum(best[start:stop]) / size)
        start = stop
    macro = math.fsum(shares) / sizes.n_clusters
    up = 1.0 + 8.0 * UNIT_ROUNDOFF if certify else 1.0
    return min(asw * up, 1.0), min(macro * up, 1.0)


def _blocks(table: RowSource) -> Iterator[Block]:
    for start, stop in ranges(table.shape[0], TABLE_ROWS):
        yield table.rows(start, stop)
