"""Points as centroid algorithms pass over them: block by block on a fixed grid, with weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from silchunk.kernels.centroids import to_directions
from silchunk.labels import StoredVector
from silchunk.plan import grid_rows, ranges
from silchunk.prepare import Job
from silchunk.rows import ArrayRows, Block, RowSource, float_dtype

Vector = np.ndarray[Any, np.dtype[Any]]

# Row ranges of points in memory, for each thread: enough to keep all of them busy to the end.
RANGES_FOR_EACH = 6


class PointBlock(NamedTuple):
    """Points of one block of the grid; none of it is to be written to."""

    first: int  # row of the first of them
    points: Block  # (r, d) float32 or float64, C-contiguous
    weights: Vector  # (r,) float64


@dataclass(frozen=True)
class Points:
    """Points, or their directions, with how many points each one stands for.

    Attributes
    ----------
    source : RowSource
        (n, d).
    weights : (n,) float64, ≥ 0, in memory or stored; or None
    directions : bool
        Points are divided by their norms, none of which is 0.
    """

    source: RowSource
    weights: Vector | StoredVector | None = None
    directions: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        return self.source.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the rows that are handed out: float32 or float64."""
        return np.dtype(np.float64) if self.directions else float_dtype(self.source.dtype)

    @property
    def grid(self) -> int:
        """Rows of a block."""
        return grid_rows(self.shape[1])

    def blocks(self, start: int, stop: int) -> Iterator[PointBlock]:
        """A range of rows that begins on the grid, block by block."""
        rows = self.rows(start, stop)
        given = None if self.weights is None else self.weights[start:stop]
        ones = np.ones(min(self.grid, stop - start))
        for first, last in ranges(stop - start, self.grid):
            weights = ones[: last - first] if given is None else given[first:last]
            yield PointBlock(start + first, rows[first:last], weights)

    def rows(self, start: int, stop: int) -> Block:
        """Points, or directions, of any range of rows."""
        rows = self.source.rows(start, stop)
        if not self.directions:
            return rows
        directions = np.empty(rows.shape)
        to_directions(rows, directions)
        return directions

    def picked(self, index: Vector) -> Block:
        """(m, d) float64: points of some rows, in the order of ``index``."""
        found = np.empty((len(index), self.shape[1]))
        step = self.source.chunk_rows
        chunks = index // step
        for chunk in np.unique(chunks):  # each chunk is read once
            here = chunks == chunk
            first, last = int(index[here].min()), int(index[here].max()) + 1
            found[here] = self.rows(first, last)[index[here] - first]
        return found

    def ranges_of(self, job: Job) -> list[tuple[int, int]]:
        """Row ranges of one pass: on the grid, whole chunks together, and not too few."""
        n, grid = self.shape[0], self.grid
        step = max(grid, job.plan.read_rows - job.plan.read_rows % grid)
        source = self.source
        viewed = (
            isinstance(source, ArrayRows)
            and source.dtype == float_dtype(source.dtype)
            and source.array.flags.c_contiguous
        )
        if viewed and not self.directions:
            # Nothing is read: as long as leaves each thread some, and all of them as much.
            blocks = -(-n // grid)
            step = grid * -(-blocks // (RANGES_FOR_EACH * job.plan.concurrency))
        return ranges(n, step)
