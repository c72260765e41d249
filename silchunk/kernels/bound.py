"""Quotient minima of sorted rows: the heart of the silhouette upper bound.

Notation of Sträng & Dinh (arXiv:2509.08625). A row holds the dissimilarities of one point to the
others, ascending: δ₁ ≤ … ≤ δₙ₋₁. With S_j = δ₁ + … + δ_j and R_k = δ_k + … + δₙ₋₁, the quotient for
an own cluster of size k is

    q(k) = (S_{k-1} / (k-1)) / (R_k / (n-k)),   2 ≤ k ≤ n-1,      q(1) = 1,

and an all-zero row has q = 1 for every k. Rows come with the point itself as a leading zero, so
that ``row[t]`` is δ_t.

Neither S nor R is a difference of larger sums, so neither suffers from cancellation: blocks of
fixed length are summed, the sums of blocks run in both directions with compensation, and only
within a block, where the rest to its right is large enough, R is formed by a subtraction. A
quotient is off by less than `quotient_error`, for rows of any length, and depends on n and the
processor alone.
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
# Within a block, R is the rest of the block, by subtraction, plus what lies right of the block, if
# that is this many times the block at least.
SAFE_RATIO = 4.0

compiled = numba.njit(cache=True, nogil=True, error_model="numpy")
# Leaves the order of the additions within one block to the processor's vector width.
reordered = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc"})
# Least of many values; there is no NaN among them.
comparing = numba.njit(
    cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "nnan", "nsz"}
)


def quotient_error(n: int) -> float:
    """Largest relative error of a computed quotient, u = 2⁻⁵³.

    A block's sum is off by (B - 1) u and compensation adds 2 u, B the length of a block. Hence S by
    (B + 2) u, R by (B + 1) u of what is right of the block and, within it, by 2 B u of at most a
    quarter of that; the quotient takes three operations more.
    """
    return (2.5 * min(n, BLOCK) + 8.0) * 2.0**-53


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
    """``before[b]`` = Σ of the blocks left of b, ``after[b]`` = Σ of those right of b; as exact as
    sums of any length can be (Kahan 1965, doi:10.1145/363707.363723)."""
    n_blocks = sums.shape[0]
    total = lost = 0.0
    for b in range(n_blocks):
        before[b] = total
        term = sums[b] - lost
        following = total + term
        lost = (following - total) - term
        total = following
    total = lost = 0.0
    for b in range(n_blocks - 1, -1, -1):
        after[b] = total
        term = sums[b] - lost
        following = total + term
        lost = (following - total) - term
        total = following


@compiled  # type: ignore[untyped-decorator]
def _partial_sums(row: Block, start: int, stop: int, partial: Block) -> None:
    """``partial[k]`` = Σ of δ's at [start, k), for every k in [start, stop)."""
    total = 0.0
    for t in range(stop - start):
        partial[t] = total
        total += row[start + t]


@compiled  # type: ignore[untyped-decorator]
def _block_quotients(
    row: Block, start: int, stop: int, before: float, inside: float, after: float, quotients: Block
) -> None:
    """q(k) for every k in [start, stop), in the place of the partial sums of that block.

    ``inside`` is the sum of the block, ``before`` and ``after`` those of what is left and right;
    q(0) and q(1) come out as 1. Loops count from 0, which lets them be compiled to vectors.
    """
    n = row.shape[0]
    if after >= SAFE_RATIO * inside:
        for t in range(stop - start):
            k = start + t
            own = before + quotients[t]
            rest = after + (inside - quotients[t])
            # S_{k-1}/(k-1) : R_k/(n-k), as one division.
            quotients[t] = (own * (n - k)) / (rest * (k - 1))
    else:
        rest = 0.0
        for k in range(stop - 1, start - 1, -1):
            rest += row[k]
            own = before + quotients[k - start]
            quotients[k - start] = (own * (n - k)) / ((after + rest) * (k - 1))
    for k in range(start, min(stop, 2)):
        quotients[k - start] = 1.0


