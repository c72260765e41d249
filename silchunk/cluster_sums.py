"""Panel tasks that sum distances by cluster, and what comes of the sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from silchunk.buffers import borrowed
from silchunk.errors import InputError
from silchunk.kernels import pair_sums, segments, silhouette
from silchunk.metric_kinds import DifferenceMetric, Metric
from silchunk.panels import FromPoints, PanelSource, PointPanels
from silchunk.plan import TILE_COLUMNS, ranges
from silchunk.rows import Block
from silchunk.tiles import Codes, labelled_tiles

Vector = np.ndarray[Any, np.dtype[Any]]

# Rows of a panel of pairs, and of its tiles: long enough that making columns ready, and calling
# the kernels, costs little beside them.
PAIR_ROWS = 512
PAIR_TILE_ROWS = 128
# Points whose distances are added up as they are formed are handled so many bytes at a time: they
# stay in a core's second cache.
COLUMN_BYTES = 512 << 10
# Tiles of them at most: their sums take memory, too.
MOST_TILES = 4


@dataclass(frozen=True)
class RowSilhouettes:
    """Panel task: silhouettes of a panel's rows, or of those that are sampled.

    ``totals`` (K,) are the clusters' numbers of points, or sums of ``sample_weight`` (n,).
    """

    panels: PanelSource
    codes: Codes
    totals: Vector
    sample_weight: Codes | None = None
    sampled: Vector | None = None  # (s,) int64, ascending
    sampled_codes: Vector | None = None  # (s,)

    def __call__(self, start: int, stop: int) -> Block:
        rows, codes = self._rows(start, stop)
        kept = np.flatnonzero(codes >= 0)
        out = np.full((len(rows), 4), np.nan)
        if len(kept):
            out[kept] = silhouettes_of(self._sums(rows[kept]), codes[kept], self.totals)
        return out

    def _sums(self, rows: Vector) -> Block:
        """Of distances from each row to each cluster, (r, K)."""
        sums = np.zeros((len(rows), len(self.totals)))
        for tile in labelled_tiles(self.panels, self.codes, rows):
            place = sums[tile.rows]
            if self.sample_weight is None:
                segments.add_rows(tile.distances, tile.clusters, tile.edges, place)
                continue
            low, high = int(tile.columns.min()), int(tile.columns.max()) + 1
            weights = self.sample_weight[low:high][tile.columns - low]
            segments.add_weighted_rows(tile.distances, weights, tile.clusters, tile.edges, place)
        return sums

    def _rows(self, start: int, stop: int) -> tuple[Vector, Vector]:
        if self.sampled is None or self.sampled_codes is None:
            return np.arange(start, stop), self.codes[start:stop]
        part = slice(start, stop)  # of the sample; of a matrix, of its rows
        if not isinstance(self.panels, FromPoints):
            part = slice(*np.searchsorted(self.sampled, [start, stop]))
        return self.sampled[part], self.sampled_codes[part]


def silhouettes_of(sums: Block, codes: Vector, totals: Vector) -> Block:
    """Silhouettes (r, 4) of points from their sums of distances (r, K).

    Raises
    ------
    InputError
        Sums are too large for float64.
    """
    if not np.isfinite(sums).all():
        raise InputError("sums of distances are too large for float64. Divide X by a power of ten.")
    others = np.where(totals > 1, totals - 1, np.nan)
    own = np.maximum(codes, 0)
    within = sums[np.arange(len(sums)), own] / others[own]
    return silhouette.silhouettes(sums / totals, within, codes)


class PairSums(NamedTuple):
    """Distances of a panel's rows, each pair of points counted once."""

    by_row: Block  # (K, r), from each row to the points from the panel's first on
    clusters: slice  # those of the panel's rows
    by_column: Block  # (t, n - stop), from each point beyond the panel to its rows


