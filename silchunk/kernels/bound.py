"""Quotient minima of sorted rows: the heart of the silhouette upper bound.

Notation of Sträng & Dinh (arXiv:2509.08625). A row holds the dissimilarities of one point to the
others, ascending: δ₁ ≤ … ≤ δₙ₋₁. With S_j = δ₁ + … + δ_j and R_k = δ_k + … + δₙ₋₁, the quotient for
an own cluster of size k is

    q(k) = (S_{k-1} / (k-1)) / (R_k / (n-k)),   2 ≤ k ≤ n-1,      q(1) = 1,

and an all-zero row has q = 1 for every k. Rows come with the point itself as a leading zero, so
that ``row[t]`` is δ_t, sorted whole or in part: see `SortedRows`.

Neither S nor R is a difference of larger sums, so neither suffers from cancellation: blocks of
fixed length are summed, the sums of blocks run in both directions with compensation, and only
within a block, where the rest to its right is large enough, R is formed by a subtraction. A
quotient is off by less than `quotient_error`, for rows of any length, and depends on n and the
processor alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from silchunk.kernels.vectors import SCANNED, running_quotients

Block = np.ndarray[Any, np.dtype[Any]]

# δ's per block: the unit of summation and of pruning. Short enough to prune well, long enough for
# its sum to run in vector registers.
BLOCK = 256
# Rounding may break the monotony that pruning rests on by a few units in the last place.
PRUNING_SLACK = 1.0 - 1e-12
SMALLEST_NORMAL = 2.0**-1022
# Within a block, R is the rest of the block, by subtraction, plus what lies right of the block, if
# that is this many times the block at least.
SAFE_RATIO = 4.0
# What is not held of a row is bounded in so many steps.
REST_STEPS = 32
BEYOND_SLACK = 1.0 + 1e-13

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


class SortedRows(NamedTuple):
    """Rows (r, n) whose smallest values are sorted; of the others a few facts are known."""

    values: Block  # (r, n): the ``held`` values, ascending, the point itself first
    held: Block  # (r,) int64
    edges: Block  # (r,), of the dtype of the rows: the others are at least this
    beyond: Block  # (r,) float64: what they add up to
    farthest: Block  # (r,) float64: the largest value of the row


def whole(rows: Block) -> SortedRows:
    """Rows (r, n) that are sorted from end to end."""
    r, n = rows.shape
    nothing = np.zeros(r)
    return SortedRows(
        rows, np.full(r, n), nothing.astype(rows.dtype), nothing, rows[:, -1].astype(np.float64)
    )


@compiled  # type: ignore[untyped-decorator]
def add_exactly(total: float, lost: float, term: float) -> tuple[float, float]:
    """A running sum with one more term, and what it has lost to rounding so far: as exact as sums
    of any length can be (Kahan 1965, doi:10.1145/363707.363723)."""
    term -= lost
    following = total + term
    return following, (following - total) - term


@reordered  # type: ignore[untyped-decorator]
def block_sum(part: Block) -> float:
    """Σ of at most BLOCK values, in float64."""
    total = 0.0
    for t in range(part.shape[0]):
        total += part[t]
    return total


@compiled  # type: ignore[untyped-decorator]
def running_sums(sums: Block, beyond: float, before: Block, after: Block) -> None:
    """``before[b]`` = Σ of the blocks left of b, ``after[b]`` = Σ of those right of b and of what
    is ``beyond`` them."""
    n_blocks = sums.shape[0]
    total = lost = 0.0
    for b in range(n_blocks):
        before[b] = total
        total, lost = add_exactly(total, lost, sums[b])
    total, lost = beyond, 0.0
    for b in range(n_blocks - 1, -1, -1):
        after[b] = total
        total, lost = add_exactly(total, lost, sums[b])


@compiled  # type: ignore[untyped-decorator]
def row_sums(rows: SortedRows, i: int, sums: Block, before: Block, after: Block) -> int:
    """Sums of the blocks of what is held of a row, and of what is left and right of each; returns
    the number of blocks."""
    row, held = rows.values[i], rows.held[i]
    n_blocks: int = (held + BLOCK - 1) // BLOCK
    for b in range(n_blocks):
        sums[b] = block_sum(row[b * BLOCK : min((b + 1) * BLOCK, held)])
    running_sums(sums[:n_blocks], rows.beyond[i], before[:n_blocks], after[:n_blocks])
    return n_blocks


@compiled  # type: ignore[untyped-decorator]
def block_quotients(
    row: Block,
    n: int,
    start: int,
    stop: int,
    before: float,
    inside: float,
    after: float,
    quotients: Block,
) -> None:
    """``quotients[k - start]`` = q(k) for every k in [start, stop), one block.

    ``inside`` is the sum of the block, ``before`` and ``after`` those of what is left and right;
    q(0) and q(1) come out as 1.
    """
    if after >= SAFE_RATIO * inside:
        left = 0.0
        whole = start + (stop - start) // SCANNED * SCANNED
        if whole > start:
            left = running_quotients(row, start, whole, n, before, inside, after, quotients)
        for k in range(whole, stop):
            own, rest = before + left, after + (inside - left)
            quotients[k - start] = (own * (n - k)) / (rest * (k - 1))
            left += row[k]
    else:
        left = rest = 0.0
        for k in range(start, stop):
            quotients[k - start] = before + left
            left += row[k]
        for k in range(stop - 1, start - 1, -1):
            rest += row[k]
            own = quotients[k - start]
            quotients[k - start] = (own * (n - k)) / ((after + rest) * (k - 1))
    for k in range(start, min(stop, 2)):
        quotients[k - start] = 1.0


@comparing  # type: ignore[untyped-decorator]
def _least(values: Block) -> float:
    """Least of some values, at most 1."""
    least = 1.0
    for t in range(values.shape[0]):
        least = min(least, values[t])
    return least


@compiled  # type: ignore[untyped-decorator]
def quotient_at_start(b: int, n: int, sums: Block, before: Block, after: Block) -> float:
    """q at the first k of block b ≥ 1, in a form that rounding has no power over."""
    k = b * BLOCK
    quotient: float = before[b] * (n - k) / ((sums[b] + after[b]) * (k - 1))
    # Not below the normal numbers: nothing would be known to stay above a level of zero.
    return max(quotient, SMALLEST_NORMAL) / PRUNING_SLACK


@compiled  # type: ignore[untyped-decorator]
def stays_above(level: float, b: int, held: int, n: int, before: Block, after: Block) -> bool:
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
def quotient_floor(rows: SortedRows, i: int, own: float, a: int, b: int) -> float:
    """A lower limit of q(k) for a ≤ k ≤ b, sizes of which not all points are held.

    Those that are held add up to ``own``. S_{k-1}/(k-1) and R_k/(n-k), both bounded by putting the
    edge for what lies between them and k, ascend in k.
    """
    n, held, edge = rows.values.shape[1], rows.held[i], np.float64(rows.edges[i])
    own_mean = (own + (a - held) * edge) / (a - 1)
    # The sum is raised by more than it may be off: the difference can be far smaller than it.
    rest = rows.beyond[i] * BEYOND_SLACK - (b - held) * edge
    rest_mean = max(edge, min(rows.farthest[i], rest / (n - b)))
    floor: float = own_mean / rest_mean * PRUNING_SLACK
    return floor


@compiled  # type: ignore[untyped-decorator]
def rest_step(step: int, first: int, last: int) -> int:
    """Where one of REST_STEPS parts of [first, last] begins; they are closer near the first."""
    return first + ((last + 1 - first) * step * step) // (REST_STEPS * REST_STEPS)


@compiled  # type: ignore[untyped-decorator]
def _least_quotient(
    rows: SortedRows,
    i: int,
    smallest: int,
    largest: int,
    sums: Block,
    before: Block,
    after: Block,
    quotients: Block,
) -> float:
    """min q(k) over k in [smallest, largest] of row i, or -1 where what is held does not tell.

    Blocks whose quotients cannot go below the least one found are skipped.
    """
    row, held, n = rows.values[i], rows.held[i], rows.values.shape[1]
    first, last = max(smallest, 2), min(largest, held - 1)
    if rows.farthest[i] == 0.0:
        return 1.0
    if first > last < largest:
        return -1.0
    n_blocks = row_sums(rows, i, sums, before, after)
    # Start from quotients at block starts: cheap, and close to the minimum.
    reach = 1.0  # no quotient is larger: own distances are the smallest ones
    for b in range(n_blocks):
        if first <= b * BLOCK <= last:
            reach = min(reach, quotient_at_start(b, n, sums, before, after))
    least = 1.0
    for b in range(first // BLOCK, last // BLOCK + 1):
        if stays_above(min(least, reach), b, held, n, before, after):
            continue
        start = b * BLOCK
        stop = min(start + BLOCK, held)
        block_quotients(row, n, start, stop, before[b], sums[b], after[b], quotients)
        begin, end = max(start, first), min(stop - 1, last) + 1
        least = min(least, _least(quotients[begin - start : end - start]))
    own = before[n_blocks - 1] + sums[n_blocks - 1]
    for step in range(REST_STEPS if last < largest else 0):
        a, b = rest_step(step, held, largest), rest_step(step + 1, held, largest) - 1
        if a <= b and quotient_floor(rows, i, own, a, b) < least:
            return -1.0
    return least


@compiled  # type: ignore[untyped-decorator]
def point_bounds(rows: SortedRows, smallest: int, largest: int, out: Block, start: int = 0) -> int:
    """``out[i]`` = 1 - min q(k) of row i over k in [smallest, largest], for i from ``start`` on.

    Parameters
    ----------
    rows : SortedRows, (r, n) float32 or float64
    smallest, largest : least and greatest size of the point's cluster, in 1 … n-1
    out : (r,) float64

    Returns
    -------
    The first row of which more has to be held, or r.
    """
    n_blocks = (rows.values.shape[1] + BLOCK - 1) // BLOCK
    sums, before, after = np.empty(n_blocks), np.empty(n_blocks), np.empty(n_blocks)
    quotients = np.empty(BLOCK)
    n_rows: int = out.shape[0]
    for i in range(start, n_rows):
        least = _least_quotient(rows, i, smallest, largest, sums, before, after, quotients)
        if least < 0.0:
            return i
        out[i] = 1.0 - least
    return n_rows


@compiled  # type: ignore[untyped-decorator]
def size_bounds(rows: SortedRows, sizes: Block, out: Block) -> None:
    """``out[i, j]`` = 1 - q(sizes[j]) of row i: its bound in a cluster of just that size.

    Parameters
    ----------
    rows : SortedRows, (r, n), all of each row held
    sizes : (s,) int64, each in 1 … n-1; a cluster of one point has bound 0
    out : (r, s) float64
    """
    n = rows.values.shape[1]
    n_blocks = (n + BLOCK - 1) // BLOCK
    sums, before, after = np.empty(n_blocks), np.empty(n_blocks), np.empty(n_blocks)
    quotients = np.empty(BLOCK)
    for i in range(out.shape[0]):
        if rows.farthest[i] == 0.0:
            out[i, :] = 0.0
            continue
        row = rows.values[i]
        row_sums(rows, i, sums, before, after)
        for j in range(sizes.shape[0]):
            k = sizes[j]
            b = k // BLOCK
            start = b * BLOCK
            stop = min(start + BLOCK, n)
            block_quotients(row, n, start, stop, before[b], sums[b], after[b], quotients)
            out[i, j] = 1.0 - min(1.0, quotients[k - start])