@comparing  # type: ignore[untyped-decorator]
def _least(values: Block, first: int, last: int) -> float:
    """Least of ``values[first:last]``, at most 1."""
    least = 1.0
    for k in range(first, last):
        least = min(least, values[k])
    return least


@compiled  # type: ignore[untyped-decorator]
def _quotient_at_start(b: int, n: int, sums: Block, before: Block, after: Block) -> float:
    """q at the first k of block b ≥ 1, in a form that rounding has no power over."""
    k = b * BLOCK
    quotient: float = before[b] * (n - k) / ((sums[b] + after[b]) * (k - 1)) / PRUNING_SLACK
    return quotient


@compiled  # type: ignore[untyped-decorator]
def _stays_above(level: float, b: int, n: int, before: Block, after: Block) -> bool:
    """Whether all quotients of block b are certain to be above ``level``.

    S_{k-1}/(k-1) and R_k/(n-k) both ascend in k, so within a block q ≥ (first own mean) / (last
    rest mean).
    """
    start = b * BLOCK
    stop = start + BLOCK
    if start < 2 or stop >= n - 1:
        return False
    above: bool = before[b] / (start - 1) * PRUNING_SLACK > after[b] / (n - stop) * level
    return above


@compiled  # type: ignore[untyped-decorator]
def point_bounds(rows: Block, smallest: int, largest: int, out: Block) -> None:
    """``out[i]`` = 1 - min q(k) of row i over k in [smallest, largest].

    Parameters
    ----------
    rows : (r, n) float32 or float64, each row ascending with the point itself first
    smallest, largest : least and greatest size of the point's cluster, in 1 … n-1
    out : (r,) float64

    Blocks whose quotients cannot go below the least one found are skipped.
    """
    n = rows.shape[1]
    first = max(smallest, 2)
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
        reach = 1.0  # no quotient is larger: own distances are the smallest ones
        for b in range(n_blocks):
            if first <= b * BLOCK <= largest:
                reach = min(reach, _quotient_at_start(b, n, sums, before, after))
        least = 1.0
        for b in range(first // BLOCK, largest // BLOCK + 1):
            if _stays_above(min(least, reach), b, n, before, after):
                continue
            start = b * BLOCK
            stop = min(start + BLOCK, n)
            _partial_sums(row, start, stop, quotients)
            _block_quotients(row, start, stop, before[b], sums[b], after[b], quotients)
            begin, end = max(start, first), min(stop - 1, largest) + 1
            least = min(least, _least(quotients, begin - start, end - start))
        out[i] = 1.0 - least


@compiled  # type: ignore[untyped-decorator]
def size_bounds(rows: Block, sizes: Block, out: Block) -> None:
    """``out[i, j]`` = 1 - q(sizes[j]) of row i: its bound in a cluster of just that size.

    Parameters
    ----------
    rows : (r, n) as in `point_bounds`
    sizes : (s,) int64, each in 1 … n-1; a cluster of one point has bound 0
    out : (r, s) float64
    """
    n = rows.shape[1]
    n_blocks = (n + BLOCK - 1) // BLOCK
    sums = np.empty(n_blocks)
    before = np.empty(n_blocks)
    after = np.empty(n_blocks)
    quotients = np.empty(BLOCK)
    for i in range(rows.shape[0]):
        row = rows[i]
        if row[n - 1] == 0.0:
            out[i, :] = 0.0
            continue
        _block_sums(row, sums)
        _running_sums(sums, before, after)
        for j in range(sizes.shape[0]):
            k = sizes[j]
            if k < 2:
                out[i, j] = 0.0
                continue
            b = k // BLOCK
            start = b * BLOCK
            stop = min(start + BLOCK, n)
            _partial_sums(row, start, stop, quotients)
            _block_quotients(row, start, stop, before[b], sums[b], after[b], quotients)
            out[i, j] = 1.0 - min(1.0, quotients[k - start])


@comparing  # type: ignore[untyped-decorator]
def _running_minima(values: Block, length: int) -> None:
    """``values[m]`` becomes the least of ``values[m : length + 1]``, for m from length down to 1.

    Four at a time, which wait but once for those above them.
    """
    least = 1.0
    m = length
    while m >= 4:
        a, b, c, d = values[m], values[m - 1], values[m - 2], values[m - 3]
        ab = min(a, b)
        values[m] = min(least, a)
        values[m - 1] = min(least, ab)
        values[m - 2] = min(least, min(ab, c))
        least = min(least, min(ab, min(c, d)))
        values[m - 3] = least
        m -= 4
    while m >= 1:
        least = min(least, values[m])
        values[m] = least
        m -= 1


@comparing  # type: ignore[untyped-decorator]
def _fold(quotients: Block, n_clusters: int, n: int) -> None:
    """``quotients[m]`` becomes the least q(k) of the k that are within [m, n - (K-1)m] but not
    within the range of m + 1, for m from 1 to n // K."""
    largest = n // n_clusters
    right = n_clusters - 1
    for m in range(largest, n - right * largest + 1):
        quotients[largest] = min(quotients[largest], quotients[m])
    if n_clusters == 2:
        for m in range(1, largest):
            quotients[m] = min(quotients[m], quotients[n - m])
        return
    for m in range(1, largest):
        for k in range(n - right * (m + 1) + 1, n - right * m + 1):
            quotients[m] = min(quotients[m], quotients[k])


@compiled  # type: ignore[untyped-decorator]
def _levels_from_inside(
    n: int, n_clusters: int, sums: Block, before: Block, after: Block, levels: Block
) -> None:
    """``levels[j]`` = least quotient at those block starts that are in the range of every m below
    j·BLOCK: what blocks further out must go below to matter to the curve."""
    levels[:] = 1.0
    for b in range(1, sums.shape[0]):
        k = b * BLOCK
        depth = min(k, (n - k) // (n_clusters - 1))  # the greatest m whose range has k
        at_start = _quotient_at_start(b, n, sums, before, after)
        levels[depth // BLOCK] = min(levels[depth // BLOCK], at_start)
    for j in range(levels.shape[0] - 2, -1, -1):
        levels[j] = min(levels[j], levels[j + 1])


@compiled  # type: ignore[untyped-decorator]
def constraint_curve(
    rows: Block, sizes: Block, n_clusters: int, bounds: Block, total: Block
) -> None:
    """Point bounds ``1 - min q(k)`` over k in [m, n - (K-1)m], for every m from 1 to n // K.

    The ranges are nested, so the minima run outwards from the innermost one.

    Parameters
    ----------
    rows : (r, n) as in `point_bounds`
    sizes : (s,) int64, the m to keep for each row, each in 1 … n // K
    n_clusters : K, at least 2
    bounds : (r, s) float64, filled in
    total : (n // K,) float64, to whose entry m - 1 the bounds for m of all rows are added in order
    """
    n = rows.shape[1]
    n_blocks = (n + BLOCK - 1) // BLOCK
    sums = np.empty(n_blocks)
    before = np.empty(n_blocks)
    after = np.empty(n_blocks)
    levels = np.empty(n_blocks + 1)
    quotients = np.empty(n_blocks * BLOCK)
    for i in range(rows.shape[0]):
        row = rows[i]
        if row[n - 1] == 0.0:
            bounds[i, :] = 0.0
            continue
        _block_sums(row, sums)
        _running_sums(sums, before, after)
        _levels_from_inside(n, n_clusters, sums, before, after, levels)
        for b in range(n_blocks):
            start = b * BLOCK
            stop = min(start + BLOCK, n)
            # The greatest m whose range has any k of the block.
            deepest = min(stop - 1, (n - start) // (n_clusters - 1))
            if _stays_above(levels[deepest // BLOCK + 1], b, n, before, after):
                quotients[start:stop] = 1.0
                continue
            _partial_sums(row, start, stop, quotients[start:stop])
            _block_quotients(row, start, stop, before[b], sums[b], after[b], quotients[start:stop])
        _fold(quotients, n_clusters, n)
        _running_minima(quotients, n // n_clusters)
        for m in range(1, n // n_clusters + 1):
            total[m - 1] += 1.0 - quotients[m]
        for s in range(sizes.shape[0]):
            bounds[i, s] = 1.0 - quotients[sizes[s]]
