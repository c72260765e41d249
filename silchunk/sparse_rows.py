"""Sparse matrices in compressed sparse row format whose rows are handed out as dense ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from silchunk.errors import InputError
from silchunk.npy_files import map_npy
from silchunk.rows import ALL, Block, float_dtype

# Entries that are looked at together when a stored matrix is checked.
CHECKED_AT_ONCE = 1 << 20


class Vector(Protocol):
    """A one-dimensional array, wherever it lies, that hands out ranges."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __getitem__(self, entries: slice, /) -> Any: ...


@dataclass(frozen=True)
class NpyVector:
    """A vector in a ``.npy`` file, mapped anew for every read, as `NpyRows` does it."""

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def written(cls, vector: Block, path: Path) -> NpyVector:
        """A vector in memory, saved."""
        np.save(path, vector, allow_pickle=False)
        return cls(str(path), vector.shape, vector.dtype)

    def __getitem__(self, entries: slice, /) -> Block:
        return np.array(map_npy(self.path)[entries])


@dataclass(frozen=True)
class CsrRows:
    """Rows of a sparse matrix.

    Attributes
    ----------
    data, indices : (entries,)
        Values, and the column of each. Entries of one place count together.
    indptr : (n + 1,)
        Row i has the entries from ``indptr[i]`` up to ``indptr[i + 1]``.
    """

    data: Vector
    indices: Vector
    indptr: Vector
    shape: tuple[int, int]

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.data.dtype)

    @property
    def chunk_rows(self) -> int:
        """Rows of about one chunk of entries, where these are stored in chunks."""
        chunks = getattr(self.data, "chunks", None)
        if not chunks:
            return 1
        return max(1, int(chunks[0]) * self.shape[0] // max(1, self.data.shape[0]))

    @property
    def resident_bytes(self) -> int:
        vectors = (self.data, self.indices, self.indptr)
        return sum(int(vector.nbytes) for vector in vectors if isinstance(vector, np.ndarray))

    def rows(self, start: int, stop: int, columns: slice = ALL) -> Block:
        pointers = np.asarray(self.indptr[start : stop + 1]).astype(np.int64)
        entries = slice(int(pointers[0]), int(pointers[-1]))
        block = np.zeros((stop - start, self.shape[1]), float_dtype(self.dtype))
        row = np.repeat(np.arange(stop - start), np.diff(pointers))
        # Plain assignment would keep one of several entries of a place.
        np.add.at(
            block,
            (row, np.asarray(self.indices[entries])),
            np.asarray(self.data[entries]).astype(block.dtype, copy=False),
        )
        return np.ascontiguousarray(block[:, columns])

    def stored(self, scratch: Path) -> CsrRows:
        """The same in three files that other processes can map: never written as a dense matrix."""

        def kept(vector: Vector, name: str) -> Vector:
            if not isinstance(vector, np.ndarray):
                return vector
            return NpyVector.written(vector, scratch / f"input-{name}.npy")

        return CsrRows(
            kept(self.data, "data"),
            kept(self.indices, "indices"),
            kept(self.indptr, "indptr"),
            self.shape,
        )


def checked_csr(parts: Sequence[Vector], shape: tuple[int, int], described: str) -> CsrRows:
    """Rows of a stored sparse matrix, once all of its columns and pointers are in their range.

    Parameters
    ----------
    parts : data, indices and indptr, as in `CsrRows`

    Raises
    ------
    InputError
    """
    data, indices, indptr = parts
    n, width = shape
    entries = data.shape[0]
    fault = ""
    if indptr.shape != (n + 1,) or indices.shape != data.shape:
        fault = f"{indptr.shape[0]:,} pointers, {indices.shape[0]:,} columns, {entries:,} values"
    last = 0
    for start in range(0, 0 if fault else n + 1, CHECKED_AT_ONCE):
        pointers = np.asarray(indptr[start : start + CHECKED_AT_ONCE]).astype(np.int64)
        if (np.diff(pointers, prepend=last) < 0).any() or (start == 0 and pointers[0] != 0):
            fault = "its row pointers do not ascend from 0"
            break
        last = int(pointers[-1])
    if not fault and last != entries:
        fault = f"its row pointers end at {last:,} of {entries:,} entries"
    for start in range(0, 0 if fault else entries, CHECKED_AT_ONCE):
        columns = np.asarray(indices[start : start + CHECKED_AT_ONCE])
        if columns.min() < 0 or columns.max() >= width:
            fault = f"it has entries in columns that are not among its {width:,}"
            break
    if fault:
        raise InputError(f"{described} is not a sparse matrix of shape {shape}: {fault}.")
    return CsrRows(data, indices, indptr, shape)
