"""Least and largest distances between and within clusters.

A row's values come from vectorised passes without indices. Which points they belong to is looked
up where a row improves on what is known, which is rare.
"""

from __future__ import annotations

import numpy as np

from silchunk.kernels.bound import Block, comparing, compiled

# Places in the extremes of a set of points.
BETWEEN, WITHIN = range(2)


@comparing  # type: ignore[untyped-decorator]
def _least(values: Block) -> float:
    """Least of some values, of which there is one at least."""
    least: float = values[0]
    for t in range(values.shape[0]):
        least = min(least, values[t])
    return least


@comparing  # type: ignore[untyped-decorator]
def _largest(values: Block) -> float:
    """Largest of some values, of which there is one at least."""
    largest: float = values[0]
    for t in range(values.shape[0]):
        largest = max(largest, values[t])
    return largest


@compiled  # type: ignore[untyped-decorator]
def _keep_pair(
    values: Block, value: float, columns: Block, row: int, pair: Block, tied: bool
) -> bool:
    """Put the lowest pair of ``row`` and another point at ``value`` into ``pair``, if there is one
    and, where it is ``tied`` with the pair there, it comes before that; whether there is one."""
    found = -1
    for j in range(len(values)):
        if values[j] == value and columns[j] != row and (found < 0 or columns[j] < found):
            found = columns[j]
    if found < 0:
        return False
    low, high = min(row, found), max(row, found)
    if not tied or low < pair[0] or (low == pair[0] and high < pair[1]):
        pair[0], pair[1] = low, high
    return True


@compiled  # type: ignore[untyped-decorator]
def update_extremes(
    distances: Block,
    rows: Block,
    codes: Block,
    columns: Block,
    clusters: Block,
    edges: Block,
    values: Block,
    pairs: Block,
) -> None:
    """Take a tile of distances into the extremes of a set of points.

    Parameters
    ----------
    distances : (r, c)
    rows, columns : (r,), (c,) int64, the points that they are; columns ascend in a segment
    codes : (r,) integers, cluster of each row
    clusters, edges : (s,), (s + 1,) int64; columns [edges[t], edges[t + 1]) are of clusters[t]
    values : (2,) float64, updated: the least distance BETWEEN points of different clusters, and
        the largest of two points WITHIN one; at first inf and anything negative
    pairs : (2, 2) int64, updated: the points, the lower one first, of equals the lowest pair
    """
    n_columns = distances.shape[1]
    lowest = columns[0]
    for t in range(len(clusters)):
        lowest = min(lowest, columns[edges[t]])
    for i in range(len(distances)):
        row, point = distances[i], rows[i]
        first = last = 0
        t = np.searchsorted(clusters, codes[i])
        if t < len(clusters) and clusters[t] == codes[i]:
            first, last = edges[t], edges[t + 1]
        # Only a pair that comes before the one kept is worth a search among equals.
        least_point = min(point, lowest)
        for begin, end in ((0, first), (last, n_columns)):
            if begin == end:
                continue
            value = np.float64(_least(row[begin:end]))
            tied = value == values[BETWEEN]
            if value < values[BETWEEN] or (tied and least_point <= pairs[BETWEEN, 0]):
                part = columns[begin:end]
                _keep_pair(row[begin:end], value, part, point, pairs[BETWEEN], tied)
                values[BETWEEN] = value
        if first < last:
            value = np.float64(_largest(row[first:last]))
            tied = value == values[WITHIN]
            if value > values[WITHIN] or (tied and least_point <= pairs[WITHIN, 0]):
                part = columns[first:last]
                if _keep_pair(row[first:last], value, part, point, pairs[WITHIN], tied):
                    values[WITHIN] = value


@compiled  # type: ignore[untyped-decorator]
def least_rows(distances: Block, clusters: Block, edges: Block, least: Block) -> None:
    """``least[i, c]`` = least distance from row i to the columns of cluster c, and what it was.

    Parameters
    ----------
    distances : (r, n)
    clusters, edges : (s,), (s + 1,) int64; columns [edges[t], edges[t + 1]) are of clusters[t]
    least : (r, K) float64
    """
    for i in range(len(distances)):
        for t in range(len(clusters)):
            value = np.float64(_least(distances[i, edges[t] : edges[t + 1]]))
            least[i, clusters[t]] = min(least[i, clusters[t]], value)


@compiled  # type: ignore[untyped-decorator]
def largest_rows(distances: Block, clusters: Block, edges: Block, largest: Block) -> None:
    """The same with the largest."""
    for i in range(len(distances)):
        for t in range(len(clusters)):
            value = np.float64(_largest(distances[i, edges[t] : edges[t + 1]]))
            largest[i, clusters[t]] = max(largest[i, clusters[t]], value)
