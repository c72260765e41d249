"""One pass over the points before any distance: are they finite, and where do they lie?"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from silchunk import engine
from silchunk.errors import InputError, LooksPrecomputedWarning, warn
from silchunk.inbox import Consume
from silchunk.metric_kinds import Frame
from silchunk.plan import PanelRange, grid_rows, ranges
from silchunk.rows import ArrayRows, Block, RowSource, float_dtype

# Rows in memory are looked at where they are: so many times more for each task.
VIEWED_AT_ONCE = 8
# Bytes in float64 of rows that are summed at a time.
SUMMED_BYTES = 1 << 20
# Bytes of one part of a fingerprint, counted in float64.
DIGEST_BYTES = 8 << 20
# Values that are compared with as many others at once.
COMPARED_VALUES = 2048
# A square input is compared with its transpose on this many leading rows and columns.
SQUARE_SAMPLE = 1024


class _Summary(NamedTuple):
    sums: Block  # (blocks, d)
    low: Block  # (d,)
    high: Block  # (d,)


@dataclass(frozen=True)
class _Summarise:
    """Panel task: per-feature sums and range of a row range; raises at the first NaN or inf."""

    points: RowSource
    name: str
    allow_missing: bool

    def __call__(self, start: int, stop: int) -> _Summary:
        block = self.points.rows(start, stop)
        if self.allow_missing:
            block = np.where(np.isnan(block), block.dtype.type(0), block)
        low, high = (_extreme(ufunc, block) for ufunc in (np.minimum, np.maximum))
        # NaN and inf pass through min and max, which spares a look at every value.
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            row, column = np.argwhere(~np.isfinite(block))[0]
            raise InputError(
                f"{self.name} has {block[row, column]} at row {start + row}, column {column} "
                "(counted from 0). Distances need finite values: drop or fill such rows first."
            )
        parts = ranges(len(block), grid_rows(block.shape[1]))
        sums = np.array([_sums(block[first:last]) for first, last in parts])
        return _Summary(sums, low.astype(np.float64), high.astype(np.float64))


def _extreme(ufunc: np.ufunc, block: Block) -> Block:
    """The least or largest value of each column, NaN where there is one.

    Of many rows side by side first: NumPy needs as long for a short row as for one of a few
    thousand values.
    """
    n, d = block.shape
    beside = COMPARED_VALUES // d
    if not block.flags.c_contiguous or n < beside or beside < 2:
        found: Block = ufunc.reduce(block, axis=0)
        return found
    whole = n // beside * beside
    lines = ufunc.reduce(block[:whole].reshape(-1, beside * d), axis=0).reshape(beside, d)
    found = ufunc.reduce(np.concatenate([lines, block[whole:]]), axis=0)
    return found


def _sums(block: Block) -> Block:
    """Sums of the columns in float64: of a few rows at a time in that dtype, which takes a quarter
    of the time of sums in another one."""
    total = np.zeros(block.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        for first, last in ranges(len(block), max(1, SUMMED_BYTES // (8 * block.shape[1]))):
            total += block[first:last].astype(np.float64, copy=False).sum(axis=0)
    return total


@dataclass(frozen=True)
class _Products:
    """Panel task: ``Σ (x - c)(x - c)ᵀ`` of each grid block of a row range."""

    points: RowSource
    centre: Block

    def __call__(self, start: int, stop: int) -> list[Block]:
        rows = self.points.rows(start, stop)
        products = []
        for first, last in ranges(stop - start, grid_rows(rows.shape[1])):
            block = rows[first:last] - self.centre
            products.append(block.T @ block)
        return products


def scan_points(
    points: RowSource, *, name: str, where: engine.Executor, read_rows: int, allow_missing: bool
) -> Frame:
    """Check every value and find the frame that the points lie in.

    Raises
    ------
    InputError
        At the first NaN or infinity, naming its row and column.
    """
    n, d = points.shape
    sums: list[Block] = []
    low, high = np.full(d, np.inf), np.full(d, -np.inf)

    def combine(_: int, summary: _Summary) -> None:
        sums.extend(summary.sums)
        np.minimum(low, summary.low, out=low)
        np.maximum(high, summary.high, out=high)

    task = _Summarise(points, name, allow_missing)
    # Where values may be missing they are filled in, in a copy.
    parts = ranges(n, grid_rows(d)) if allow_missing else grid_ranges(points, read_rows)
    _look_at(points, task, parts, combine, where)
    with np.errstate(over="ignore", invalid="ignore"):
        centre = np.sum(sums, axis=0) / n
        extent = high - low
    # Sums of huge values overflow; any centre will do, as long as it is the same for all.
    centre = np.where(np.isfinite(centre), centre, low / 2 + high / 2)
    reach = float(np.maximum(high / 2 - centre / 2, centre / 2 - low / 2).max())
    exponent = math.frexp(reach)[1] + 1 if reach > 0 else 0
    return Frame(centre, low, extent, exponent)


def _look_at(
    source: RowSource,
    task: engine.Task,
    parts: list[PanelRange],
    consume: Consume,
    where: engine.Executor,
) -> None:
    """Run a pass over all values."""
    n, width = source.shape
    nearby = where.nearby(n * width * source.dtype.itemsize)
    engine.map_panels(task, parts, consume, where=nearby, progress=False)


@dataclass(frozen=True)
class _Digest:
    """Panel task: the SHA-256 of each ``step`` rows of a row range, one after the other."""

    source: RowSource
    step: int

    def __call__(self, start: int, stop: int) -> bytes:
        rows = self.source.rows(start, stop)
        return b"".join(
            hashlib.sha256(rows[a:b].data).digest() for a, b in ranges(len(rows), self.step)
        )


def content_digest(source: RowSource, where: engine.Executor) -> str:
    """Fingerprint of an array's values, the same however it is stored."""
    n, width = source.shape
    whole = hashlib.sha256(repr((n, width, float_dtype(source.dtype).str)).encode())
    step = max(1, DIGEST_BYTES // (8 * width))
    # Rows that are stored together are read together.
    together = step * -(-source.chunk_rows // step)
    task = _Digest(source, step)
    _look_at(source, task, ranges(n, together), lambda _, digest: whole.update(digest), where)
    return whole.hexdigest()


def covariance(points: RowSource, frame: Frame, *, where: engine.Executor, read_rows: int) -> Block:
    """Sample covariance (ddof 1) of the points, shape (d, d), for the metrics that need it."""
    n, d = points.shape
    total = np.zeros((d, d))

    def combine(_: int, blocks: list[Block]) -> None:
        for block in blocks:
            total[:] += block

    task = _Products(points, frame.centre)
    _look_at(points, task, grid_ranges(points, read_rows), combine, where)
    return total / (n - 1)


@dataclass(frozen=True)
class _FindZeroRow:
    """Panel task: the first row of zeros in a row range, or None."""

    points: RowSource

    def __call__(self, start: int, stop: int) -> int | None:
        zero = ~self.points.rows(start, stop).any(axis=1)
        return start + int(zero.argmax()) if zero.any() else None


def refuse_zero_rows(
    points: RowSource, *, name: str, where: engine.Executor, read_rows: int
) -> None:
    """A row of zeros has no direction.

    Raises
    ------
    InputError
        Naming the first such row.
    """

    def refuse(_: int, row: int | None) -> None:
        if row is not None:
            raise InputError(
                f"{name} is zero throughout row {row} (counted from 0): it has no direction, so "
                "its cosine distance is undefined. Drop such rows, or use another metric."
            )

    task = _FindZeroRow(points)
    _look_at(points, task, grid_ranges(points, read_rows), refuse, where)


def warn_if_square(points: RowSource, name: str) -> None:
    """Points with as many features as there are points are probably a distance matrix."""
    n, d = points.shape
    if n != d or n < 3:
        return
    side = min(n, SQUARE_SAMPLE)
    corner = points.rows(0, side)[:, :side]
    hollow = not np.diagonal(corner).any()
    if hollow and (corner >= 0).all() and np.allclose(corner, corner.T):
        warn(
            f"{name} is square, symmetric and has a zero diagonal, like a distance matrix, but it "
            f'is taken as {n} points with {d} features. Did you mean metric="precomputed"?',
            LooksPrecomputedWarning,
        )


def grid_ranges(points: RowSource, read_rows: int) -> list[PanelRange]:
    """Row ranges that begin on the grid, about as long as ``read_rows``; longer where reading
    takes no memory."""
    grid = grid_rows(points.shape[1])
    step = max(grid, read_rows - read_rows % grid)
    if isinstance(points, ArrayRows) and points.dtype == float_dtype(points.dtype):
        step *= VIEWED_AT_ONCE
    return ranges(points.shape[0], step)
