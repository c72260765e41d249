"""The constraint curve: least quotients for every minimum cluster size, from one sorted row.

Notation as in `silchunk.kernels.bound`. K clusters of m points or more leave sizes k in
[m, n - (K-1)m]. These ranges are nested, so the minima run outwards from the innermost one.
"""

from __future__ import annotations

import numpy as np

from silchunk.kernels.bound import (
    BLOCK,
    REST_STEPS,
    Block,
    SortedRows,
    block_quotients,
    comparing,
    compiled,
    quotient_at_start,
    quotient_floor,
    rest_step,
    row_sums,
    stays_above,
)


@comparing  # type: ignore[untyped-decorator]
def _steps_up(values: Block) -> int:
    """How often a value is larger than the next."""
    count = 0
    for t in range(values.shape[0] - 1):
        count += values[t] > values[t + 1]
    return count


@comparing  # type: ignore[untyped-decorator]
def _running_minima(values: Block, length: int) -> None:
    """``values[m]`` becomes the least of ``values[m : length + 1]``, for every m ≥ 1."""
    least = 1.0
    stop = length + 1
    while stop > 1:
        start = max(1, stop - BLOCK)
        block = values[start:stop]
        size = stop - start
        stop = start
        # Falling outwards, as it mostly does, a block is its own running minimum.
        if block[size - 1] <= least and not _steps_up(block):
            least = block[0]
            continue
        m = size - 1
        while m >= 3:  # four at a time, which wait but once for those above them
            a, b, c, d = block[m], block[m - 1], block[m - 2], block[m - 3]
            ab = min(a, b)
            block[m] = min(least, a)
            block[m - 1] = min(least, ab)
            block[m - 2] = min(least, min(ab, c))
            least = min(least, min(ab, min(c, d)))
            block[m - 3] = least
            m -= 4
        while m >= 0:
            least = min(least, block[m])
            block[m] = least
            m -= 1


@comparing  # type: ignore[untyped-decorator]
def _fold(quotients: Block, held: int, n_clusters: int, n: int) -> None:
    """``quotients[m]`` becomes the least q(k) of the k < held that are within [m, n - (K-1)m] but
    not within the range of m + 1, for m from 1 to n // K."""
    largest = n // n_clusters
    right = n_clusters - 1
    least = (n - held) // right  # for smaller m these k are not held
    for m in range(largest, n - right * largest + 1):
        quotients[largest] = min(quotients[largest], quotients[m])
    if n_clusters == 2:
        first = max(1, least + 1)
        outer = quotients[n - largest + 1 : n - first + 1]
        inner = quotients[first:largest]
        for t in range(inner.shape[0]):
            inner[t] = min(inner[t], outer[outer.shape[0] - 1 - t])
        return
    for m in range(max(1, least), largest):
        for k in range(n - right * (m + 1) + 1, min(held - 1, n - right * m) + 1):
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
        at_start = quotient_at_start(b, n, sums, before, after)
        levels[depth // BLOCK] = min(levels[depth // BLOCK], at_start)
    for j in range(levels.shape[0] - 2, -1, -1):
        levels[j] = min(levels[j], levels[j + 1])


@compiled  # type: ignore[untyped-decorator]
def _quotient_minima(
    rows: SortedRows,
    i: int,
    n_clusters: int,
    sums: Block,
    before: Block,
    after: Block,
    levels: Block,
    quotients: Block,
) -> bool:
    """``quotients[m]`` = min q(k) over k in [m, n - (K-1)m] of row i, for m from 1 to n // K; False
    where what is held of the row does not tell."""
    row, held, n = rows.values[i], rows.held[i], rows.values.shape[1]
    right = n_clusters - 1
    if rows.farthest[i] == 0.0:
        quotients[:] = 1.0
        return True
    if held <= min(n - 1, n - right * (n // n_clusters)):
        return False
    n_blocks = row_sums(rows, i, sums, before, after)
    _levels_from_inside(n, n_clusters, sums[:n_blocks], before, after, levels)
    own = before[n_blocks - 1] + sums[n_blocks - 1]
    largest = n - right
    for step in range(REST_STEPS if held < n else 0):
        a, b = rest_step(step, held, largest), rest_step(step + 1, held, largest) - 1
        level = levels[(n - a) // right // BLOCK + 1]
        if a <= b and quotient_floor(rows, i, own, a, b) < level:
            return False
    for b in range(n_blocks):
        start = b * BLOCK
        stop = min(start + BLOCK, held)
        # The greatest m whose range has any k of the block.
        deepest = min(stop - 1, (n - start) // right)
        if stays_above(levels[deepest // BLOCK + 1], b, held, n, before, after):
            quotients[start:stop] = 1.0
            continue
        block_quotients(row, n, start, stop, before[b], sums[b], after[b], quotients[start:stop])
    _fold(quotients, held, n_clusters, n)
    _running_minima(quotients, n // n_clusters)
    return True


@compiled  # type: ignore[untyped-decorator]
def constraint_curve(
    rows: SortedRows,
    sizes: Block,
    n_clusters: int,
    bounds: Block,
    total: Block,
    start: int = 0,
) -> int:
    """Point bounds ``1 - min q(k)`` over k in [m, n - (K-1)m], for every m from 1 to n // K.

    Parameters
    ----------
    rows : SortedRows, (r, n)
    sizes : (s,) int64, the m to keep for each row, each in 1 … n // K
    n_clusters : K, at least 2
    bounds : (r, s) float64, filled in
    total : (n // K,) float64, to whose entry m - 1 the bounds for m of all rows are added in order
    start : the first row to reduce

    Returns
    -------
    The first row of which more has to be held, or r.
    """
    n = rows.values.shape[1]
    n_blocks = (n + BLOCK - 1) // BLOCK
    sums, before, after = np.empty(n_blocks), np.empty(n_blocks), np.empty(n_blocks)
    levels = np.empty(n_blocks + 2)
    minima = np.empty(n + 1)
    n_rows: int = bounds.shape[0]
    for i in range(start, n_rows):
        if not _quotient_minima(rows, i, n_clusters, sums, before, after, levels, minima):
            return i
        for m in range(1, total.shape[0] + 1):
            total[m - 1] += 1.0 - minima[m]
        for s in range(sizes.shape[0]):
            bounds[i, s] = 1.0 - minima[sizes[s]]
    return n_rows
