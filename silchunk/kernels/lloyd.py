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

from silchunk.kernels import differences
from silchunk.kernels.bound import Block, compiled
from silchunk.kernels.centroids import squared_distance
from silchunk.kernels.distance import SUMMED_FEATURES
from silchunk.kernels.vectors import (
    COLUMNS,
    LANES,
    ROWS,
    add_squares,
    three_smallest,
    transpose_square,
)

# Columns of ``totals`` after the d sums of differences to the shift.
WEIGHT, POINTS, SILHOUETTE, INERTIA, MEMBERS = range(5)
N_FACTS = 5


def ranking_errors(n_features: int, dtype: np.dtype[Any], reach: float) -> tuple[float, float]:
    """Largest error of a computed distance D of a point to a centre: relative to D, and beyond
    that.

    ``reach`` is the largest norm of a shifted centre. Rounding points and centres moves a distance
    by u times their norms, and a point's norm is at most ``reach`` plus its distance.
    """
    unit = float(np.finfo(dtype).eps) / 2
    relative = differences.relative_error(n_features, dtype, squared=False) + 3 * unit
    return 1.01 * relative, 1.01 * 3 * unit * reach


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
def rank_centres(
    points: Block,
    shift: Block,
    centres: Block,
    n_centres: int,
    columns: Block,
    sums: Block,
    smallest: Block,
    labels: Block,
) -> None:
    """The three smallest squared distances of every point to the centres.

    Parameters
    ----------
    points : (r, d) float32 or float64
    shift : (d,) of that dtype
    centres : (K', d) of that dtype, less ``shift``; the first ``n_centres`` count; K' a multiple of
        `silchunk.kernels.vectors.ROWS`
    columns, sums : (d, COLUMNS) and (K', COLUMNS) of that dtype, overwritten
    smallest : (3, c) of that dtype, c ≥ r a multiple of COLUMNS, filled in, inf where there are
        fewer
    labels : (2, c) int32, filled with the centres of the two smallest, 0 where there is none
    """
    n_features = centres.shape[1]
    for first in range(0, points.shape[0], COLUMNS):
        _to_columns(points, first, shift, columns)
        # Centres pass by the few points, which stay in the nearest cache.
        for i in range(0, centres.shape[0], ROWS):
            for k in range(0, n_features, SUMMED_FEATURES):
                end = min(n_features, k + SUMMED_FEATURES)
                add_squares(centres, columns, sums, i, 0, k, end)
        for j in range(0, COLUMNS, LANES):
            three_smallest(sums, n_centres, j, smallest, labels, first)


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
    squared: bool,
    smallest: Block,
    near: Block,
    silhouettes: Block,
    close: Block,
) -> None:
    """As `settle`, of the ranking as it is; ``close`` (r,) uint8 marks where it is not to be
    trusted."""
    nearest, seconds, thirds = smallest[0], smallest[1], smallest[2]
    factor, more = nearest.dtype.type(2.0 * relative), nearest.dtype.type(2.0 * beyond)
    for i in range(near.shape[0]):
        a, b, c = math.sqrt(nearest[i]), math.sqrt(seconds[i]), math.sqrt(thirds[i])
        # Written so that NaN and what overflows count as close.
        clear = (a + (factor * b + more) < b) & (b + (factor * c + more) < c)
        close[i] = not clear
    for i in range(near.shape[0]):
        best, second = np.float64(nearest[i]), np.float64(seconds[i])
        ratio = best / second if second > 0.0 else 1.0
        near[i] = best
        silhouettes[i] = 1.0 - (ratio if squared else math.sqrt(ratio))


@compiled  # type: ignore[untyped-decorator]
def settle(
    points: Block,
    centres: Block,
    relative: float,
    beyond: float,
    squared: bool,
    smallest: Block,
    labels: Block,
    near: Block,
    silhouettes: Block,
    close: Block,
) -> None:
    """Put labels right where the ranking was too close, and tell how clear they are.

    Parameters
    ----------
    points : (r, d) float32 or float64
    centres : (K, d) float64
    relative, beyond : as from `ranking_errors`
    squared : whether silhouettes are formed of squared distances
    smallest, labels : as `rank_centres` leaves them; labels are put right
    near : (r,) float64, filled with squared distances to the nearest centre
    silhouettes : (r,) float64, filled with s = 1 - a/b, 0 where both are 0 or there is one centre
    close : (r,) uint8, overwritten
    """
    _judge(relative, beyond, squared, smallest, near, silhouettes, close)
    for i in range(points.shape[0]):
        # There is an infinite distance where there are but one or two centres.
        if close[i] or not smallest[1, i] < np.inf:
            labels[0, i], near[i], second = two_nearest(points[i], centres)
            ratio = 1.0
            if 0.0 < second < np.inf:
                ratio = near[i] / second if squared else math.sqrt(near[i] / second)
            silhouettes[i] = 1.0 - ratio


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
        if distances[child] > distance:
            break
        distances[at], rows[at] = distances[child], rows[child]
        at = child
    distances[at], rows[at] = distance, row


@compiled  # type: ignore[untyped-decorator]
def add_points(
    points: Block,
    labels: Block,
    shift: Block,
    counts: Block,
    weights: Block,
    near: Block,
    silhouettes: Block,
    first: int,
    totals: Block,
    farthest: Block,
    farthest_rows: Block,
) -> None:
    """Add a block's points to their clusters.

    Parameters
    ----------
    points : (r, d) float32 or float64
    labels : (r,) int32
    shift : (d,) float64
    counts, weights : (r,) float64, how many points each one stands for, and how much it weighs
    near, silhouettes : (r,) float64, as from `settle`
    first : row of the first point
    totals : (K, d + N_FACTS) float64, added to: sums of weighted differences to ``shift``, and of
        weights, points, silhouettes, squared distances, and members that count
    farthest, farthest_rows : (F,), a heap of the largest squared distances and their rows
    """
    d = points.shape[1]
    for i in range(points.shape[0]):
        count, weight = counts[i], weights[i]
        if count == 0.0:
            continue
        label = labels[i]
        point = points[i]
        total, facts = totals[label, :d], totals[label, d:]
        for k in range(d):
            total[k] += weight * (np.float64(point[k]) - shift[k])
        facts[WEIGHT] += weight
        facts[POINTS] += count
        facts[SILHOUETTE] += count * silhouettes[i]
        facts[INERTIA] += count * near[i]
        facts[MEMBERS] += 1.0
        if farthest.shape[0] > 0 and near[i] > farthest[0]:
            _push_farthest(near[i], first + i, farthest, farthest_rows)
