"""Blocks of points against the centroids of clusters: moments, distances and what sums follow.

With W the weight of a cluster, m its mean and v the mean squared distance of its points to m, the
squared distances from any x to all of them add up to

    Σ ‖x - y‖² = W (‖x - m‖² + v),

which turns the n² distances of a squared Euclidean silhouette into n K. Neither term is negative
and ‖x - m‖² is formed by differences, so nothing cancels, however far the points are from zero.
The same holds of cosine distances, as 1 - cos(x, y) = ‖x/‖x‖ - y/‖y‖‖² / 2.

All arithmetic is in float64, whatever the dtype of the points.
"""

from __future__ import annotations

import math

import numpy as np

from silchunk.kernels.bound import Block, compiled, reordered

# Squares of values between these neither overflow nor lose bits to underflow.
LEAST_SAFE, LARGEST_SAFE = 1e-100, 1e100


@reordered  # type: ignore[untyped-decorator]
def squared_distance(x: Block, y: Block) -> float:
    """``‖x - y‖²`` of two points (d,)."""
    total = 0.0
    for k in range(len(x)):
        difference = np.float64(x[k]) - np.float64(y[k])
        total += difference * difference
    return total


@reordered  # type: ignore[untyped-decorator]
def to_directions(block: Block, out: Block) -> None:
    """``out`` (r, d) float64 = rows of ``block`` (r, d) divided by their norms, none of them 0."""
    for i in range(len(block)):
        point, direction = block[i], out[i]
        largest = 0.0
        for k in range(len(point)):
            largest = max(largest, abs(np.float64(point[k])))
        scale = 1.0 if LEAST_SAFE < largest < LARGEST_SAFE else largest
        total = 0.0
        for k in range(len(point)):
            direction[k] = np.float64(point[k]) / scale
            total += direction[k] * direction[k]
        norm = math.sqrt(total)
        for k in range(len(point)):
            direction[k] /= norm


@reordered  # type: ignore[untyped-decorator]
def block_moments(
    block: Block,
    clusters: Block,
    firsts: Block,
    weights: Block,
    totals: Block,
    means: Block,
    squares: Block,
) -> None:
    """Moments of a block of points, cluster by cluster.

    Sums run over differences to one of the cluster's own points: clusters far from zero lose
    nothing, and the mean of coincident points is that point.

    Parameters
    ----------
    block : (r, d) float32 or float64
    clusters : (r,) int64 in 0 … p-1, each of which occurs
    firsts : (p,) int64, a row of each cluster
    weights : (r,) float64, positive
    totals, means, squares : (p,), (p, d), (p,) float64, filled with the sum of weights, the
        weighted mean, and the weighted sum of squared distances to it
    """
    sums = np.zeros(means.shape)
    totals[:] = 0.0
    squares[:] = 0.0
    for i in range(len(block)):
        cluster, weight = clusters[i], weights[i]
        point, first, total = block[i], block[firsts[cluster]], sums[cluster]
        totals[cluster] += weight
        for k in range(len(point)):
            total[k] += weight * (np.float64(point[k]) - np.float64(first[k]))
    for cluster in range(len(means)):
        first, total, mean = block[firsts[cluster]], sums[cluster], means[cluster]
        for k in range(len(mean)):
            mean[k] = np.float64(first[k]) + total[k] / totals[cluster]
    for i in range(len(block)):
        cluster = clusters[i]
        squares[cluster] += weights[i] * squared_distance(block[i], means[cluster])


@compiled  # type: ignore[untyped-decorator]
def add_distances(
    block: Block, clusters: Block, weights: Block, means: Block, totals: Block
) -> None:
    """``totals[c] +=`` the weighted distances of a block's points of cluster c to its mean.

    Parameters
    ----------
    block : (r, d) float32 or float64
    clusters : (r,) int64 in 0 … p-1
    weights : (r,) float64
    means : (p, d) float64
    totals : (p,) float64
    """
    for i in range(len(block)):
        cluster = clusters[i]
        totals[cluster] += weights[i] * math.sqrt(squared_distance(block[i], means[cluster]))


@reordered  # type: ignore[untyped-decorator]
def sums_to_clusters(
    block: Block, means: Block, spreads: Block, factors: Block, out: Block
) -> None:
    """``out[i, c] = factors[c] (‖x_i - means[c]‖² + spreads[c])``.

    Parameters
    ----------
    block : (r, d) float32 or float64
    means : (K, d) float64
    spreads, factors : (K,) float64
    out : (r, K) float64
    """
    point = np.empty(block.shape[1])
    for i in range(len(block)):
        given = block[i]
        for k in range(len(point)):  # once, and not for each of the means
            point[k] = given[k]
        for c in range(len(means)):
            out[i, c] = factors[c] * (squared_distance(point, means[c]) + spreads[c])
