"""Row panels that equal their transpose to the last bit, for matrices that are kept.

A matrix product may round x·y and y·x differently, depending on where they stand in a tile. Here
every pair above the diagonal is computed once in the same tile, whichever panel asks, and the
pair below it is its mirror image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from silchunk.metric_kinds import Metric, PairwiseMetric, mirror_upper
from silchunk.npy_files import map_npy
from silchunk.panels import FromPoints, refuse_not_finite
from silchunk.plan import LEAF_ROWS, TILE_COLUMNS, ranges
from silchunk.rows import Block, RowSource

# Columns of a tile, on a grid of global indices. Panels are this long or a part of it: the tile
# that holds a pair is then the same seen from either of its two panels.
SQUARE = 256


@dataclass(frozen=True)
class SymmetricPanels(FromPoints):
    """Distances from points, tiles below the diagonal mirrored from those above."""

    def read(self, start: int, stop: int, out: Block) -> None:
        for square in range(start - start % SQUARE, stop, SQUARE):
            first, last = max(start, square), min(stop, square + SQUARE)
            self._read_within_square(first, last, square, out[first - start : last - start])

    def _read_within_square(self, first: int, last: int, square: int, out: Block) -> None:
        """Rows [first, last), which lie within the SQUARE rows from ``square`` on."""
        end = min(self.n, square + SQUARE)
        own = slice(first - square, last - square)
        scratch = np.empty(LEAF_ROWS * SQUARE)
        tile = np.empty((LEAF_ROWS, end - square), self.dtype)
        block = self.points.rows(square, end)
        columns = self.metric.columns(block)
        # Left of the square: what the earlier rows see in these columns.
        for start, earlier in self._blocks(0, square):
            for a, b in ranges(len(earlier), LEAF_ROWS):
                self.metric.fill(self.metric.rows(earlier[a:b]), columns, scratch, tile, 0)
                out[:, start + a : start + b] = tile[: b - a, own].T
        # On the diagonal: the whole square, its upper half kept.
        whole = np.empty((end - square, end - square), self.dtype)
        prepared = [
            (slice(a, b), self.metric.rows(block[a:b])) for a, b in ranges(len(block), LEAF_ROWS)
        ]
        for rows, made in prepared:
            self.metric.fill(made, columns, scratch, whole[rows], 0)
        mirror_upper(whole)
        out[:, square:end] = whole[own]
        # Right of the square: as these rows see it.
        mine = [
            (slice(a, b), self.metric.rows(block[own][a:b]))
            for a, b in ranges(last - first, LEAF_ROWS)
        ]
        for start, later in self._blocks(end, self.n):
            for a, b in ranges(len(later), SQUARE):
                columns = self.metric.columns(later[a:b])
                for rows, made in mine:
                    self.metric.fill(made, columns, scratch, out[rows], start + a)

    def _blocks(self, first: int, last: int) -> Iterator[tuple[int, Block]]:
        """Points [first, last), read a few at a time; ``first`` is on the grid."""
        for a, b in ranges(last - first, self.read_rows):
            yield first + a, self.points.rows(first + a, first + b)


@dataclass(frozen=True)
class HalfPanels(FromPoints):
    """Distances from each row to itself and those after it, each pair computed once.

    ``read`` fills only columns from ``start`` on. For metrics whose cost is in the pairs.
    """

    metric: PairwiseMetric

    def read(self, start: int, stop: int, out: Block) -> None:
        rows = self.metric.rows(self.points.rows(start, stop))
        square = np.zeros((stop - start, stop - start), self.dtype)
        self.metric.fill_square(rows, square)
        out[:, start:stop] = square
        scratch = np.empty(0)
        for a, b in ranges(self.n - stop, self.read_rows):
            block = self.points.rows(stop + a, stop + b)
            for c, d in ranges(len(block), TILE_COLUMNS):
                columns = self.metric.columns(block[c:d])
                self.metric.fill(rows, columns, scratch, out, stop + a + c)


@dataclass(frozen=True)
class WholePanels:
    """Single panels of a slow metric, equal to those put together from halves.

    Each pair is measured in the order of the points, as it is there.
    """

    half: HalfPanels

    @property
    def n(self) -> int:
        return self.half.n

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.half.dtype

    @property
    def relative_error(self) -> float:
        return 0.0

    def read(self, start: int, stop: int, out: Block) -> None:
        self.half.read(start, stop, out)
        points, metric = self.half.points, self.half.metric
        columns = metric.columns(points.rows(start, stop))
        scratch = np.empty(0)
        for a, b in ranges(start, TILE_COLUMNS):
            tile = np.empty((b - a, stop - start), self.dtype)
            metric.fill(metric.rows(points.rows(a, b)), columns, scratch, tile, 0)
            out[:, a:b] = tile.T


@dataclass(frozen=True)
class MirroredPanels:
    """Whole panels put together from the files that hold each panel's half."""

    folder: str
    n: int
    dtype: np.dtype[Any]
    panel_rows: int

    @property
    def relative_error(self) -> float:
        return 0.0

    def read(self, start: int, stop: int, out: Block) -> None:
        for first in range(0, start, self.panel_rows):
            half = self._half(first // self.panel_rows)
            out[:, first : first + self.panel_rows] = half[:, start - first : stop - first].T
        out[:, start:] = self._half(start // self.panel_rows)

    def _half(self, panel: int) -> Block:
        half: Block = map_npy(half_file(self.folder, panel))
        return half


@dataclass(frozen=True)
class UpperPanels:
    """A given matrix whose upper triangle, rounding noise taken off, stands for both."""

    matrix: RowSource
    dtype: np.dtype[Any]

    @property
    def n(self) -> int:
        return self.matrix.shape[0]

    @property
    def relative_error(self) -> float:
        return float(getattr(self.matrix, "relative_error", 0.0))

    def read(self, start: int, stop: int, out: Block) -> None:
        for first, last in ranges(start, stop - start):
            above = self.matrix.rows(first, last, slice(start, stop))
            out[:, first:last] = np.maximum(above, 0).T
        right = self.matrix.rows(start, stop, slice(start, self.n))
        np.maximum(right, 0, out=out[:, start:], casting="same_kind")
        square = out[:, start:stop]
        mirror_upper(square)
        np.fill_diagonal(square, 0)
        refuse_not_finite(out, start, 0)


def half_file(folder: str | Path, panel: int) -> Path:
    """Where a panel's half lies until all panels are put together."""
    return Path(folder) / f"{panel}.npy"


def symmetric_panels(
    points: RowSource, metric: Metric, dtype: np.dtype[Any], read_rows: int
) -> SymmetricPanels | HalfPanels:
    """The panels of a matrix that is kept: pairs of slow metrics are computed once."""
    make: Callable[..., SymmetricPanels | HalfPanels] = (
        HalfPanels if isinstance(metric, PairwiseMetric) else SymmetricPanels
    )
    return make(points, metric, dtype, read_rows)
