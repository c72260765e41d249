"""Tiles of distances whose columns lie cluster by cluster: what reductions by cluster run over.

Rows are those of a panel or of a sample. Columns are all points that have a cluster, a few at a
time: from points, each block that is read is sorted by cluster before its distances are computed;
of a matrix, the columns of whole rows are. Nothing as long as a row of distances is held where
these are computed from points.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from silchunk.buffers import borrowed
from silchunk.panels import FromPoints, PanelSource
from silchunk.plan import LEAF_ROWS, TILE_COLUMNS, ranges
from silchunk.rows import Block, RowSource

Vector = np.ndarray[Any, np.dtype[Any]]


class Codes(Protocol):
    """Codes of `silchunk.labels.Labels`, in memory or in a file."""

    def __getitem__(self, points: slice, /) -> Vector:
        """Of a range of points."""


class Tile(NamedTuple):
    """Distances from some rows to some points, these cluster by cluster."""

    rows: slice  # of those asked for
    distances: Block  # (r, c), to be used before the next tile is asked for
    columns: Vector  # (c,) int64, the points that the columns are
    clusters: Vector  # (s,) int64, clusters of the segments, ascending
    edges: Vector  # (s + 1,) int64, segment t has columns [edges[t], edges[t + 1])


def labelled_tiles(
    panels: PanelSource, codes: Codes, rows: Vector, first: int = 0
) -> Iterator[Tile]:
    """All distances from ``rows`` to points that have a cluster, those from ``first`` on.

    Parameters
    ----------
    panels : PanelSource
    codes : (n,)
    rows : (r,) int64, ascending
    first : int
        Points before it are left out, which spares their distances where points are given.
    """
    if isinstance(panels, FromPoints):
        yield from _computed(panels, codes, rows, first)
    else:
        yield from _read(panels, codes, rows, first)


def _computed(panels: FromPoints, codes: Codes, rows: Vector, first: int) -> Iterator[Tile]:
    metric = panels.metric
    own = picked_rows(panels.points, rows, panels.read_rows)
    leaves = [(slice(a, b), metric.rows(own[a:b])) for a, b in ranges(len(own), LEAF_ROWS)]
    scratch = np.empty(LEAF_ROWS * TILE_COLUMNS)
    with borrowed((LEAF_ROWS * TILE_COLUMNS,), panels.dtype) as buffer:
        for a, b in ranges(panels.n, panels.read_rows):
            if b <= first:
                continue
            part = codes[a:b]
            order = _by_cluster(part, max(0, first - a))
            block = panels.points.rows(a, b)[order]
            own_places = [_places(rows[leaf], order, a, b) for leaf, _ in leaves]
            for c, d in ranges(len(order), TILE_COLUMNS):
                columns = metric.columns(np.ascontiguousarray(block[c:d]))
                points = a + order[c:d]
                clusters, edges = _segments(part[order[c:d]])
                for (leaf, prepared), (i, places) in zip(leaves, own_places, strict=True):
                    shape = leaf.stop - leaf.start, d - c
                    distances = buffer[: shape[0] * shape[1]].reshape(shape)
                    metric.fill(prepared, columns, scratch, distances, 0)
                    here = (places >= c) & (places < d)
                    distances[i[here], places[here] - c] = 0
                    yield Tile(leaf, distances, points, clusters, edges)


def _read(panels: PanelSource, codes: Codes, rows: Vector, first: int) -> Iterator[Tile]:
    every = codes[0 : panels.n]
    order = _by_cluster(every, first)
    clusters, edges = _segments(every[order])
    start, stop = int(rows[0]), int(rows[-1]) + 1
    with borrowed((stop - start, panels.n), panels.dtype) as panel:
        panels.read(start, stop, panel)
        for a, b in ranges(len(rows), LEAF_ROWS):
            distances = np.take(panel[rows[a:b] - start], order, axis=1)
            yield Tile(slice(a, b), distances, order, clusters, edges)


def picked_rows(points: RowSource, rows: Vector, step: int) -> Block:
    """Rows (r, d) at ascending indices, read in blocks of ``step`` on a fixed grid."""
    if len(rows) == rows[-1] + 1 - rows[0]:
        return points.rows(int(rows[0]), int(rows[-1]) + 1)
    own = []
    for first in range(int(rows[0] - rows[0] % step), int(rows[-1]) + 1, step):
        inside = rows[(rows >= first) & (rows < first + step)]
        if len(inside):
            own.append(points.rows(first, min(points.shape[0], first + step))[inside - first])
    return np.concatenate(own)


def _by_cluster(codes: Vector, first: int) -> Vector:
    """Indices from ``first`` on of codes that are not negative, cluster by cluster."""
    order: Vector = np.argsort(codes[first:], kind="stable")
    return order[np.searchsorted(codes[first:][order], 0) :] + first


def _segments(codes: Vector) -> tuple[Vector, Vector]:
    """Distinct codes of a sorted vector, and where each begins; at the end, where it ends."""
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    return codes[starts].astype(np.int64), np.append(starts, len(codes))


def _places(rows: Vector, order: Vector, start: int, stop: int) -> tuple[Vector, Vector]:
    """Which of ``rows`` are in [start, stop), and where ``order`` has them; -1 where it has not."""
    inside = np.flatnonzero((rows >= start) & (rows < stop))
    if not len(inside):
        return inside, inside
    place = np.full(stop - start, -1)
    place[order] = np.arange(len(order))
    return inside, place[rows[inside] - start]
