"""Condensed distance matrices: one entry for each pair, as scipy's ``pdist`` gives them."""

from __future__ import annotations

import copy
import math
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from silchunk.errors import InputError, InputNotFoundError
from silchunk.npy_files import map_npy
from silchunk.rows import ALL, Block, float_dtype

# Entries copied at once.
COPY_ENTRIES = 1 << 22


@dataclass(frozen=True)
class CondensedRows:
    """A condensed matrix seen as the rows of the square one."""

    n: int
    dtype: np.dtype[Any]
    values: Block | None  # (n (n - 1) / 2,), or
    path: str | None  # the .npy file that holds them, mapped anew for every read

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.n

    @property
    def chunk_rows(self) -> int:
        return 1

    @property
    def resident_bytes(self) -> int:
        return 0 if self.values is None else int(self.values.nbytes)

    def rows(self, start: int, stop: int, columns: slice = ALL) -> Block:
        values = self.values
        if values is None:
            values = map_npy(str(self.path))
        first, last, _ = columns.indices(self.n)
        out = np.zeros((stop - start, last - first), float_dtype(self.dtype))
        for i in range(start, stop):
            # Right of the diagonal, a row's entries lie side by side.
            a = max(i + 1, first)
            if a < last:
                place = self._place(i, a)
                out[i - start, a - first :] = values[place : place + last - a]
        for j in range(first, min(last, stop)):
            # Left of it, a column's do: they are row j's entries for these rows.
            a = max(j + 1, start)
            if a < stop:
                place = self._place(j, a)
                out[a - start :, j - first] = values[place : place + stop - a]
        return out

    def _place(self, i: int, j: int) -> int:
        """Position of the pair i < j."""
        return self.n * i - i * (i + 1) // 2 + j - i - 1


def condensed_rows(X: Any, scratch: Path, *, as_file: bool) -> CondensedRows | None:
    """See a one-dimensional input as a square matrix; None if it is not one-dimensional.

    With ``as_file``, values in memory are written below ``scratch`` for other processes to read.

    Raises
    ------
    InputError
        If its length is not n (n - 1) / 2 for any n.
    """
    values, path = X, None
    if isinstance(X, (str, os.PathLike)) and os.fspath(X).endswith(".npy") and os.path.isfile(X):
        with suppress(ValueError, EOFError):  # who opens it as a matrix says what it is
            values = map_npy(X)
            path = os.path.abspath(X)
    elif isinstance(X, (str, os.PathLike)) and ("://" in os.fspath(X) or os.path.isdir(X)):
        from silchunk.zarr_arrays import open_zarr

        with suppress(InputError, InputNotFoundError):  # raised again where it is read as a square
            values = open_zarr(os.fspath(X), "X", os.fspath(X))
    elif isinstance(X, (list, tuple, range)) and len(X) and np.ndim(X[0]) == 0:
        values = np.asarray(X)
    if len(getattr(values, "shape", ())) != 1:
        return None
    if type(values).__module__.split(".")[0] == "zarr":
        from silchunk.zarr_arrays import checked

        named = isinstance(X, (str, os.PathLike))
        values = checked(values, "X", os.fspath(X) if named else "the given Array")
    if np.isnan(values.shape[0]):
        values = copy.copy(values).compute_chunk_sizes()  # of Dask; a copy, since it fills them in
    length, dtype = int(values.shape[0]), np.dtype(values.dtype)
    n = (1 + math.isqrt(1 + 8 * length)) // 2
    if n * (n - 1) // 2 != length or n < 2:
        raise InputError(
            f"a condensed matrix has n (n - 1) / 2 entries, one for each pair; got {length:,}."
        )
    if dtype.kind not in "fiub":
        raise InputError(f"distances must be real numbers; the dtype is {dtype}.")
    if path is None and (as_file or not isinstance(values, np.ndarray)):
        # Zarr and Dask too: rows are gathered from all over, which takes a file that can be mapped.
        path = str(scratch / "condensed.npy")
        mapped = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(length,))
        for start in range(0, length, COPY_ENTRIES):
            mapped[start : start + COPY_ENTRIES] = np.asarray(values[start : start + COPY_ENTRIES])
        mapped.flush()
    return CondensedRows(n, dtype, values if path is None else None, path)
