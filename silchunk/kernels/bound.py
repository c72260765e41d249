"""Quotient minima of sorted rows: the heart of the silhouette upper bound.

Notation of Sträng & Dinh (arXiv:2509.08625). A row holds the dissimilarities of one point to the
others, ascending: δ₁ ≤ … ≤ δₙ₋₁. With S_j = δ₁ + … + δ_j and R_k = δ_k + … + δₙ₋₁, the quotient for
an own cluster of size k is

    q(k) = (S_{k-1} / (k-1)) / (R_k / (n-k)),   2 ≤ k ≤ n-1,      q(1) = 1,

and an all-zero row has q = 1 for every k. Rows come with the point itself as a leading zero, so
that ``row[t]`` is δ_t.

S and R are summed independently, in blocks of fixed length, so R never suffers from the
cancellation of T - S, and the order of summation depends on n and the processor alone.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

Block = np.ndarray[Any, np.dtype[Any]]

# δ's per block: the unit of summation and of pruning. Short enough to prune well, long enough for
# its sum to run in vector registers.
BLOCK = 256
# Rounding may break the monotony that pruning rests on by a few units in the last place.
PRUNING_SLACK = 1.0 - 1e-12

compiled = numba.njit(cache=True, nogil=True, error_model="numpy")
# Leaves the order of the additions within one block to the processor's vector width.
reordered = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc"})


@reordered  # type: ignore[untyped-decorator]
def _block_sums(row: Block, sums: Block) -> None:
    """``sums[b]`` = Σ of δ's at positions [b·BLOCK, (b+1)·BLOCK) of the row, in float64."""
    n = row.shape[0]
    for b in range(n // BLOCK):
        total = 0.0
        for t in range(b * BLOCK, (b + 1) * BLOCK):
            total += row[t]
        sums[b] = total
    if n % BLOCK:
        total = 0.0
        for t in range(n - n % BLOCK, n):
            total += row[t]
        sums[n // BLOCK] = total


@compiled  # type: ignore[untyped-decorator]
def _running_sums(sums: Block, before: Block, after: Block) -> None:
    """``before[b]`` = Σ of the blocks left of b, ``after[b]`` = Σ of the blocks right of b."""
    total = 0.0
    for b in range(sums.shape[0]):
        before[b] = total
        total += sums[b]
    total = 0.0
    for b in range(sums.shape[0] - 1, -1, -1):
        after[b] = total
        total += sums[b]


@compiled  # type: ignore[untyped-decorator]
def _block_quotients(row: Block, b: int, before: float, after: float, quotients: Block) -> None:
    """q(k) for every k in block b with 2 ≤ k ≤ n-1, into ``quotients[k - b·BLOCK]``."""
    n = row.shape[0]
    start = b * BLOCK
    stop = min(start + BLOCK, n)
    rest = after
    for k in range(stop - 1, start - 1, -1):
        rest += row[k]
        quotients[k - start] = rest  # R_k
    own = before
    for k in range(start, stop):
        if 2 <= k:
            # S_{k-1}/(k-1) : R_k/(n-k), as one division.
            quotients[k - start] = (own * (n - k)) / (quotients[k - start] * (k - 1))
        own += row[k]


@compiled  # type: ignore[untyped-decorator]
def point_bounds(rows: Block, smallest: int, out: Block) -> None:
    """``out[i]`` = 1 - min q(k) of row i over k in [smallest, n - smallest].

    Parameters
    ----------
    rows : (r, n) float32 or float64, each row ascending with the point itself first
    smallest : minimum cluster size m, 1 ≤ m ≤ n/2
    out : (r,) float64

    A block is skipped where its quotients cannot go below the least one found: S_{k-1}/(k-1) and
    R_k/(n-k) both ascend in k, so q ≥ (first own mean) / (last rest mean) within the block.
    """
    n = rows.shape[1]
    first = max(smallest, 2)
    last = n - smallest
    n_blocks = (n + BLOCK - 1) // BLOCK
    sums = np.empty(n_blocks)
    before = np.empty(n_blocks)
    after = np.empty(n_blocks)
    quotients = np.empty(BLOCK)
    for i in range(rows.shape[0]):
        row = rows[i]
        if row[n - 1] == 0.0:
            out[i] = 0.0
            continue
        _block_sums(row, sums)
        _running_sums(sums, before, after)
        # Start from quotients at block starts: cheap, and close to the minimum.
        least = 1.0  # no quotient is larger: own distances are the smallest ones
        reach = least
        for b in range(n_blocks):
            k = b * BLOCK
            if first <= k <= last:
                reach = min(reach, before[b] * (n - k) / ((sums[b] + after[b]) * (k - 1)))
        reach = reach / PRUNING_SLACK
        for b in range(first // BLOCK, last // BLOCK + 1):
            start = b * BLOCK
            stop = start + BLOCK
            if start >= 2 and stop < n - 1:
                own_mean = before[b] / (start - 1)
                rest_mean = after[b] / (n - stop)
                if own_mean * PRUNING_SLACK > rest_mean * min(least, reach):
                    continue
            _block_quotients(row, b, before[b], after[b], quotients)
            for k in range(max(start, first), min(stop - 1, last) + 1):
                least = min(least, quotients[k - start])
        out[i] = 1.0 - least


@compiled  # type: ignore[untyped-decorator]
def constraint_curve(rows: Block, sizes: Block, bounds: Block, total: Block) -> None:
    """Point bounds ``1 - min q(k)`` over k in [m, n - m], for every m from 1 to n//2.

    The ranges are nested, so the minima run outwards from the innermost one.

    Parameters
    ----------
    rows : (r, n) as in `point_bounds`
    sizes : (s,) int64, the m to keep for each row, each in 1 … n//2
    bounds : (r, s) float64, filled in
    total : (n//2,) float64, to whose entry m - 1 the bounds for m of all rows are added in order
    """
    n = rows.shape[1]
    n_blocks = (n + BLOCK - 1) // BLOCK
    sums = np.empty(n_blocks)
    before = np.empty(n_blocks)
    after = np.empty(n_blocks)
    quotients = np.empty(n_blocks * BLOCK)
    for i in range(rows.shape[0]):
        row = rows[i]
        if row[n - 1] == 0.0:
            bounds[i, :] = 0.0
            continue
        _block_sums(row, sums)
        _running_sums(sums, before, after)
        for b in range(n_blocks):
            start = b * BLOCK
            _block_quotients(row, b, before[b], after[b], quotients[start : start + BLOCK])
        least = quotients[1] = 1.0
        for m in range(n // 2, 0, -1):
            least = min(least, quotients[m], quotients[n - m])
            quotients[m] = 1.0 - least
            total[m - 1] += quotients[m]
        for s in range(sizes.shape[0]):
            bounds[i, s] = quotients[sizes[s]]
