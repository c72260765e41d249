"""Row panels of a distance matrix: computed from points, or read from a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from silchunk.metrics import Metric
from silchunk.plan import LEAF_ROWS, TILE_COLUMNS
from silchunk.points import Block, RowSource


class PanelSource(Protocol):
    """Hands out full rows of an n × n distance matrix."""

    @property
    def n(self) -> int:
        """Number of points."""

    def read(self, start: int, stop: int) -> Block:
        """Rows [start, stop): a new array (stop - start, n), zero on the matrix's diagonal."""


@dataclass(frozen=True)
class PointPanels:
    """Distances computed from points inside the task that reduces them; nothing is stored."""

    points: RowSource
    metric: Metric
    dtype: np.dtype[Any]
    read_rows: int

    @property
    def n(self) -> int:
        return self.points.shape[0]

    def read(self, start: int, stop: int) -> Block:
        panel = np.empty((stop - start, self.n), self.dtype)
        scratch = np.empty(LEAF_ROWS * TILE_COLUMNS)
        own = self.points.rows(start, stop)
        tile_rows = [
            (slice(first, first + LEAF_ROWS), self.metric.rows(own[first : first + LEAF_ROWS]))
            for first in range(0, stop - start, LEAF_ROWS)
        ]
        for read in range(0, self.n, self.read_rows):
            block = self.points.rows(read, min(self.n, read + self.read_rows))
            for first in range(0, len(block), TILE_COLUMNS):
                columns = self.metric.columns(block[first : first + TILE_COLUMNS])
                place = slice(read + first, read + first + len(columns.source))
                for rows, prepared in tile_rows:
                    self.metric.fill(prepared, columns, scratch, panel[rows, place])
        _clear_diagonal(panel, start)
        return panel


@dataclass(frozen=True)
class MatrixPanels:
    """Distances read from a matrix that has been checked, rounding noise taken off."""

    matrix: RowSource
    dtype: np.dtype[Any]

    @property
    def n(self) -> int:
        return self.matrix.shape[0]

    def read(self, start: int, stop: int) -> Block:
        panel = np.array(self.matrix.rows(start, stop), dtype=self.dtype)
        np.maximum(panel, 0, out=panel)
        _clear_diagonal(panel, start)
        return panel


def _clear_diagonal(panel: Block, start: int) -> None:
    rows = np.arange(len(panel))
    panel[rows, start + rows] = 0
