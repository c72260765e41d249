"""Features brought to one scale while rows are read: nothing is written, nothing held."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from silchunk.errors import InputError, InputTypeError, warn
from silchunk.plan import grid_rows, ranges
from silchunk.points import as_rows
from silchunk.rows import ALL, COPY_BYTES, Block, DaskRows, RowSource, float_dtype, on_disk

Vector = np.ndarray[Any, np.dtype[Any]]

KINDS = ("standard", "robust")

# Quantiles that the robust scale is made of.
QUARTILES = (0.25, 0.5, 0.75)
# Bits of a number that one pass over the points settles, for as many features as have room.
DIGIT_BITS = 12
COUNTS_BYTES = 32 << 20
# Features named in a warning.
NAMED_AT_MOST = 8


@dataclass(frozen=True)
class ScaledRows:
    """Rows of a source, each feature less its centre and divided by its scale.

    Attributes
    ----------
    centre, scale : (d,) float64
    """

    source: RowSource
    centre: Vector
    scale: Vector

    @property
    def shape(self) -> tuple[int, int]:
        return self.source.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return float_dtype(self.source.dtype)

    @property
    def chunk_rows(self) -> int:
        return self.source.chunk_rows

    @property
    def resident_bytes(self) -> int:
        return self.source.resident_bytes

    def rows(self, start: int, stop: int, columns: slice = ALL) -> Block:
        found = self.source.rows(start, stop, columns)
        scaled = np.empty_like(found)
        centre, scale = self.centre[columns], self.scale[columns]
        # In float64 whatever they are stored in: float32 far from 0 would lose its last digits. A
        # few rows at a time, for the room that takes.
        for a, b in ranges(len(found), grid_rows(max(1, found.shape[1]))):
            scaled[a:b] = (found[a:b] - centre) / scale
        return scaled

    def stored(self, scratch: Path) -> ScaledRows:
        """The same where other processes can read it; sparse rows stay sparse there."""
        return replace(self, source=on_disk(self.source, scratch))


def scaled(X: Any, kind: str = "standard") -> ScaledRows:
    """Points whose features are brought to one scale, for every function that takes points.

    Parameters
    ----------
    X : array (n, d), path, Zarr array or store, or frame
        As for every function, but no Dask array. A sparse matrix is taken too.
    kind : "standard" or "robust"
        Less the mean and divided by the standard deviation (ddof 0); or less the median and divided
        by the interquartile range. These are what scikit-learn's ``StandardScaler`` and
        ``RobustScaler`` take.

    Returns
    -------
    ScaledRows
        Any function of this package takes it as ``X``; rows are scaled when they are read. Its
        ``centre`` and ``scale`` are (d,) float64. A feature that is the same everywhere, or whose
        interquartile range is 0, has scale 1, with a warning.

    Raises
    ------
    InputError
        X is not finite, or wrong as for every function; or there is no such kind.
    InputTypeError
        A Dask array.

    Notes
    -----
    Standard: one pass; each block's mean and squared deviations are combined by the rule of Chan,
    Golub and LeVeque (doi:10.1080/00031305.1983.10483115). The blocks do not depend on chunks,
    workers or memory, and so neither does the result. Robust: the quartiles are exact. Their bits
    are found from the first on, 12 in a pass, by counting: 6 passes for float64 and 3 for float32,
    over up to 32 MiB of counts; where that has no room for all features, as many passes again for
    the others. O(n d) time for each pass.

    Examples
    --------
    >>> from silchunk import scaled, silhouette_score
    >>> X = [[0.0, 1000.0], [1.0, 3000.0], [10.0, 1000.0], [11.0, 3000.0]]
    >>> round(silhouette_score(X, [0, 0, 1, 1]), 3)
    -0.497
    >>> round(silhouette_score(scaled(X), [0, 0, 1, 1]), 3)
    0.164
    """
    if kind not in KINDS:
        raise InputError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}.")
    source = as_rows(X, sparse=True)
    if isinstance(source, DaskRows):
        raise InputTypeError(
            "X is a Dask array, each pass over which would compute it again. Scale it there: "
            "(X - X.mean(axis=0)) / X.std(axis=0)."
        )
    centre, scale = _standard(source) if kind == "standard" else _robust(source)
    flat = np.flatnonzero(scale == 0)
    if len(flat):
        told = ", ".join(map(str, flat[:NAMED_AT_MOST]))
        more = ", ..." if len(flat) > NAMED_AT_MOST else ""
        what = "the same value throughout" if kind == "standard" else "interquartile range 0"
        warn(
            f"{len(flat):,} of the {len(scale):,} features of X have {what} and are not divided: "
            f"column{'s' * (len(flat) > 1)} {told}{more} (counted from 0)."
        )
    return ScaledRows(source, centre, np.where(scale == 0, 1.0, scale))


def _blocks(source: RowSource, columns: slice = ALL) -> Iterator[Block]:
    """All rows on a grid that the data's shape alone makes, as finite float blocks."""
    n, d = source.shape
    grid = grid_rows(d)
    step = grid * max(1, COPY_BYTES // (8 * d * grid), -(-source.chunk_rows // grid))
    for start, stop in ranges(n, step):
        rows = source.rows(start, stop, columns)
        for a, b in ranges(stop - start, grid):
            block = rows[a:b]
            if not np.isfinite(block).all():
                row, column = np.argwhere(~np.isfinite(block))[0]
                raise InputError(
                    f"X has {block[row, column]} at row {start + a + row}, column "
                    f"{(columns.start or 0) + column} (counted from 0), so that it cannot be "
                    "scaled: drop or fill such rows first."
                )
            yield block


def _standard(source: RowSource) -> tuple[Vector, Vector]:
    """Means and standard deviations (d,)."""
    d = source.shape[1]
    count, mean, squares = 0, np.zeros(d), np.zeros(d)
    low, high = np.full(d, np.inf), np.full(d, -np.inf)
    for block in _blocks(source):
        values = block.astype(np.float64, copy=False)
        own = values.mean(axis=0)
        apart = own - mean
        total = count + len(values)
        squares += ((values - own) ** 2).sum(axis=0) + apart**2 * (count * len(values) / total)
        mean += apart * (len(values) / total)
        count = total
        np.minimum(low, values.min(axis=0), out=low)
        np.maximum(high, values.max(axis=0), out=high)
    if not (np.isfinite(mean).all() and np.isfinite(squares).all()):
        raise InputError("X has values too large for their squares; divide it first.")
    # The mean of equal values may be off by rounding, which is not to be made large.
    same = low == high
    return np.where(same, low, mean), np.where(same, 0.0, np.sqrt(squares / count))


def _robust(source: RowSource) -> tuple[Vector, Vector]:
    """Medians and interquartile ranges (d,)."""
    n, d = source.shape
    places = [quantile * (n - 1) for quantile in QUARTILES]
    ranks = sorted({int(rank) for place in places for rank in (place, min(place + 1, n - 1))})
    counts_bytes = 8 * len(ranks) << DIGIT_BITS
    found = np.concatenate(
        [
            _order_statistics(source, slice(first, last), ranks)
            for first, last in ranges(d, max(1, COUNTS_BYTES // counts_bytes))
        ]
    )
    values = []
    for place in places:
        below = found[:, ranks.index(int(place))]
        above = found[:, ranks.index(min(int(place) + 1, n - 1))]
        part = place - int(place)
        # The nearer end is started from, as numpy does it.
        if part < 0.5:
            values.append(below + (above - below) * part)
        else:
            values.append(above - (above - below) * (1 - part))
    return values[1], values[2] - values[0]


def _order_statistics(source: RowSource, columns: slice, ranks: list[int]) -> Vector:
    """(d, len(ranks)) float64: the values at some ranks of each feature, exactly.

    A number's bits, as an integer, ascend as the numbers do once they are put right for the sign.
    Each pass counts the next digit of the numbers that begin like the one that is looked for.
    """
    dtype = float_dtype(source.dtype)
    unsigned: Callable[[Any], Any] = np.uint32 if dtype.itemsize == 4 else np.uint64
    bits = 8 * dtype.itemsize
    d = len(range(*columns.indices(source.shape[1])))
    begin = np.zeros((d, len(ranks)), np.uint64)  # what is known of the number looked for
    left = np.tile(np.array(ranks, np.int64), (d, 1))  # its rank among those that begin like it
    done = 0
    while done < bits:
        digit = min(DIGIT_BITS, bits - done)
        shift = np.uint64(bits - done - digit)
        counts = np.zeros((d, len(ranks), 1 << digit), np.int64)
        for block in _blocks(source, columns):
            keys = _ascending(block, unsigned).T
            for j in range(d):
                _count(keys[j], begin[j], shift, digit, counts[j])
        running = counts.cumsum(axis=2)
        chosen = (running <= left[:, :, None]).sum(axis=2)
        before = np.take_along_axis(running, np.maximum(chosen - 1, 0)[:, :, None], axis=2)[:, :, 0]
        left -= np.where(chosen > 0, before, 0)
        begin = (begin << np.uint64(digit)) | chosen.astype(np.uint64)
        done += digit
    return _numbers(begin, unsigned, dtype)


def _count(keys: Vector, begin: Vector, shift: np.uint64, digit: int, counts: Vector) -> None:
    """Count the next digit of the keys that begin like each of ``begin``."""
    heads = keys.astype(np.uint64) >> shift
    digits = (heads & np.uint64((1 << digit) - 1)).astype(np.int64)
    above = heads >> np.uint64(digit)
    for i, one in enumerate(begin):
        if i and one == begin[i - 1]:
            counts[i] = counts[i - 1]  # the same numbers: counted once in each block
            continue
        counts[i] += np.bincount(digits[above == one], minlength=1 << digit)


def _ascending(block: Block, unsigned: Any) -> Vector:
    """Finite floats as unsigned integers in the same order."""
    # -0.0 and 0.0 are one number.
    keys = np.ascontiguousarray(block + block.dtype.type(0)).view(unsigned)
    sign = unsigned(1 << (8 * keys.itemsize - 1))
    flipped: Vector = np.where(keys & sign, ~keys, keys | sign)
    return flipped


def _numbers(keys: Vector, unsigned: Any, dtype: np.dtype[Any]) -> Vector:
    """`_ascending` undone, in float64."""
    narrow = keys.astype(unsigned)
    sign = unsigned(1 << (8 * narrow.itemsize - 1))
    bits = np.where(narrow & sign, narrow & ~sign, ~narrow)
    numbers: Vector = np.ascontiguousarray(bits).view(dtype).astype(np.float64)
    return numbers
