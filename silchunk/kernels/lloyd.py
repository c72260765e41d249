"""One pass of a centroid algorithm over a block of points: nearest centres, weights and sums.

Centres are ranked by ``‖c‖²/2 - x·c``, in the dtype of the points and relative to a shift, which
keeps the error small however far the points are from zero; the distances to the two nearest are
formed by differences. Where the ranking is closer than its error, all distances of the point are
formed again in float64. So labels are those of the float64 distances, of equals the first, whatever
the points are ranked with.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from silchunk.kernels.blocks import (
    COLUMNS,
    LINE_BYTES,
    ROWS,
    at_a_cache_line,
    block_columns,
    fill_products,
)
from silchunk.kernels.bound import Block, compiled
from silchunk.kernels.centroids import squared_distance
from silchunk.kernels.exponential import exponentials
from silchunk.kernels.ranking import (
    add_weighted,
    fetch,
    three_smallest,
    transpose_square,
    two_squares,
)
from silchunk.kernels.vectors import LANES
from silchunk.plan import CENTRE_FACTS

# Columns of ``totals`` after the d sums of differences to the shift.
WEIGHT, POINTS, SILHOUETTE, SQUARED_SILHOUETTE, INERTIA, MEMBERS = range(CENTRE_FACTS)


class Errors(NamedTuple):
    """Largest errors of what is computed of points and centres less the shift, in their dtype.

    Rounding them moves a distance by u times their norms, and a point's norm is at most that of a
    centre plus its distance.
    """

    reach: float  # the largest norm of a centre
    ranking: float  # of ‖c‖²/2 - x·c, relative to ‖x‖ reach + reach²
    relative: float  # of a distance by differences, relative to it
    beyond: float  # of a distance, beyond that
    floor: float  # squared distance below which digits are lost to underflow


def errors_of(n_features: int, dtype: np.dtype[Any], reach: float) -> Errors:
    """Largest errors for centres whose norms are at most ``reach``."""
    unit, tiny = float(np.finfo(dtype).eps) / 2, n_features * float(np.finfo(dtype).tiny)
    return Errors(
        reach,
        # d + 1 additions in any order, three roundings of factors, and their products.
        1.01 * (n_features + 6) * unit,
        # d additions, a difference and its square, halved by the root; that of a norm, and roots.
        1.01 * ((n_features + 4) / 2 + 4) * unit,
        1.01 * 3 * unit * reach + math.sqrt(tiny),
        tiny / unit,
    )


@compiled  # type: ignore[untyped-decorator]
def _to_columns(points: Block, first: int, shift: Block, columns: Block) -> None:
    """``columns`` (d + 1, COLUMNS) = some ``points`` (r, d) from ``first`` on, less ``shift``,
    transposed, zero where there are fewer; and a last row of ones."""
    n_features = points.shape[1]
    there = min(COLUMNS, points.shape[0] - first)
    blocks = there // LANES * LANES
    features = n_features // LANES * LANES
    for j in range(0, blocks, LANES):
        for k in range(0, features, LANES):
            transpose_square(points, first + j, k, shift, columns, j)
    for k in range(n_features):
        for j in range(blocks if k < features else 0, there):
            columns[k, j] = points[first + j, k] - shift[k]
        for j in range(there, COLUMNS):
            columns[k, j] = 0
    columns[n_features, :] = 1


@compiled  # type: ignore[untyped-decorator]
def _rank(
    points: Block,
    first: int,
    shift: Block,
    factors: Block,
    n_centres: int,
    columns: Block,
    products: Block,
    smallest: Block,
    labels: Block,
) -> None:
    """The three smallest ``‖c‖²/2 - x·c`` of COLUMNS points from ``first`` on.

    ``factors`` (K', d + 1) are, in the dtype of the points and of each centre less ``shift``, -c
    and ‖c‖²/2; the first ``n_centres`` count, and K' is a multiple of ROWS. Of that dtype too are
    ``columns`` (d + 1, COLUMNS) and ``products`` (K', COLUMNS), which are overwritten,
    and ``smallest`` (3, COLUMNS), filled with inf where there are fewer. ``labels``
    (2, COLUMNS) int32 are the centres of the two smallest.
    """
    d = points.shape[1]
    _to_columns(points, first, shift, columns)
    # While centres pass by, the points that come next are fetched a few at a time.
    flat = points.reshape(points.size)
    ahead = min((first + COLUMNS) * d, flat.shape[0])
    stop = min(ahead + COLUMNS * d, flat.shape[0])
    step = LINE_BYTES // points.itemsize
    share = -(-(COLUMNS * d) // (factors.shape[0] // ROWS)) // step * step + step
    for i in range(0, factors.shape[0], ROWS):
        for at in range(ahead, min(ahead + share, stop), step):
            fetch(flat, at)
        ahead += share
        for j in range(0, COLUMNS, block_columns(columns)):
            fill_products(factors, i, columns, j, products, i, j)
    for j in range(0, COLUMNS, LANES):
        three_smallest(products, n_centres, j, smallest, labels)


@compiled  # type: ignore[untyped-decorator]
def _measure(
    points: Block,
    first: int,
    size: int,
    shift: Block,
    shifted: Block,
    labels: Block,
    near: Block,
    far: Block,
) -> None:
    """Squared distances of ``size`` points to the two centres ranked first, the nearer one first:
    ``labels`` (2, c) int32, ``near`` and ``far`` (c,) of the dtype of the points."""
    d = points.shape[1]
    whole = d // LANES * LANES
    for i in range(size):
        one, other = labels[0, i], labels[1, i]
        a = b = near.dtype.type(0)
        if whole > 0:
            a, b = two_squares(points, first + i, shift, shifted, one, other, whole)
        for k in range(whole, d):
            value = points[first + i, k] - shift[k]
            a += (value - shifted[one, k]) ** 2
            b += (value - shifted[other, k]) ** 2
        near[i], far[i] = a, b
        if b < a:
            near[i], far[i] = b, a
            labels[0, i], labels[1, i] = other, one


@compiled  # type: ignore[untyped-decorator]
def two_nearest(point: Block, centres: Block) -> tuple[int, float, float]:
    """The nearest centre of a point, and the squared distances to it and to the second nearest, inf
    where there is none."""
    label = 0
    near = second = np.inf
    for k in range(centres.shape[0]):
        distance = squared_distance(point, centres[k])
        if distance < near:
            label, near, second = k, distance, near
        elif distance < second:
            second = distance
    return label, near, second


@compiled  # type: ignore[untyped-decorator]
def _judge(
    errors: Errors,
    squared: bool,
    measured: Block,
    farther: Block,
    smallest: Block,
    near: Block,
    silhouettes: Block,
    close: Block,
) -> None:
    """Squared distances ``near`` in float64, ``silhouettes`` s = 1 - a/b, and whether the ranking
    is too ``close`` to be trusted, of COLUMNS points, from what is ``measured`` and
    ``smallest``."""
    kind = measured.dtype.type
    factor, more = kind(2.0 * errors.relative), kind(2.0 * errors.beyond)
    slope, reach = kind(2.0 * errors.ranking * errors.reach), kind(2.0 * errors.reach)
    least = kind(errors.floor)
    seconds, thirds = smallest[1], smallest[2]
    for i in range(COLUMNS):
        a, b = math.sqrt(measured[i]), math.sqrt(farther[i])
        # Written so that NaN and what overflows count as close, as a single centre does.
        clear = (a + (factor * b + more) < b) & (farther[i] > least) & (farther[i] < np.inf)
        close[i] = not (clear & (seconds[i] + slope * (b + reach) < thirds[i]))
    for i in range(COLUMNS):
        best, second = np.float64(measured[i]), np.float64(farther[i])
        ratio = best / second if second > 0.0 else 1.0
        near[i] = best
        silhouettes[i] = 1.0 - (ratio if squared else math.sqrt(ratio))


@compiled  # type: ignore[untyped-decorator]
def _form_again(
    point: Block,
    centres: Block,
    squared: bool,
    i: int,
    labels: Block,
    near: Block,
    silhouettes: Block,
) -> None:
    """What is known of point i, in float64."""
    label, near[i], second = two_nearest(point, centres)
    labels[0, i] = label
    ratio = 1.0
    if 0.0 < second < np.inf:
        ratio = near[i] / second if squared else math.sqrt(near[i] / second)
    silhouettes[i] = 1.0 - ratio


@compiled  # type: ignore[untyped-decorator]
def _weigh(
    counts: Block, silhouettes: Block, temperature: float, unclear: bool, weights: Block
) -> None:
    """Weights of points: counts times exp(τ s) or (1 - s) / 2."""
    for i in range(counts.shape[0]):
        weights[i] = counts[i]
    if unclear:
        for i in range(counts.shape[0]):
            weights[i] *= (1.0 - silhouettes[i]) / 2.0
    elif temperature != 0.0:
        exponentials(silhouettes, temperature, weights)
        for i in range(counts.shape[0]):
            weights[i] *= counts[i]


@compiled  # type: ignore[untyped-decorator]
def _push_farthest(distance: float, row: int, distances: Block, rows: Block) -> None:
    """Keep the largest distances, of equals those of the first rows, in a heap whose top is the
    least of them. Rows come in ascending order."""
    size = distances.shape[0]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        other = child + 1
        if other < size and (
            distances[other] < distances[child]
            or (distances[other] == distances[child] and rows[other] > rows[child])
        ):
            child = other
        if distances[child] >= distance:
            break
        distances[at], rows[at] = distances[child], rows[child]
        at = child
    distances[at], rows[at] = distance, row


@compiled  # type: ignore[untyped-decorator]
def reduce_block(
    points: Block,
    counts: Block,
    first: int,
    shift: Block,
    shifted: Block,
    factors: Block,
    centres: Block,
    errors: Errors,
    temperature: float,
    squared: bool,
    unclear: bool,
    before: Block,
    labels: Block,
    totals: Block,
    farthest: Block,
    farthest_rows: Block,
) -> int:
    """Assign a block of points to their nearest centres, weigh them and add them up.

    Parameters
    ----------
    points : (r, d) float32 or float64, C-contiguous
    counts : (r,) float64, how many points each one stands for
    first : row of the first point
    shift : (d,) of the dtype of the points
    shifted : (K, d) of that dtype, the centres less ``shift``
    factors : (K', d + 1) of that dtype: -c and ‖c‖²/2 of these; K' ≥ K a multiple of ROWS
    centres : (K, d) float64
    errors : Errors
    temperature, squared, unclear
        Weights are exp(τ s) or, where ``unclear``, (1 - s) / 2, with s = 1 - a/b formed of
        distances or, where ``squared``, of squared ones; s = 0 where both are 0 or there is but one
        centre.
    before, labels : (r,) int32, labels to compare with, and those to be filled in
    totals : (K, d + CENTRE_FACTS) float64, added to: sums of weighted differences to ``shift``, and
        of weights, points, silhouettes and their squares, squared distances, and members that count
    farthest, farthest_rows : (F,), a heap of the largest squared distances and their rows

    Returns
    -------
    Number of labels that are not those of ``before``.
    """
    n_centres, d = centres.shape
    dtype = points.dtype
    columns = at_a_cache_line(d + 1, COLUMNS, factors)
    products = at_a_cache_line(factors.shape[0], COLUMNS, factors)
    smallest = np.empty((3, COLUMNS), dtype)
    two = np.empty((2, COLUMNS), np.int32)
    measured, farther = np.zeros(COLUMNS, dtype), np.zeros(COLUMNS, dtype)
    near, silhouettes = np.empty(COLUMNS), np.empty(COLUMNS)
    weights, close = np.empty(COLUMNS), np.empty(COLUMNS, np.uint8)
    least = farthest[0] if farthest.shape[0] > 0 else np.inf
    origin = shift.astype(np.float64)
    whole = d // LANES * LANES
    changed = 0
    for start in range(0, points.shape[0], COLUMNS):
        size = min(COLUMNS, points.shape[0] - start)
        _rank(points, start, shift, factors, n_centres, columns, products, smallest, two)
        _measure(points, start, size, shift, shifted, two, measured, farther)
        _judge(errors, squared, measured, farther, smallest, near, silhouettes, close)
        for i in range(size):
            if close[i]:
                _form_again(points[start + i], centres, squared, i, two, near, silhouettes)
        _weigh(counts[start : start + size], silhouettes, temperature, unclear, weights)
        for i in range(size):
            label, count, weight = two[0, i], counts[start + i], weights[i]
            changed += before[start + i] != label
            labels[start + i] = label
            if count == 0.0:
                continue
            if whole > 0:
                add_weighted(points, start + i, origin, weight, totals, label, whole)
            for k in range(whole, d):
                totals[label, k] += weight * (np.float64(points[start + i, k]) - origin[k])
            totals[label, d + WEIGHT] += weight
            totals[label, d + POINTS] += count
            totals[label, d + SILHOUETTE] += count * silhouettes[i]
            totals[label, d + SQUARED_SILHOUETTE] += count * silhouettes[i] * silhouettes[i]
            totals[label, d + INERTIA] += count * near[i]
            totals[label, d + MEMBERS] += 1.0
            if near[i] > least:
                _push_farthest(near[i], first + start + i, farthest, farthest_rows)
                least = farthest[0]
    return changed
