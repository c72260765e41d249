"""Two-dimensional input of any kind in one checked form that is read by row range.

Points (n × d) and distance matrices (n × n) come in as NumPy arrays, ``.npy`` files, Zarr arrays,
Zarr stores, Dask arrays or anything array-like. `as_rows` turns each into a `RowSource`; nothing
above this module knows which kind it was.
"""

from __future__ import annotations

import copy
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from silchunk.errors import InputError, InputNotFoundError, InputTypeError

if TYPE_CHECKING:
    import zarr

log = logging.getLogger("silchunk")

Block = np.ndarray[Any, np.dtype[Any]]

ALL = slice(None)

# Rows copied at once when a source is moved; keeps the copy's own memory small.
COPY_BYTES = 16 << 20


@runtime_checkable
class RowSource(Protocol):
    """A two-dimensional array that hands out row ranges."""

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the stored values; `rows` returns floats."""

    @property
    def chunk_rows(self) -> int:
        """Rows that are cheapest to read together: 1 where any range is as good."""

    @property
    def resident_bytes(self) -> int:
        """Bytes the source holds in RAM between reads."""

    def rows(self, start: int, stop: int, columns: slice = ALL) -> Block:
        """Rows [start, stop), all columns or a range of them, as a C-contiguous float32 or
        float64 array that is never to be written to."""


def float_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """float32 stays float32; every other numeric dtype is computed in float64."""
    return np.dtype(np.float32) if dtype == np.float32 else np.dtype(np.float64)


def _as_float(block: Any) -> Block:
    array = np.asarray(block)
    return np.ascontiguousarray(array, dtype=float_dtype(array.dtype))


@dataclass(frozen=True)
class ArrayRows:
    """Rows of an array in memory, never copied as a whole."""

    array: Block

    @property
    def shape(self) -> tuple[int, int]:
        return self.array.shape[0], self.array.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    @property
    def chunk_rows(self) -> int:
        return 1

    @property
    def resident_bytes(self) -> int:
        return int(self.array.nbytes)

    def rows(self, start: int, stop: int, columns: slice = ALL) -> Block:
        return _as_float(self.array[start:stop, columns])


@dataclass(frozen=True)
class NpyRows:
    """Rows of a ``.npy`` file.

    The file is mapped anew for every read: pages of a mapping that stays open would count as this
    process's memory until the system takes them back.
    """

    path: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]

    @property
    def chunk_rows(self) -> int:
        return 1

    @property
    def resident_bytes(self) -> int:
        return 0

    def rows(self, start: int, stop: int, columns: slice = ALL) -> Block:
        mapped = _map_npy(self.path)
        block = np.array(mapped[start:stop, columns], dtype=float_dtype(self.dtype), order="C")
        del mapped
        return block


@dataclass(frozen=True)
class ZarrRows:
    """Rows of a Zarr array (format 2 or 3, sharded or not)."""

    array: zarr.Array[Any]

    @property
    def shape(self) -> tuple[int, int]:
        return self.array.shape[0], self.array.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.array.dtype)

    @property
    def chunk_rows(self) -> int:
        # Inner chunks of a shard are readable one by one, so they are what counts.
        return int(self.array.chunks[0])

    @property
    def resident_bytes(self) -> int:
        return int(self.array.nbytes) if _lives_in_memory(self.array) else 0

    def rows(self, start: int, stop: int, columns: slice = ALL) -> Block:
        return _as_float(self.array[start:stop, columns])


def as_rows(X: Any, *, name: str = "X", scratch: Path, memory_bytes: int) -> RowSource:
    """Bring ``X`` into the one checked form.

    Parameters
    ----------
    X : array of shape (n_rows, n_columns), path, Zarr array or store, or Dask array
        Numeric, dense and two-dimensional. A Dask array is computed once: into memory where it
        fits into ``memory_bytes``, otherwise block by block into a file below ``scratch``.
    name : str
        How messages call the argument.
    scratch : Path
        Existing folder for that file; whoever made it deletes it.
    memory_bytes : int
        Largest array, in bytes, that may be held in RAM as a whole.

    Returns
    -------
    RowSource

    Raises
    ------
    InputError
        Not two-dimensional, empty, not numeric, or masked.
    InputTypeError
        Sparse, or of a kind that cannot be read.
    InputNotFoundError
        A path that does not exist.
    """
    source: RowSource
    if isinstance(X, RowSource):
        source = X
    elif isinstance(X, (str, os.PathLike)):
        source = _open_path(os.fspath(X), name)
    elif _is_sparse(X):
        raise InputTypeError(
            f"{name} is a sparse matrix ({type(X).__name__}): a missing entry is not a distance of "
            "zero, and points are read as dense rows. Pass a dense array, e.g. X.toarray() or a "
            "dimensionality-reduced version of it."
        )
    elif _is_dask(X):
        source = _materialise_dask(X, name, scratch, memory_bytes)
    elif type(X).__module__.split(".")[0] == "zarr":
        source = _open_zarr(X, name, f"the given {type(X).__name__}")
    else:
        source = _from_array_like(X, name)
    _check_numeric(source.dtype, name)
    if 0 in source.shape:
        raise InputError(f"{name} is empty: its shape is {source.shape}.")
    return source


def in_memory(source: RowSource) -> RowSource:
    """The same rows held as one array in RAM, in their stored dtype where that is a float."""
    if isinstance(source, ArrayRows):
        return source
    n, width = source.shape
    array = np.empty((n, width), float_dtype(source.dtype))
    for start, stop in _copy_ranges(source):
        array[start:stop] = source.rows(start, stop)
    return ArrayRows(array)


def on_disk(source: RowSource, scratch: Path) -> RowSource:
    """The same rows where another process on a shared file system can read them."""
    if not source.resident_bytes:
        return source
    return copy_to_npy(source, scratch / "input.npy")


def copy_to_npy(source: RowSource, path: Path) -> NpyRows:
    """Write all rows to a ``.npy`` file, a few at a time."""
    dtype = float_dtype(source.dtype)
    with path.open("wb") as stream:
        header = {"descr": dtype.str, "fortran_order": False, "shape": source.shape}
        np.lib.format.write_array_header_2_0(stream, header)
        for start, stop in _copy_ranges(source):
            stream.write(source.rows(start, stop).data)  # tofile hides why a write failed
    return NpyRows(str(path), source.shape, dtype)


@contextmanager
def scratch_folder(parent: str | None) -> Iterator[Path]:
    """A private folder for files that live as long as one call; ``parent`` None: the system's."""
    folder = Path(tempfile.mkdtemp(prefix="silchunk-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copy_ranges(source: RowSource) -> Iterator[tuple[int, int]]:
    n, width = source.shape
    step = max(1, COPY_BYTES // (width * 8))
    step = max(step, source.chunk_rows)
    for start in range(0, n, step):
        yield start, min(n, start + step)


def _map_npy(path: str) -> Block:
    mapped: Block = np.load(path, mmap_mode="r", allow_pickle=False)
    return mapped


def _open_path(path: str, name: str) -> RowSource:
    if "://" in path:
        return _open_zarr(path, name, path)
    if not os.path.exists(path):
        raise InputNotFoundError(f"{name}: there is no file or folder {path!r}.")
    if os.path.isdir(path):
        return _open_zarr(path, name, path)
    if path.endswith(".zip"):
        from zarr.storage import ZipStore

        return _open_zarr(ZipStore(path, mode="r"), name, path)
    if not path.endswith(".npy"):
        raise InputTypeError(
            f"{name}: {path!r} is of a kind that silchunk does not read; it reads .npy files and "
            "Zarr arrays (a folder, a path into a group, or a .zip)."
        )
    try:
        mapped = _map_npy(path)
    except ValueError as error:
        raise InputError(f"{name}: {path!r} is not a readable .npy file: {error}") from error
    _check_two_dimensional(mapped.shape, name)
    return NpyRows(os.path.abspath(path), (mapped.shape[0], mapped.shape[1]), mapped.dtype)


def _open_zarr(target: Any, name: str, described: str) -> RowSource:
    import zarr

    if isinstance(target, zarr.Array):
        opened: Any = target
    elif isinstance(target, zarr.Group):
        opened = target
    else:
        try:
            opened = zarr.open(target, mode="r")
        except (FileNotFoundError, ValueError, KeyError) as error:
            raise InputError(
                f"{name}: {described} holds no readable Zarr array: {error}"
            ) from error
    if isinstance(opened, zarr.Group):
        inside = ", ".join(sorted(opened.keys())) or "nothing"
        raise InputError(
            f"{name}: {described} is a Zarr group; give the path of one of its arrays. "
            f"It holds: {inside}."
        )
    _check_two_dimensional(opened.shape, name)
    return ZarrRows(opened)


def _lives_in_memory(array: zarr.Array[Any]) -> bool:
    from zarr.storage import MemoryStore

    return isinstance(array.store, MemoryStore)


def _is_sparse(X: Any) -> bool:
    return type(X).__module__.split(".")[0] in {"scipy", "sparse"} and hasattr(X, "nnz")


def _is_dask(X: Any) -> bool:
    # By shape of the interface: only the engine imports Dask.
    return all(hasattr(X, part) for part in ("dask", "chunks", "blocks", "compute"))


def _materialise_dask(X: Any, name: str, scratch: Path, memory_bytes: int) -> RowSource:
    """Compute every block once: a panel-wise read would run the graph again for each panel."""
    _check_two_dimensional(X.shape, name)
    if any(np.isnan(size) for size in X.shape):
        X = copy.copy(X).compute_chunk_sizes()  # a copy: it fills in the sizes in place
        log.info("%s: computed the unknown chunk lengths of the Dask array: %s", name, X.chunks[0])
    _check_numeric(X.dtype, name)
    shape = int(X.shape[0]), int(X.shape[1])
    dtype = float_dtype(X.dtype)
    nbytes = shape[0] * shape[1] * dtype.itemsize
    target: Block
    if nbytes <= memory_bytes:
        target = np.empty(shape, dtype)
    else:
        free = shutil.disk_usage(scratch).free
        if nbytes > free:
            raise InputError(
                f"{name} is a Dask array of {nbytes:,} bytes, more than the memory budget, and "
                f"{scratch} has {free:,} bytes free to keep it. Write it to Zarr with "
                "dask.array.to_zarr and pass the path, or set Dask's temporary-directory."
            )
        target = np.lib.format.open_memmap(
            scratch / f"{name}-dask.npy", mode="w+", dtype=dtype, shape=shape
        )
    start = 0
    for index, rows in enumerate(X.chunks[0]):
        if rows:
            target[start : start + rows] = X.blocks[index].compute()
        start += rows
    if isinstance(target, np.memmap):
        target.flush()
        return NpyRows(str(target.filename), shape, dtype)
    return ArrayRows(target)


def _from_array_like(X: Any, name: str) -> RowSource:
    if np.ma.isMaskedArray(X) and np.ma.is_masked(X):
        raise InputError(f"{name} is a masked array with masked entries; fill or drop them first.")
    try:
        array = np.asarray(X)
    except ValueError as error:
        raise InputError(f"{name} cannot be read as an array: {error}") from error
    _check_two_dimensional(array.shape, name)
    return ArrayRows(array)


def _check_two_dimensional(shape: tuple[int, ...], name: str) -> None:
    if len(shape) != 2:
        hint = " Were labels passed in its place?" if len(shape) == 1 else ""
        raise InputError(
            f"{name} must be 2-D, one row per point; it has shape {tuple(shape)}.{hint} "
            "A single feature needs X.reshape(-1, 1)."
        )


def _check_numeric(dtype: np.dtype[Any], name: str) -> None:
    if dtype.kind not in "fiub":
        raise InputError(f"{name} must be real numbers; its dtype is {dtype}.")
