"""Sums of Euclidean distances by cluster, of rows and of columns at once.

A block of squared distances is formed in vector registers, and its roots are added up before the
next one: no tile of distances is ever written.
"""

from __future__ import annotations

import math

import numpy as np

from silchunk.kernels.blocks import (
    ROWS,
    add_parted_roots,
    add_roots,
    block_columns,
    block_lanes,
    fill_squares,
)
from silchunk.kernels.bound import Block, reordered
from silchunk.kernels.distance import FLOAT32_FLOOR, difference_norm


@reordered  # type: ignore[untyped-decorator]
def add_distances(
    rows: Block,
    columns: Block,
    row_points: Block,
    column_points: Block,
    scale: float,
    row_edges: Block,
    column_edges: Block,
    by_row: Block,
    by_column: Block,
) -> None:
    """Sum distances along the rows and along the columns, by segments of the other.

    Parameters
    ----------
    rows, columns : (r', d), (d, c')
        Points times ``scale``, a power of two, of one dtype and C-contiguous; r' and c' are at
        least the next multiples of ROWS and of COLUMNS.
    row_points, column_points : (r, d), (c, d)
        The points as given, from which distances that have lost digits to underflow are formed.
    row_edges, column_edges : (t + 1,), (s + 1,) int64
        Segments of the rows and of the columns, from 0 to r and to c.
    by_row, by_column : (s, r), (t, c) float64
        Added to.
    """
    factor = 1.0 / scale
    width, n_segments = block_columns(columns), column_edges.shape[0] - 1
    floor = columns.dtype.type(FLOAT32_FLOOR)
    block = np.empty((ROWS, width), columns.dtype)
    lengths = np.empty((ROWS, width))
    # Sums of a few rows so far, over a segment and over the next one.
    along, beyond = np.zeros((2, ROWS, block_lanes(columns)))
    t = 0
    for i in range(0, row_points.shape[0], ROWS):
        while row_edges[t + 1] <= i:
            t += 1
        one_segment = i + ROWS <= row_edges[t + 1]
        s = 0
        for j in range(0, column_points.shape[0], width):
            if column_edges[s + 1] <= j:
                _take(along, factor, by_row[s, i : i + ROWS])
                while column_edges[s + 1] <= j:
                    s += 1
            split = column_edges[s + 1] - j
            if one_segment and split >= width:
                if add_roots(
                    rows, i, columns, j, floor, factor, along, beyond, split, by_column, t
                ):
                    continue
            elif one_segment and column_edges[min(s + 2, n_segments)] >= j + width:
                if add_parted_roots(
                    rows, i, columns, j, floor, factor, along, beyond, split, by_column, t
                ):
                    _take(along, factor, by_row[s, i : i + ROWS])
                    _move(beyond, along)
                    s += 1
                    continue
            clear = fill_squares(rows, i, columns, j, block, 0, 0) >= floor
            last = min(i + ROWS, row_points.shape[0])
            size = min(width, column_points.shape[0] - j)
            for r in range(last - i):
                squares, line = block[r], lengths[r]
                for q in range(width):
                    line[q] = np.float64(math.sqrt(squares[q])) * factor
                if not clear:
                    for q in range(size):
                        if squares[q] < floor:
                            point = column_points[j + q]
                            line[q] = difference_norm(row_points[i + r], point, scale) * factor
            _add_along(lengths[: last - i], i, j, s, column_edges, size, by_row)
            segment = t
            for r in range(last - i):
                while row_edges[segment + 1] <= i + r:
                    segment += 1
                below, line = by_column[segment, j : j + size], lengths[r]
                for q in range(size):
                    below[q] += line[q]
        _take(along, factor, by_row[s, i : i + ROWS])


@reordered  # type: ignore[untyped-decorator]
def _take(along: Block, factor: float, totals: Block) -> None:
    """Add the sums of ``along``, times ``factor``, to ``totals``, and set them back to zero."""
    for r in range(totals.shape[0]):
        total = 0.0
        for q in range(along.shape[1]):
            total += along[r, q]
        totals[r] += total * factor
    along[:] = 0.0


@reordered  # type: ignore[untyped-decorator]
def _move(sums: Block, to: Block) -> None:
    """Overwrite ``to`` with ``sums``, and set them to zero.

    A loop: assigning an array to an array would compile the words of an error message, too.
    """
    for r in range(sums.shape[0]):
        for q in range(sums.shape[1]):
            to[r, q], sums[r, q] = sums[r, q], 0.0


@reordered  # type: ignore[untyped-decorator]
def _add_along(
    lengths: Block, i: int, j: int, s: int, edges: Block, size: int, by_row: Block
) -> None:
    """Add the distances from rows i and on to ``size`` columns from j on, which begin in segment s.

    All of a line is looked at for every segment: a loop of fixed length runs in vectors alone.
    """
    while True:
        first, last = edges[s] - j, min(edges[s + 1] - j, size)
        for r in range(lengths.shape[0]):
            line = lengths[r]
            total = 0.0
            for q in range(line.shape[0]):
                total += line[q] if first <= q < last else 0.0
            by_row[s, i + r] += total
        if last == size:
            return
        s += 1
