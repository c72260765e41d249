"""Rows sorted in part: the nearest points of each, and of the rest only its sum.

Sorting is most of the work of a bound, and the least quotient is rarely among the farthest points.
So a row is split at a value: what lies below is sorted, of what lies above only the sum and the
largest value are taken. Where these prove that no size beyond can matter, the result is that of the
whole row; otherwise the row is left to be sorted whole.
"""

from __future__ import annotations

import numpy as np

from silchunk.kernels.bound import BLOCK, Block, SortedRows, add_exactly, compiled
from silchunk.kernels.vectors import LANES, split_block

# Values of a row that the value to split it at is taken from.
SAMPLE = 1024


def split(rows: Block, share: float, values: Block) -> SortedRows:
    """Split rows so that about this share of each is below its edge, and sort that.

    Parameters
    ----------
    rows : (r, n) float32 or float64, C-contiguous, unsorted, all ≥ 0
    values : (r, n), where to put what is below
    """
    if values.shape != rows.shape:  # the loops below write to where they are told
        raise ValueError(f"values has shape {values.shape}, rows {rows.shape}")
    sample = rows[:, :: max(1, rows.shape[1] // SAMPLE)].copy()
    rank = int(share * sample.shape[1])
    sample.partition(rank, axis=1)
    edges = sample[:, rank].copy()
    held, beyond = np.empty(len(rows), np.int64), np.empty(len(rows))
    farthest = np.empty(len(rows))
    _split(rows, edges, values, held, beyond, farthest)
    for row, count in zip(values, held.tolist(), strict=True):
        row[:count].sort()
    return SortedRows(values, held, edges, beyond, farthest)


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
            total, lost = add_exactly(total, lost, term)
            largest = max(largest, high)
        for t in range(whole, n):
            largest = max(largest, row[t])
            if row[t] < edge:
                kept[count] = row[t]
                count += 1
            else:
                total += row[t]
        held[i], beyond[i], farthest[i] = count, total, largest
