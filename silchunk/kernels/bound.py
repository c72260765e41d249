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
# What is not held of a row is bounded in so many steps.
REST_STEPS = 32

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
def _running_sums(sums: Block, beyond: float, before: Block, after: Block) -> None:
    """``before[b]`` = Σ of the blocks left of b, ``after[b]`` = Σ of those right of b and of what
    is ``beyond`` them; as exact as sums of any length can be (Kahan 1965,
    doi:10.1145/363707.363723)."""
    n_blocks = sums.shape[0]
    total = lost = 0.0
    for b in range(n_blocks):
        before[b] = total
        term = sums[b] - lost
        following = total + term
        lost = (following - total) - term
        total = following
    total, lost = beyond, 0.0
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
    row: Block,
    n: int,
    start: int,
    stop: int,
    before: float,
    inside: float,
    after: float,
    quotients: Block,
) -> None:
    """q(k) for every k in [start, stop), in the place of the partial sums of that block.

    ``inside`` is the sum of the block, ``before`` and ``after`` those of what is left and right;
    q(0) and q(1) come out as 1. Loops count from 0, which lets them be compiled to vectors.
    """
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
def _stays_above(level: float, b: int, held: int, n: int, before: Block, after: Block) -> bool:
    """Whether all quotients of block b are certain to be above ``level``.

    S_{k-1}/(k-1) and R_k/(n-k) both ascend in k, so within a block q ≥ (first own mean) / (last
    rest mean).
    """
    start = b * BLOCK
    stop = min(start + BLOCK, held)
    if start < 2 or stop >= n - 1:
        return False
    above: bool = before[b] / (start - 1) * PRUNING_SLACK > after[b] / (n - stop) * level
    return above


@compiled  # type: ignore[untyped-decorator]
def quotient_floor(
    a: int, b: int, held: int, n: int, own: float, least: float, beyond: float, farthest: float
) -> float:
    """A lower limit of q(k) for a ≤ k ≤ b, where only the ``held`` smallest δ's are known.

    They add up to ``own``; the others are at least ``least``, ``beyond`` in all, ``farthest`` at
    most. S_{k-1}/(k-1) and R_k/(n-k), both bounded by putting ``least`` for what lies between
    ``held`` and k, ascend in k.
    """
    own_mean = (own + (a - held) * least) / (a - 1)
    rest_mean = max(least, min(farthest, (beyond - (b - held) * least) / (n - b)))
    floor: float = own_mean / rest_mean * PRUNING_SLACK
    return floor


@compiled  # type: ignore[untyped-decorator]
def rest_step(step: int, held: int, last: int) -> int:
    """First of the sizes in one of REST_STEPS parts of (held, last], closer near ``held``."""
    return held + 1 + ((last - held) * step * step) // (REST_STEPS * REST_STEPS)


