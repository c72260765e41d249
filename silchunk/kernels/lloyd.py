"""One pass of a centroid algorithm over a block of points: nearest centres, weights and sums.

Centres are ranked by squared differences in the dtype of the points, relative to a shift, which
keeps the error small however far the points are from zero. Where two of the three nearest are
closer than that error, all distances of the point are formed again in float64. So labels are those
of the float64 distances, of equals the first, whatever the points are ranked with.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from silchunk.kernels.bound import Block, compiled
from silchunk.kernels.centroids import squared_distance
from silchunk.kernels.ranking import add_weighted, fetch, three_smallest, transpose_square
from silchunk.kernels.vectors import COLUMNS, LANES, ROWS, add_squares

# Columns of ``totals`` after the d sums of differences to the shift.
WEIGHT, POINTS, SILHOUETTE, INERTIA, MEMBERS = range(5)
N_FACTS = 5
LINE_BYTES = 64


def ranking_errors(
    n_features: int, dtype: np.dtype[Any], reach: float
) -> tuple[float, float, float]:
    """Largest error of a computed distance D of a point to a centre: relative to D, and beyond
    that; and the squared distance below which digits are lost to underflow.

    ``reach`` is the largest norm of a shifted centre. Rounding points and centres moves a distance
    by u times their norms, and a point's norm is at most ``reach`` plus its distance.
    """
    unit, tiny = float(np.finfo(dtype).eps) / 2, n_features * float(np.finfo(dtype).tiny)
    # d additions, a difference and its square, halved by the root, which adds its own.
    relative = ((n_features + 4) / 2 + 4) * unit
    return 1.01 * relative, 1.01 * 3 * unit * reach + math.sqrt(tiny), tiny / unit


@compiled  # type: ignore[untyped-decorator]
def _to_columns(points: Block, first: int, shift: Block, columns: Block) -> None:
    """``columns`` (d, COLUMNS) = some ``points`` (r, d) from ``first`` on, less ``shift``,
    transposed; zero where there are fewer."""
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


@compiled  # type: ignore[untyped-decorator]
def _rank(
    points: Block,
    first: int,
    shift: Block,
    ranked: Block,
    n_centres: int,
    columns: Block,
    sums: Block,
    smallest: Block,
    labels: Block,
) -> None:
    """The three smallest squared distances of COLUMNS points from ``first`` on.

    ``ranked`` (K', d) are the centres less ``shift``, in the dtype of the points, of which the
    first ``n_centres`` count; K' is a multiple of ROWS. Of that dtype too are ``columns``
    (d, COLUMNS) and ``sums`` (K', COLUMNS), which are overwritten, and ``smallest`` (3, COLUMNS),
    filled with inf where there are fewer. ``labels`` (2, COLUMNS) int32 are the centres of the two
    smallest.
    """
    d = ranked.shape[1]
    _to_columns(points, first, shift, columns)
    # While centres pass by, the points that come next are fetched a few at a time.
    flat = points.reshape(points.size)
    ahead = min((first + COLUMNS) * d, flat.shape[0])
    stop = min(ahead + COLUMNS * d, flat.shape[0])
    step = LINE_BYTES // points.itemsize
    share = -(-(COLUMNS * d) // (ranked.shape[0] // ROWS)) // step * step + step
    for i in range(0, ranked.shape[0], ROWS):
        for at in range(ahead, min(ahead + share, stop), step):
            fetch(flat, at)
        ahead += share
        add_squares(ranked, columns, sums, i, 0, 0, d)
    for j in range(0, COLUMNS, LANES):
        three_smallest(sums, n_centres, j, smallest, labels, 0)


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
    relative: float,
    beyond: float,
    floor: float,
    squared: bool,
    smallest: Block,
    near: Block,
    silhouettes: Block,
    close: Block,
) -> None:
    """Squared distances ``near`` to the nearest centres, ``silhouettes`` s = 1 - a/b, and whether
    the ranking is too ``close`` to be trusted, of COLUMNS points."""
    nearest, seconds, thirds = smallest[0], smallest[1], smallest[2]
    factor, more = nearest.dtype.type(2.0 * relative), nearest.dtype.type(2.0 * beyond)
    least = nearest.dtype.type(floor)
    for i in range(COLUMNS):
        a, b, c = math.sqrt(nearest[i]), math.sqrt(seconds[i]), math.sqrt(thirds[i])
        # Written so that NaN and what overflows count as close.
        clear = (a + (factor * b + more) < b) & (b + (factor * c + more) < c)
        # There is an infinite distance where there are but one or two centres.
        close[i] = not (clear & (seconds[i] > least) & (seconds[i] < np.inf))
    for i in range(COLUMNS):
        best, second = np.float64(nearest[i]), np.float64(seconds[i])
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
        for i in range(counts.shape[0]):
            weights[i] *= math.exp(temperature * silhouettes[i])


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
    ranked: Block,
    centres: Block,
    relative: float,
    beyond: float,
    floor: float,
    temperature: float,
    squared: bool,
    unclear: bool,
    labels: Block,
    totals: Block,
    farthest: Block,
    farthest_rows: Block,
) -> None:
    """Assign a block of points to their nearest centres, weigh them and add them up.

    Parameters
    ----------
    points : (r, d) float32 or float64, C-contiguous
    counts : (r,) float64, how many points each one stands for
    first : row of the first point
    shift : (d,) of the dtype of the points
    ranked : (K', d) of that dtype, the centres less ``shift``; K' ≥ K a multiple of ROWS
    centres : (K, d) float64
    relative, beyond, floor : as from `ranking_errors`
    temperature, squared, unclear
        Weights are exp(τ s) or, where ``unclear``, (1 - s) / 2, with s = 1 - a/b formed of
        distances or, where ``squared``, of squared ones; s = 0 where both are 0 or there is but one
        centre.
    labels : (r,) int32, filled in
    totals : (K, d + N_FACTS) float64, added to: sums of weighted differences to ``shift``, and of
        weights, points, silhouettes, squared distances, and members that count
    farthest, farthest_rows : (F,), a heap of the largest squared distances and their rows
    """
    n_centres, d = centres.shape
    columns = np.empty((d, COLUMNS), points.dtype)
    sums = np.empty((ranked.shape[0], COLUMNS), points.dtype)
    smallest = np.empty((3, COLUMNS), points.dtype)
    two = np.empty((2, COLUMNS), np.int32)
    near, silhouettes = np.empty(COLUMNS), np.empty(COLUMNS)
    weights, close = np.empty(COLUMNS), np.empty(COLUMNS, np.uint8)
    least = farthest[0] if farthest.shape[0] > 0 else np.inf
    origin = shift.astype(np.float64)
    whole = d // LANES * LANES
    for start in range(0, points.shape[0], COLUMNS):
        size = min(COLUMNS, points.shape[0] - start)
        _rank(points, start, shift, ranked, n_centres, columns, sums, smallest, two)
        _judge(relative, beyond, floor, squared, smallest, near, silhouettes, close)
        for i in range(size):
            if close[i]:
                _form_again(points[start + i], centres, squared, i, two, near, silhouettes)
        _weigh(counts[start : start + size], silhouettes, temperature, unclear, weights)
        for i in range(size):
            label, count, weight = two[0, i], counts[start + i], weights[i]
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
            totals[label, d + INERTIA] += count * near[i]
            totals[label, d + MEMBERS] += 1.0
            if near[i] > least:
                _push_farthest(near[i], first + start + i, farthest, farthest_rows)
                least = farthest[0]