@dataclass(frozen=True)
class SumPairs:
    """Panel task over points that lie cluster by cluster, from ``edges[c]`` to ``edges[c + 1]``.

    Each tile is computed once and summed both ways, which halves the work.
    """

    panels: PointPanels
    edges: Vector  # (K + 1,) int64

    def __call__(self, start: int, stop: int) -> PairSums:
        metric, n = self.panels.metric, self.panels.n
        own = self.panels.points.rows(start, stop)
        mine = self._clusters(start, stop)
        row_edges = self._within(mine, start, stop)
        tiles: _SquareSums | _TileSums
        if isinstance(metric, DifferenceMetric) and not metric.squared:
            tiles = _SquareSums(metric, own, row_edges)
        else:
            tiles = _TileSums(metric, self.panels.dtype, own, row_edges)
        by_row = np.zeros((len(self.edges) - 1, len(own)))
        by_column = np.empty((mine.stop - mine.start, n - stop))
        for a, b, block in self._column_blocks(start, stop, tiles.columns):
            theirs = self._clusters(a, b)
            column_edges = self._within(theirs, a, b)
            below = np.zeros((len(by_column), b - a))
            tiles.add(block, column_edges, by_row[theirs], below, square=a == start)
            if a >= stop:
                by_column[:, a - stop : b - stop] = below
        return PairSums(by_row, mine, by_column)

    def _column_blocks(
        self, start: int, stop: int, columns: int
    ) -> Iterator[tuple[int, int, Block]]:
        """The panel's own points, and so many at a time of those beyond it, read many at a time."""
        points, n = self.panels.points, self.panels.n
        yield start, stop, points.rows(start, stop)
        for first, last in ranges(n - stop, self.panels.read_rows):
            read = points.rows(stop + first, stop + last)
            for a, b in ranges(len(read), columns):
                yield stop + first + a, stop + first + b, read[a:b]

    def _clusters(self, start: int, stop: int) -> slice:
        """Clusters that points [start, stop) are of."""
        first = int(np.searchsorted(self.edges, start, side="right")) - 1
        return slice(first, int(np.searchsorted(self.edges, stop, side="left")))

    def _within(self, clusters: slice, start: int, stop: int) -> Vector:
        """Where in [start, stop) each of these clusters begins, and the last ends."""
        edges: Vector = np.clip(self.edges[clusters.start : clusters.stop + 1], start, stop) - start
        return edges


class _SquareSums:
    """Euclidean distances between a panel's points and others, added up as they are formed."""

    def __init__(self, metric: DifferenceMetric, own: Block, row_edges: Vector) -> None:
        self._metric, self._rows, self._row_edges = metric, metric.rows(own), row_edges
        tile_bytes = TILE_COLUMNS * own.shape[1] * metric.dtype.itemsize
        self.columns = TILE_COLUMNS * min(max(1, COLUMN_BYTES // tile_bytes), MOST_TILES)

    def add(
        self, block: Block, column_edges: Vector, by_row: Block, by_column: Block, *, square: bool
    ) -> None:
        """Add the distances to the points of a block; a point's to itself is 0 as it is formed."""
        rows, columns = self._rows, self._metric.columns(block)
        pair_sums.add_distances(
            rows.values,
            columns.values,
            rows.source,
            columns.source,
            self._metric.scale,
            self._row_edges,
            column_edges,
            by_row,
            by_column,
        )


class _TileSums:
    """Distances of any metric between a panel's points and others, a tile at a time."""

    def __init__(self, metric: Metric, dtype: np.dtype[Any], own: Block, row_edges: Vector) -> None:
        self._metric, self._dtype, self.columns = metric, dtype, TILE_COLUMNS
        self._scratch = np.empty(PAIR_TILE_ROWS * TILE_COLUMNS)
        self._leaves = [
            (a, metric.rows(own[a:b]), np.clip(row_edges, a, b) - a)
            for a, b in ranges(len(own), PAIR_TILE_ROWS)
        ]

    def add(
        self, block: Block, column_edges: Vector, by_row: Block, by_column: Block, *, square: bool
    ) -> None:
        """Add the distances to the points of a block; they are the panel's own if ``square``."""
        columns = self._metric.columns(block)
        with borrowed((PAIR_TILE_ROWS * TILE_COLUMNS,), self._dtype) as buffer:
            for first, rows, edges in self._leaves:
                shape = len(rows.source), len(block)
                distances = buffer[: shape[0] * shape[1]].reshape(shape)
                self._metric.fill(rows, columns, self._scratch, distances, 0)
                if square:
                    diagonal = np.arange(shape[0])
                    distances[diagonal, first + diagonal] = 0
                segments.add_both(distances, column_edges, edges, by_row, first, by_column)


def most_clusters_of_a_panel(sizes: Vector) -> int:
    """Most clusters that the rows of a panel of pairs are of."""
    edges = np.concatenate([[0], np.cumsum(sizes)])
    starts = np.arange(0, edges[-1], PAIR_ROWS)
    firsts = np.searchsorted(edges, starts, side="right")
    lasts = np.searchsorted(edges, np.minimum(starts + PAIR_ROWS, edges[-1]), side="left")
    return int((lasts - firsts).max()) + 1
