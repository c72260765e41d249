"""Bounds of rows that are sorted in part: the nearest points of each, and of the rest only its sum.

Sorting is most of the work of a bound, and the least quotient is rarely among the farthest points.
So a row is split at a value: what lies below is sorted, of what lies above only the sum and the
largest value are taken. Where these prove that no size beyond can matter, the result is that of the
whole row; otherwise the row is left to be sorted whole.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from silchunk.kernels.bound import (
    BLOCK,
    Block,
    compiled,
    least_quotient,
)
from silchunk.kernels.curve import add_curve, quotient_minima
from silchunk.kernels.vectors import LANES, split_block

# Values of a row that the value to split it at is taken from.
SAMPLE = 1024


class Nearest(NamedTuple):
    """Rows (r, n) split at a value each."""

    values: Block  # (r, n): the ``held`` values below the edge, then nothing of use
    held: Block  # (r,) int64
    edges: Block  # (r,), of the dtype of the rows
    beyond: Block  # (r,) float64, sum of the others
    farthest: Block  # (r,) float64, the largest value


def split(rows: Block, share: float, values: Block) -> Nearest:
    """Split rows so that about this share of each is below its edge, and sort that.

    Parameters
    ----------
    rows : (r, n) float32 or float64, C-contiguous, unsorted, all ≥ 0
    values : (r, n), where to put what is below
    """
    sample = rows[:, :: max(1, rows.shape[1] // SAMPLE)].copy()
    rank = int(share * sample.shape[1])
    sample.partition(rank, axis=1)
    edges = sample[:, rank].copy()
    held, beyond = np.empty(len(rows), np.int64), np.empty(len(rows))
    farthest = np.empty(len(rows))
    _split(rows, edges, values, held, beyond, farthest)
    for row, count in zip(values, held.tolist(), strict=True):
        row[:count].sort()
    return Nearest(values, held, edges, beyond, farthest)


@compiled  # type: ignore[untyped-decorator]
def _split(
    rows: Block, edges: Block, values: Block, held: Block, beyond: Block, farthest: Block
) -> None:
    n = rows.shape[1]
    whole = n - n % LANES
    for i in range(rows.shape[0]):
        row, kept, edge = rows[i], values[i], edges[i]
        count = 0
        total = lost = largest = 0.0
        for first in range(0, whole, BLOCK):
            count, term, high = split_block(
                row, first, min(first + BLOCK, whole), edge, kept, count
            )
            term -= lost
            following = total + term
            lost = (following - total) - term
            total = following
            largest = max(largest, high)
        for t in range(whole, n):
            largest = max(largest, row[t])
            if row[t] < edge:
                kept[count] = row[t]
                count += 1
            else:
                total += row[t]
        held[i], beyond[i], farthest[i] = count, total, largest


@compiled  # type: ignore[untyped-decorator]
def point_bounds(
    nearest: Nearest, n: int, smallest: int, largest: int, out: Block, start: int
) -> int:
    """As `silchunk.kernels.bound.point_bounds`, of rows from ``start`` on; returns the first row
    that has to be sorted whole, or the number of rows."""
    n_blocks = (n + BLOCK - 1) // BLOCK
    sums, before, after = np.empty(n_blocks), np.empty(n_blocks), np.empty(n_blocks)
    quotients = np.empty(BLOCK)
    for i in range(start, out.shape[0]):
        least = least_quotient(
            nearest.values[i],
            nearest.held[i],
            n,
            nearest.edges[i],
            nearest.beyond[i],
            nearest.farthest[i],
            smallest,
            largest,
            sums,
            before,
            after,
            quotients,
        )
        if least < 0.0:
            return i
        out[i] = 1.0 - least
    n_rows: int = out.shape[0]
    return n_rows


@compiled  # type: ignore[untyped-decorator]
def constraint_curve(
    nearest: Nearest,
    n: int,
    sizes: Block,
    n_clusters: int,
    bounds: Block,
    total: Block,
    start: int,
) -> int:
    """As `silchunk.kernels.curve.constraint_curve`, of rows from ``start`` on; returns the first
    row that has to be sorted whole, or the number of rows."""
    n_blocks = (n + BLOCK - 1) // BLOCK
    sums, before, after = np.empty(n_blocks), np.empty(n_blocks), np.empty(n_blocks)
    levels = np.empty(n_blocks + 2)
    quotients = np.empty(n + 1)
    for i in range(start, bounds.shape[0]):
        if not quotient_minima(
            nearest.values[i],
            nearest.held[i],
            n,
            nearest.edges[i],
            nearest.beyond[i],
            nearest.farthest[i],
            n_clusters,
            sums,
            before,
            after,
            levels,
            quotients,
        ):
            return i
        add_curve(quotients, sizes, bounds[i], total)
    n_rows: int = bounds.shape[0]
    return n_rows
