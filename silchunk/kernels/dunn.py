"""Least and largest distances between and within clusters.

Distances are not negative, so that their bits, taken as integers, are in the order of the numbers;
and the least of many integers is found in vector registers, which that of numbers is not. Which
points distances are of is looked up where a row improves on what is known, which is rare.
"""

from __future__ import annotations

import numpy as np

from silchunk.kernels.bound import Block, compiled

# Places in the extremes of a set of points.
BETWEEN, WITHIN = range(2)


def _bits_of(numbers: Block) -> Block:
    """The same memory as int32 or int64; ``numbers`` are C-contiguous float32 or float64."""
    return numbers.view(f"i{numbers.itemsize}")


@compiled  # type: ignore[untyped-decorator]
def _least(bits: Block) -> int:
    """Least of some bits, the sign of zeros left out; of none, the largest that there can be."""
    unsigned = bits.dtype.type(np.iinfo(bits.dtype).max)
    least: int = unsigned
    for t in range(bits.shape[0]):
        least = min(least, bits.dtype.type(bits[t] & unsigned))
    return least


@compiled  # type: ignore[untyped-decorator]
def _largest(bits: Block) -> int:
    """Largest of some bits; of none, 0."""
    largest: int = bits.dtype.type(0)
    for t in range(bits.shape[0]):
        largest = max(largest, bits[t])
    return largest


@compiled  # type: ignore[untyped-decorator]
def _keep_pair(bits: Block, value: int, columns: Block, row: int, pair: Block, tied: bool) -> bool:
    """Put the lowest pair of ``row`` and another point at ``value`` into ``pair``, if there is one
    and, where it is ``tied`` with the pair there, it comes before that; whether there is one."""
    unsigned = bits.dtype.type(np.iinfo(bits.dtype).max)
    found = -1
    for j in range(len(bits)):
        if bits[j] & unsigned == value and columns[j] != row and (found < 0 or columns[j] < found):
            found = columns[j]
    if found < 0:
        return False
    low, high = min(row, found), max(row, found)
    if not tied or low < pair[0] or (low == pair[0] and high < pair[1]):
        pair[0], pair[1] = low, high
    return True


@compiled  # type: ignore[untyped-decorator]
def _update_extremes(
    bits: Block,
    rows: Block,
    codes: Block,
    columns: Block,
    clusters: Block,
    edges: Block,
    values: Block,
    pairs: Block,
) -> None:
    n_columns = bits.shape[1]
    lowest = columns[0]
    for t in range(len(clusters)):
        lowest = min(lowest, columns[edges[t]])
    for i in range(len(bits)):
        row, point = bits[i], rows[i]
        first = last = 0
        t = np.searchsorted(clusters, codes[i])
        if t < len(clusters) and clusters[t] == codes[i]:
            first, last = edges[t], edges[t + 1]
        # Only a pair that comes before the one kept is worth a search among equals.
        lower = min(point, lowest)
        for begin, end in ((0, first), (last, n_columns)):
            part, points = row[begin:end], columns[begin:end]
            value = _least(part)
            tied = value == values[BETWEEN]
            if value < values[BETWEEN] or (tied and lower <= pairs[BETWEEN, 0]):
                _keep_pair(part, value, points, point, pairs[BETWEEN], tied)
                values[BETWEEN] = value
        part, points = row[first:last], columns[first:last]
        value = _largest(part)
        tied = value == values[WITHIN]
        if value > values[WITHIN] or (tied and lower <= pairs[WITHIN, 0]):
            # A point alone in its segment is no pair.
            if _keep_pair(part, value, points, point, pairs[WITHIN], tied):
                values[WITHIN] = value


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
    distances : (r, c) float32 or float64
    rows, columns : (r,), (c,) int64, the points that they are; columns ascend in a segment
    codes : (r,) int64, cluster of each row
    clusters, edges : (s,), (s + 1,) int64; columns [edges[t], edges[t + 1]) are of clusters[t]
    values : (2,), of the dtype of the distances, updated: the least one BETWEEN points of
        different clusters and the largest WITHIN one; at first inf and any negative number
    pairs : (2, 2) int64, updated: the points, the lower one first, of equals the lowest pair
    """
    bits, kept = _bits_of(distances), _bits_of(values)
    _update_extremes(bits, rows, codes, columns, clusters, edges, kept, pairs)


@compiled  # type: ignore[untyped-decorator]
def _least_rows(bits: Block, clusters: Block, edges: Block, least: Block) -> None:
    for i in range(len(bits)):
        for t in range(len(clusters)):
            value = _least(bits[i, edges[t] : edges[t + 1]])
            least[i, clusters[t]] = min(least[i, clusters[t]], value)


@compiled  # type: ignore[untyped-decorator]
def _largest_rows(bits: Block, clusters: Block, edges: Block, largest: Block) -> None:
    for i in range(len(bits)):
        for t in range(len(clusters)):
            value = _largest(bits[i, edges[t] : edges[t + 1]])
            largest[i, clusters[t]] = max(largest[i, clusters[t]], value)


def least_rows(distances: Block, clusters: Block, edges: Block, least: Block) -> None:
    """``least[i, c]`` = least distance from row i to the columns of cluster c, and what it was.

    Parameters
    ----------
    distances : (r, n) float32 or float64
    clusters, edges : (s,), (s + 1,) int64; columns [edges[t], edges[t + 1]) are of clusters[t]
    least : (r, K), of the same dtype, not negative
    """
    _least_rows(_bits_of(distances), clusters, edges, _bits_of(least))


def largest_rows(distances: Block, clusters: Block, edges: Block, largest: Block) -> None:
    """The same with the largest."""
    _largest_rows(_bits_of(distances), clusters, edges, _bits_of(largest))
