"""Sums of distances by cluster; silhouettes (Rousseeuw 1987, doi:10.1016/0377-0427(87)90125-7).

Of a point i in cluster C, a(i) is the mean distance to the others of C, b(i) the least mean
distance to the points of another cluster, and s(i) = (b - a) / max(a, b); s = 0 for a point alone
in its cluster, and where a = b = 0. A weight w counts as w copies of a point, of which the w - 1
others are at distance 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from silchunk.kernels.bound import Block, compiled, reordered

# Columns of a result.
A, B, S, NEAREST = range(4)


@compiled  # type: ignore[untyped-decorator]
def silhouettes(means: Block, codes: Block, weights: Block, out: Block) -> None:
    """Reduce mean distances to silhouettes.

    Parameters
    ----------
    means : (r, K) float64, of a point to each cluster; to the others of its own
    codes : (r,) int64, own cluster of each point; negative where it is left out
    weights : (K,) float64, number of points of each cluster, or sum of their weights
    out : (r, 4) float64, filled with a (NaN where the point is alone), b, s and the nearest other
        cluster, the first of equals
    """
    for i in range(len(means)):
        own, nearest, least = codes[i], -1, np.inf
        if own < 0:
            out[i, :] = np.nan
            continue
        for c in range(means.shape[1]):
            if c != own and means[i, c] < least:
                nearest, least = c, means[i, c]
        out[i, 1], out[i, 3] = least, nearest
        if weights[own] <= 1.0:
            out[i, 0], out[i, 2] = np.nan, 0.0
            continue
        within = means[i, own]
        larger = max(within, least)
        out[i, 0] = within
        out[i, 2] = (least - within) / larger if larger > 0.0 else 0.0


@reordered  # type: ignore[untyped-decorator]
def add_rows(distances: Block, clusters: Block, edges: Block, sums: Block) -> None:
    """``sums[i, c] +=`` the distances from row i to the columns of each cluster c.

    Parameters
    ----------
    distances : (r, n)
    clusters, edges : (s,), (s + 1,) int64; columns [edges[t], edges[t + 1]) are of clusters[t]
    sums : (r, K) float64
    """
    for i in range(len(distances)):
        for t in range(len(clusters)):
            segment = distances[i, edges[t] : edges[t + 1]]
            total = 0.0
            for j in range(len(segment)):
                total += np.float64(segment[j])
            sums[i, clusters[t]] += total


@reordered  # type: ignore[untyped-decorator]
def add_weighted_rows(
    distances: Block, weights: Block, clusters: Block, edges: Block, sums: Block
) -> None:
    """The same with distances weighted by column; ``weights`` is (n,) float64."""
    for i in range(len(distances)):
        for t in range(len(clusters)):
            segment = distances[i, edges[t] : edges[t + 1]]
            weight = weights[edges[t] : edges[t + 1]]
            total = 0.0
            for j in range(len(segment)):
                total += np.float64(segment[j]) * weight[j]
            sums[i, clusters[t]] += total


@reordered  # type: ignore[untyped-decorator]
def add_both(
    distances: Block,
    column_edges: Block,
    row_edges: Block,
    by_row: Block,
    first: int,
    by_column: Block,
) -> None:
    """Sum a tile along its rows and along its columns, by segments of the other.

    Parameters
    ----------
    distances : (r, c)
    column_edges : (s + 1,) int64, segments of the columns
    row_edges : (t + 1,) int64, segments of the rows
    by_row : (s, at least first + r) float64, added to from column ``first`` on
    by_column : (t, c) float64, added to
    """
    for t in range(len(row_edges) - 1):
        for i in range(row_edges[t], row_edges[t + 1]):
            for s in range(len(column_edges) - 1):
                a, b = column_edges[s], column_edges[s + 1]
                segment, below = distances[i, a:b], by_column[t, a:b]
                total = 0.0
                for j in range(len(segment)):
                    value = np.float64(segment[j])
                    total += value
                    below[j] += value
                by_row[s, first + i] += total


def empty_result(n: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Room for the silhouettes of n points, NaN for those that are left out."""
    return np.full((n, 4), np.nan)
