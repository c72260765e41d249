"""Row panels of a distance matrix: computed from points, or read from a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from silchunk.errors import InputError
from silchunk.metric_kinds import Metric
from silchunk.plan import LEAF_ROWS, TILE_COLUMNS
from silchunk.rows import Block, RowSource


class PanelSource(Protocol):
    """Hands out full rows of an n × n distance matrix."""

    @property
    def n(self) -> int:
        """Number of points."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the distances: float32 or float64."""

    @property
    def relative_error(self) -> float:
        """Largest relative error that a distance was stored with."""

    def read(self, start: int, stop: int, out: Block) -> None:
        """Fill ``out`` (stop - start, n) with rows [start, stop), zero on the diagonal."""


@dataclass(frozen=True)
class FromPoints:
    """What all panels that are computed from points have in common."""

    points: RowSource
    metric: Metric
    dtype: np.dtype[Any]
    read_rows: int

    @property
    def n(self) -> int:
        return self.points.shape[0]

    @property
    def relative_error(self) -> float:
        return 0.0


@dataclass(frozen=True)
class PointPanels(FromPoints):
    """Distances computed from points inside the task that reduces them; nothing is stored."""

    def read(self, start: int, stop: int, out: Block) -> None:
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
                for rows, prepared in tile_rows:
                    self.metric.fill(prepared, columns, scratch, out[rows], read + first)
        _clear_diagonal(out, start)


@dataclass(frozen=True)
class MatrixPanels:
    """Distances read from a matrix that has been checked, rounding noise taken off."""

    matrix: RowSource
    dtype: np.dtype[Any]
    symmetric: bool = False  # known to be, to the last bit

    @property
    def n(self) -> int:
        return self.matrix.shape[0]

    @property
    def relative_error(self) -> float:
        # Of a stored matrix that is read in another dtype.
        return float(getattr(self.matrix, "relative_error", 0.0))

    def read(self, start: int, stop: int, out: Block) -> None:
        with np.errstate(over="ignore"):
            np.maximum(self.matrix.rows(start, stop), 0, out=out, casting="same_kind")
        _clear_diagonal(out, start)
        refuse_not_finite(out, start, 0)


def refuse_not_finite(block: Block, row: int, column: int) -> None:
    """Raise if a block of a matrix, whose first entry is at [row, column], is not all finite.

    Raises
    ------
    InputError
    """
    if block.size and not np.isfinite(block.max()):  # NaN passes through max
        i, j = np.argwhere(~np.isfinite(block))[0]
        raise InputError(
            f"the matrix has {block[i, j]} at [{row + i}, {column + j}] in {block.dtype}; "
            "distances must be finite."
        )


def _clear_diagonal(panel: Block, start: int) -> None:
    rows = np.arange(len(panel))
    panel[rows, start + rows] = 0