@compiled  # type: ignore[untyped-decorator]
def least_quotient(
    row: Block,
    held: int,
    n: int,
    edge: float,
    beyond: float,
    farthest: float,
    smallest: int,
    largest: int,
    sums: Block,
    before: Block,
    after: Block,
    quotients: Block,
) -> float:
    """min q(k) over k in [smallest, largest] of one row, or -1 where what is held does not tell.

    The row holds its ``held`` smallest δ's, ascending; the others are at least ``edge`` and at most
    ``farthest``, and add up to ``beyond``. Blocks whose quotients cannot go below the least one
    found are skipped.
    """
    first, last = max(smallest, 2), min(largest, held - 1)
    if first > last < largest:
        return -1.0
    n_blocks = (held + BLOCK - 1) // BLOCK
    sums, before, after = sums[:n_blocks], before[:n_blocks], after[:n_blocks]
    _block_sums(row[:held], sums)
    _running_sums(sums, beyond, before, after)
    # Start from quotients at block starts: cheap, and close to the minimum.
    reach = 1.0  # no quotient is larger: own distances are the smallest ones
    for b in range(n_blocks):
        if first <= b * BLOCK <= last:
            reach = min(reach, _quotient_at_start(b, n, sums, before, after))
    least = 1.0
    for b in range(first // BLOCK, last // BLOCK + 1):
        if _stays_above(min(least, reach), b, held, n, before, after):
            continue
        start = b * BLOCK
        stop = min(start + BLOCK, held)
        _partial_sums(row, start, stop, quotients)
        _block_quotients(row, n, start, stop, before[b], sums[b], after[b], quotients)
        begin, end = max(start, first), min(stop - 1, last) + 1
        least = min(least, _least(quotients, begin - start, end - start))
    if last < largest:
        own = before[n_blocks - 1] + sums[n_blocks - 1]
        for step in range(REST_STEPS):
            a, b = rest_step(step, held - 1, largest), rest_step(step + 1, held - 1, largest) - 1
            if a > b:
                continue
            if quotient_floor(a, b, held, n, own, edge, beyond, farthest) < least:
                return -1.0
    return least


@compiled  # type: ignore[untyped-decorator]
def point_bounds(rows: Block, smallest: int, largest: int, out: Block) -> None:
    """``out[i]`` = 1 - min q(k) of row i over k in [smallest, largest].

    Parameters
    ----------
    rows : (r, n) float32 or float64, each row ascending with the point itself first
    smallest, largest : least and greatest size of the point's cluster, in 1 … n-1
    out : (r,) float64
    """
    n = rows.shape[1]
    n_blocks = (n + BLOCK - 1) // BLOCK
    sums, before, after = np.empty(n_blocks), np.empty(n_blocks), np.empty(n_blocks)
    quotients = np.empty(BLOCK)
    for i in range(rows.shape[0]):
        row = rows[i]
        out[i] = 0.0
        if row[n - 1] > 0.0:
            out[i] = 1.0 - least_quotient(
                row, n, n, 0.0, 0.0, 0.0, smallest, largest, sums, before, after, quotients
            )


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
    sums, before, after = np.empty(n_blocks), np.empty(n_blocks), np.empty(n_blocks)
    quotients = np.empty(BLOCK)
    for i in range(rows.shape[0]):
        row = rows[i]
        if row[n - 1] == 0.0:
            out[i, :] = 0.0
            continue
        _block_sums(row, sums)
        _running_sums(sums, 0.0, before, after)
        for j in range(sizes.shape[0]):
            k = sizes[j]
            if k < 2:
                out[i, j] = 0.0
                continue
            b = k // BLOCK
            start = b * BLOCK
            stop = min(start + BLOCK, n)
            _partial_sums(row, start, stop, quotients)
            _block_quotients(row, n, start, stop, before[b], sums[b], after[b], quotients)
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
def quotient_minima(
    row: Block,
    held: int,
    n: int,
    edge: float,
    beyond: float,
    farthest: float,
    n_clusters: int,
    sums: Block,
    before: Block,
    after: Block,
    levels: Block,
    quotients: Block,
) -> bool:
    """``quotients[m]`` = min q(k) over k in [m, n - (K-1)m] of one row, for m from 1 to n // K;
    False where what is held of the row does not tell. See `least_quotient`.

    The ranges are nested, so the minima run outwards from the innermost one.
    """
    right = n_clusters - 1
    if held <= min(n - 1, n - right * (n // n_clusters)):
        return False
    n_blocks = (held + BLOCK - 1) // BLOCK
    sums, before, after = sums[:n_blocks], before[:n_blocks], after[:n_blocks]
    _block_sums(row[:held], sums)
    _running_sums(sums, beyond, before, after)
    _levels_from_inside(n, n_clusters, sums, before, after, levels)
    if held < n:
        own = before[n_blocks - 1] + sums[n_blocks - 1]
        largest = n - right
        for step in range(REST_STEPS):
            a, b = rest_step(step, held - 1, largest), rest_step(step + 1, held - 1, largest) - 1
            if a > b:
                continue
            level = levels[(n - a) // right // BLOCK + 1]
            if quotient_floor(a, b, held, n, own, edge, beyond, farthest) < level:
                return False
        quotients[held:n] = 1.0
    for b in range(n_blocks):
        start = b * BLOCK
        stop = min(start + BLOCK, held)
        # The greatest m whose range has any k of the block.
        deepest = min(stop - 1, (n - start) // right)
        if _stays_above(levels[deepest // BLOCK + 1], b, held, n, before, after):
            quotients[start:stop] = 1.0
            continue
        _partial_sums(row, start, stop, quotients[start:stop])
        _block_quotients(row, n, start, stop, before[b], sums[b], after[b], quotients[start:stop])
    _fold(quotients, n_clusters, n)
    _running_minima(quotients, n // n_clusters)
    return True


@compiled  # type: ignore[untyped-decorator]
def add_curve(minima: Block, sizes: Block, bounds: Block, total: Block) -> None:
    """Add a row's ``1 - minima[m]``, m from 1 on, to ``total``; those of some sizes are its
    ``bounds``."""
    for m in range(1, total.shape[0] + 1):
        total[m - 1] += 1.0 - minima[m]
    for s in range(sizes.shape[0]):
        bounds[s] = 1.0 - minima[sizes[s]]


@compiled  # type: ignore[untyped-decorator]
def constraint_curve(
    rows: Block, sizes: Block, n_clusters: int, bounds: Block, total: Block
) -> None:
    """Point bounds ``1 - min q(k)`` over k in [m, n - (K-1)m], for every m from 1 to n // K.

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
    sums, before, after = np.empty(n_blocks), np.empty(n_blocks), np.empty(n_blocks)
    levels = np.empty(n_blocks + 2)
    quotients = np.empty(n + 1)
    for i in range(rows.shape[0]):
        row = rows[i]
        if row[n - 1] == 0.0:
            bounds[i, :] = 0.0
            continue
        quotient_minima(
            row, n, n, 0.0, 0.0, 0.0, n_clusters, sums, before, after, levels, quotients
        )
        add_curve(quotients, sizes, bounds[i], total)
