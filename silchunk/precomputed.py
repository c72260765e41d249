"""Checks of a distance matrix given by the user: tile by tile, each entry read once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from silchunk import engine
from silchunk.errors import InputError
from silchunk.metrics import refuse_out_of_range
from silchunk.plan import ranges
from silchunk.progress import Progress
from silchunk.rows import Block, RowSource

# Noise that is taken for rounding, in units of the largest distance.
RELATIVE_TOLERANCE = {2: 1e-2, 4: 1e-5, 8: 1e-8}


class _Extreme(NamedTuple):
    """A value and where it stands; the larger one wins, the earlier one among equals."""

    value: float
    row: int
    column: int


class _Findings(NamedTuple):
    largest: float
    negative: _Extreme  # value: how far below zero
    diagonal: _Extreme  # value: magnitude on the diagonal
    asymmetry: _Extreme  # value: |D[i, j] - D[j, i]|


@dataclass(frozen=True)
class _Inspect:
    """Panel task: rows [start, stop) from the diagonal rightwards, each tile with its mirror."""

    matrix: RowSource
    name: str
    side: int

    def __call__(self, start: int, stop: int) -> _Findings:
        found = _Findings(0.0, *(3 * [_Extreme(0.0, start, start)]))
        for first, last in ranges(self.matrix.shape[0], self.side)[start // self.side :]:
            tile = self._finite_tile(start, stop, first, last)
            found = _merge(found, _inspect_values(tile, start, first))
            if first == start:
                diagonal = np.abs(np.diagonal(tile))[:, None]
                value, row, _ = _largest(diagonal, start, start)
                found = _merge(found, found._replace(diagonal=_Extreme(value, row, row)))
                mirror = tile
            else:
                mirror = self._finite_tile(first, last, start, stop)
                found = _merge(found, _inspect_values(mirror, first, start))
            difference = np.abs(tile - mirror.T)
            found = _merge(found, found._replace(asymmetry=_largest(difference, start, first)))
        return found

    def _finite_tile(self, start: int, stop: int, first: int, last: int) -> Block:
        tile = self.matrix.rows(start, stop, slice(first, last))
        if not np.isfinite(tile).all():
            i, j = np.argwhere(~np.isfinite(tile))[0]
            raise InputError(
                f"{self.name} has {tile[i, j]} at [{start + i}, {first + j}] (counted from 0); "
                "distances must be finite."
            )
        return tile


def _inspect_values(tile: Block, row: int, column: int) -> _Findings:
    nothing = _Extreme(0.0, row, column)
    low = _largest(-tile, row, column)
    return _Findings(max(float(tile.max()), low.value), low, nothing, nothing)


def check_matrix(
    matrix: RowSource,
    *,
    name: str,
    where: engine.Executor,
    side: int,
    concurrency: int,
    progress: Progress,
    dtype: np.dtype[Any],
) -> bool:
    """Refuse what is not a distance matrix, naming the offending entry.

    Tolerances are 1e-8 (float64), 1e-5 (float32) and 1e-2 (float16) of the largest distance, and
    none for integers.

    Returns
    -------
    bool
        Whether it is symmetric to the last bit.

    Raises
    ------
    InputError
        Not square, not finite, negative, not zero on the diagonal or not symmetric.
    """
    check_square(matrix, name)
    findings: list[_Findings] = []
    engine.map_panels(
        _Inspect(matrix, name, side),
        ranges(matrix.shape[0], side),
        lambda _, found: findings.append(found),
        where=where,
        concurrency=concurrency,
        progress=progress,
        label="checking distances",
    )
    found = findings[0]
    for more in findings[1:]:
        found = _merge(found, more)
    exact = matrix.dtype.kind in "iub"
    tolerance = 0.0 if exact else RELATIVE_TOLERANCE[min(8, matrix.dtype.itemsize)] * found.largest
    remedy = "Correct it, or pass validate=False if it is known to be right."
    refuse_out_of_range(found.largest, dtype, f"{name} has distances", n=matrix.shape[0])
    if found.negative.value > tolerance:
        value, i, j = found.negative
        raise InputError(f"{name} has the negative distance {-value:g} at [{i}, {j}]. {remedy}")
    if found.diagonal.value > tolerance:
        value, i, j = found.diagonal
        raise InputError(
            f"the diagonal of {name} must be zero: its largest entry is {value:g} at [{i}, {j}], "
            f"beyond the tolerance of {tolerance:.3g}. {remedy}"
        )
    if found.asymmetry.value > tolerance:
        value, i, j = found.asymmetry
        raise InputError(
            f"{name} is not symmetric: [{i}, {j}] and [{j}, {i}] differ by {value:g}, "
            f"beyond the tolerance of {tolerance:.3g}. {remedy}"
        )
    return found.asymmetry.value == 0


def check_square(matrix: RowSource, name: str) -> None:
    """A distance matrix has as many columns as rows."""
    rows, columns = matrix.shape
    if rows != columns:
        raise InputError(
            f'with metric="precomputed", {name} must be a square distance matrix; '
            f"it has shape {(rows, columns)}."
        )


def _largest(values: Block, row: int, column: int) -> _Extreme:
    i, j = divmod(int(values.argmax()), values.shape[1])
    return _Extreme(float(values[i, j]), row + i, column + j)


def _merge(one: _Findings, other: _Findings) -> _Findings:
    def worse(a: _Extreme, b: _Extreme) -> _Extreme:
        return b if b.value > a.value else a

    return _Findings(
        max(one.largest, other.largest),
        worse(one.negative, other.negative),
        worse(one.diagonal, other.diagonal),
        worse(one.asymmetry, other.asymmetry),
    )
