"""Sums of distances over segments of columns, each of which is a cluster's."""

from __future__ import annotations

import numpy as np

from silchunk.kernels.bound import Block, reordered


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
