"""Two-dimensional arrays of any kind that hand out row ranges.

Points (n × d) and distance matrices (n × n) lie in memory, in ``.npy`` files, in Zarr arrays or in
Dask arrays that are still to be computed; nothing above this module knows which.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from silchunk.errors import DiskFullError, OverBudgetError
from silchunk.npy_files import map_npy

if TYPE_CHECKING:
    import zarr

Block = np.ndarray[Any, np.dtype[Any]]

ALL = slice(None)

# Errors of reading that are of a known kind, whichever library they are from.
PASSED_ON = (OSError, ValueError, TypeError, LookupError, MemoryError)

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
    relative_error: float = 0.0  # of distances, as they were stored where they were copied from
    read_with: str = ""  # the library that read them, where they were copied from another file

    @property
    def chunk_rows(self) -> int:
        return 1

    @property
    def resident_bytes(self) -> int:
        return 0

    def rows(self, start: int, stop: int, columns: slice = ALL) -> Block:
        mapped = map_npy(self.path)
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
        from silchunk.zarr_arrays import lives_in_memory

        return int(self.array.nbytes) if lives_in_memory(self.array) else 0

    @property
    def relative_error(self) -> float:
        """Largest relative error of a distance, where these are those of a distance store."""
        from silchunk.zarr_arrays import relative_error

        return relative_error(self.array)

    def rows(self, start: int, stop: int, columns: slice = ALL) -> Block:
        try:
            block = self.array[start:stop, columns]
        except Exception as error:
            if type(error).__module__ == "builtins" or isinstance(error, PASSED_ON):
                raise
            # Each library of a kind of store has errors of its own, which others do not know to be
            # failed reads, and which may not travel from one process to another.
            raise OSError(
                f"rows {start:,} to {stop:,} of {self.array.store_path} cannot be read: "
                f"{type(error).__name__}: {error}"
            ) from error
        return _as_float(block)


@dataclass(frozen=True)
class SelectedRows:
    """Some rows of a source, and of a distance matrix the same columns."""

    source: RowSource
    index: Block  # (m,) int64, ascending
    columns_too: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.index), len(self.index) if self.columns_too else self.source.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.source.dtype

    @property
    def chunk_rows(self) -> int:
        return self.source.chunk_rows

    @property
    def resident_bytes(self) -> int:
        return self.source.resident_bytes

    @property
    def relative_error(self) -> float:
        """Largest relative error that the source's distances were stored with."""
        return float(getattr(self.source, "relative_error", 0.0))

    def rows(self, start: int, stop: int, columns: slice = ALL) -> Block:
        wanted = self.index[start:stop]
        # Few at a time: rows that are wanted may lie far apart.
        step = self.chunk_rows * max(1, len(wanted) // self.chunk_rows)
        blocks = wanted // step
        pieces = [self._some(wanted[blocks == block], columns) for block in np.unique(blocks)]
        return np.ascontiguousarray(np.concatenate(pieces))

    def _some(self, wanted: Block, columns: slice) -> Block:
        first, last = int(wanted[0]), int(wanted[-1])
        if self.columns_too:
            of_matrix = self.source.rows(first, last + 1)
            chosen: Block = of_matrix[np.ix_(wanted - first, self.index[columns])]
        else:
            chosen = self.source.rows(first, last + 1, columns)[wanted - first]
        return chosen


@dataclass(frozen=True)
class DaskRows:
    """A Dask array that has not been computed yet; `computed` does that once."""

    array: Any

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.array.shape[0]), int(self.array.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = np.dtype(self.array.dtype)
        return dtype

    @property
    def chunk_rows(self) -> int:
        return int(max(self.array.chunks[0]))

    @property
    def resident_bytes(self) -> int:
        return 0

    def rows(self, start: int, stop: int, columns: slice = ALL) -> Block:
        return _as_float(self.array[start:stop, columns].compute())

    def computed(self, scratch: Path, memory_bytes: int, name: str = "X") -> RowSource:
        """Every block computed once: into memory where that has room, else into a file.

        Rows read from the graph itself would run it again for each panel.

        Raises
        ------
        OverBudgetError
            If one block is too large to pass through memory.
        DiskFullError
            If the file does not fit below ``scratch``.
        """
        n, width = self.shape
        dtype = float_dtype(self.dtype)
        nbytes = n * width * dtype.itemsize
        block_bytes = self.chunk_rows * max(self.array.chunks[1]) * 8
        if 2 * block_bytes > max(memory_bytes, COPY_BYTES):
            raise OverBudgetError(
                f"the blocks of the Dask array {name} have up to {block_bytes:,} bytes, of which "
                f"the budget allows half of {max(memory_bytes, COPY_BYTES):,}. Raise memory=, or "
                "rechunk the array."
            )
        target: Block
        if nbytes <= memory_bytes:
            target = np.empty((n, width), dtype)
        else:
            free = shutil.disk_usage(scratch).free
            if nbytes > free:
                raise DiskFullError(
                    f"{name} is a Dask array of {nbytes:,} bytes, more than the memory budget, "
                    f"and {scratch} has {free:,} bytes free to keep it. Write it to Zarr with "
                    "dask.array.to_zarr and pass the path, or set Dask's temporary-directory."
                )
            target = np.lib.format.open_memmap(
                scratch / f"{name}-dask.npy", mode="w+", dtype=dtype, shape=(n, width)
            )
        rows = np.cumsum([0, *self.array.chunks[0]]).tolist()
        columns = np.cumsum([0, *self.array.chunks[1]]).tolist()
        for i, j in np.ndindex(len(rows) - 1, len(columns) - 1):
            place = slice(rows[i], rows[i + 1]), slice(columns[j], columns[j + 1])
            if rows[i] < rows[i + 1] and columns[j] < columns[j + 1]:
                target[place] = self.array.blocks[i, j].compute()
        if isinstance(target, np.memmap):
            target.flush()
            return NpyRows(str(target.filename), (n, width), dtype)
        return ArrayRows(target)


@dataclass(frozen=True)
class RememberedRows:
    """Rows of a source, each held in RAM from the first time that it is read.

    So the first pass over them, in which several tasks read at once, is the only one that reads.
    """

    source: RowSource
    array: Block  # (n, d) of the dtype that rows are read in
    known: Block  # (n,) bool, whether a row is there

    @classmethod
    def of(cls, source: RowSource) -> RememberedRows:
        """Of a source none of whose rows has been read."""
        n = source.shape[0]
        return cls(source, np.empty(source.shape, float_dtype(source.dtype)), np.zeros(n, bool))

    @property
    def shape(self) -> tuple[int, int]:
        return self.source.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    @property
    def chunk_rows(self) -> int:
        return self.source.chunk_rows

    @property
    def resident_bytes(self) -> int:
        return int(self.array.nbytes)

    def rows(self, start: int, stop: int, columns: slice = ALL) -> Block:
        if not self.known[start:stop].all():
            self.array[start:stop] = self.source.rows(start, stop)
            self.known[start:stop] = True
        return np.ascontiguousarray(self.array[start:stop, columns])


def in_memory(source: RowSource) -> RowSource:
    """The same rows held as one array in RAM, in their stored dtype where that is a float."""
    if isinstance(source, ArrayRows):
        return source
    if isinstance(source, RememberedRows):
        for start, stop in _copy_ranges(source):
            source.rows(start, stop)
        return ArrayRows(source.array)
    n, width = source.shape
    array = np.empty((n, width), float_dtype(source.dtype))
    for start, stop in _copy_ranges(source):
        array[start:stop] = source.rows(start, stop)
    return ArrayRows(array)


def reordered(source: RowSource, order: Block) -> RowSource:
    """The rows at ``order`` (m,), held as one array in RAM."""
    if isinstance(source, ArrayRows):
        return ArrayRows(np.ascontiguousarray(_as_float(source.array[order])))
    n, width = source.shape
    place = np.full(n, -1)
    place[order] = np.arange(len(order))
    array = np.empty((len(order), width), float_dtype(source.dtype))
    for start, stop in _copy_ranges(source):
        to = place[start:stop]
        array[to[to >= 0]] = source.rows(start, stop)[to >= 0]
    return ArrayRows(array)


def on_disk(source: RowSource, scratch: Path) -> RowSource:
    """The same rows where another process on a shared file system can read them."""
    if not source.resident_bytes:
        return source
    stored: Callable[[Path], RowSource] | None = getattr(source, "stored", None)
    if stored is not None:  # it knows a better way than to write all of its rows
        return stored(scratch)
    return copy_to_npy(source, scratch / "input.npy")


def copy_to_npy(source: RowSource, path: Path) -> NpyRows:
    """Write all rows to a ``.npy`` file, a few at a time."""
    dtype = float_dtype(source.dtype)
    with path.open("wb") as stream:
        header = {"descr": dtype.str, "fortran_order": False, "shape": source.shape}
        np.lib.format.write_array_header_2_0(stream, header)
        for start, stop in _copy_ranges(source):
            stream.write(source.rows(start, stop).data)  # tofile hides why a write failed
    return NpyRows(str(path), source.shape, dtype, getattr(source, "relative_error", 0.0))


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
