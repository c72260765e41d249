"""A distance matrix that is kept: an n × n Zarr array on disk, verified as it is read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.storage import LocalStore

from silchunk import journal, shard, storage
from silchunk.engine import Scheduler, arrays
from silchunk.errors import DamagedStoreError, InputError
from silchunk.plan import format_bytes
from silchunk.progress import Progress
from silchunk.readers import split
from silchunk.rows import ALL, Block
from silchunk.storage import Layout, is_store, layout_of, local_path, read_metadata, read_shard
from silchunk.verify import Verification, verify_distances
from silchunk.zarr_arrays import unwrapped


@dataclass(frozen=True)
class DistanceMatrix:
    """A sealed distance store, read row by row; nothing is held in memory.

    Made by `build_distances`, `import_distances` or `open_distances`. Every function that takes
    ``metric="precomputed"`` takes it, or its path, as ``X``.

    Attributes
    ----------
    path : str
        The folder.
    header : dict
        What the store was built from: metric, fingerprint, versions and more.
    """

    path: str
    header: Mapping[str, Any] = field(repr=False, compare=False)
    _journal: journal.Journal = field(repr=False, compare=False)

    @property
    def n(self) -> int:
        """Number of points."""
        return int(self.header["n"])

    @property
    def shape(self) -> tuple[int, int]:
        """(n, n)."""
        return self.n, self.n

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64."""
        return self.layout.dtype

    @property
    def metric(self) -> str:
        """Name of the metric, or "precomputed" for an imported matrix."""
        return str(self.header["metric"])

    @property
    def relative_error(self) -> float:
        """Largest relative error of a distance by rounding to ``keep_bits``; 0 without."""
        return float(self.header["relative_error"])

    @property
    def layout(self) -> Layout:
        """How the matrix lies in its files."""
        return layout_of(self.header)

    @property
    def chunk_rows(self) -> int:
        """Rows that are stored together."""
        return self.layout.panel_rows

    @property
    def resident_bytes(self) -> int:
        """Bytes held in memory between reads."""
        return 0

    @property
    def nbytes_stored(self) -> int:
        """Bytes of the panels on disk."""
        return sum(record.nbytes for record in self._journal.panels.values())

    def rows(self, start: int, stop: int, columns: slice = ALL) -> Block:
        """Rows [start, stop) as an array of shape (stop - start, n), or a range of their columns.

        Raises
        ------
        DamagedStoreError
            If a panel is missing or is not as it was written; names the panel and its file.
        """
        if not 0 <= start <= stop <= self.n:
            raise InputError(f"rows {start} to {stop} are not within 0 to {self.n}.")
        whole = np.empty((stop - start, self.n), self.dtype)
        self.read(start, stop, whole)
        return whole if columns == ALL else whole[:, columns].copy()

    def read(self, start: int, stop: int, out: Block) -> None:
        """Fill ``out`` (stop - start, n) with rows [start, stop), each panel checked as it is read.

        Raises
        ------
        DamagedStoreError
        """
        layout = self.layout
        for panel in range(start // layout.panel_rows, -(-stop // layout.panel_rows)):
            own_start, own_stop = layout.rows_of(panel)
            a, b = max(start, own_start), min(stop, own_stop)
            part = out[a - start : b - start]
            whole = (a, b) == (own_start, own_stop)
            distances = part if whole else np.empty((own_stop - own_start, self.n), self.dtype)
            try:
                content = read_shard(self.path, self._journal, panel)
            except DamagedStoreError as error:
                raise DamagedStoreError(
                    f"{error} Run: silchunk verify --repair {self.path}, or "
                    "DistanceMatrix.verify(repair=True)."
                ) from error
            shard.decode(content, layout.chunk_columns, layout.panel_rows, distances)
            if not whole:
                part[:] = distances[a - own_start : b - own_start]
        if out.size and not np.isfinite(out.max()):
            # Checksums hold, so this is how it was written: a fault of ours, never to be hidden.
            raise DamagedStoreError(f"{self.path} holds values that are not finite.")

    def to_dask(self) -> Any:
        """The matrix as a Dask array, a chunk for each panel; read when it is computed.

        Distances as stored: what `relative_error` says of them does not travel with the array.
        """
        return arrays.rows_as_dask(self, self.layout.panel_rows)

    def verify(
        self,
        repair: bool = False,
        *,
        X: Any = None,
        memory: int | str | None = None,
        progress: Progress = None,
        scheduler: Scheduler = None,
    ) -> Verification:
        """Read every file of the store against its checksums; see `verify_distances`."""
        return verify_distances(
            self.path, repair, X=X, memory=memory, progress=progress, scheduler=scheduler
        )

    def __fspath__(self) -> str:
        return self.path

    def __reduce__(self) -> tuple[Any, ...]:
        # Other processes open the store themselves: a path is all that travels.
        return open_distances, (self.path,)

    def __repr__(self) -> str:
        raw = self.n * self.n * self.dtype.itemsize
        stored = self.nbytes_stored
        bits = self.header["keep_bits"]
        rounding = "" if bits is None else f", {bits} mantissa bits kept"
        return (
            f"DistanceMatrix {self.path}: {self.n:,} x {self.n:,} {self.metric} distances, "
            f"{self.dtype}{rounding}\n"
            f"  {format_bytes(stored)} on disk in {self.layout.n_panels:,} panels of "
            f"{self.layout.panel_rows:,} rows, {raw / max(1, stored):.2f} times smaller than raw"
        )


def open_distances(store: str | os.PathLike[str]) -> DistanceMatrix:
    """Open a sealed distance store for reading.

    Parameters
    ----------
    store : path
        Folder made by `build_distances` or `import_distances`.

    Raises
    ------
    InputNotFoundError
        No such folder.
    ForeignStoreError
        Not a silchunk store, or a symbolic link.
    UnsealedStoreError
        Its build has not ended.
    DamagedStoreError
        Its metadata or journal are not as they were written.
    """
    path = local_path(store)
    header, records = read_metadata(path)
    if records.damaged_lines:
        raise DamagedStoreError(
            f"{records.path} is damaged in line {records.damaged_lines[0]}. "
            f"Run: silchunk verify --repair {path}"
        )
    storage.refuse_unsealed(path, records)
    return DistanceMatrix(str(path), header, records)


def folder_of(X: Any) -> Path | None:
    """The folder on this machine that ``X`` names, is stored in, or was opened from, if any."""
    if isinstance(X, zarr.Array):
        root = folder_of(unwrapped(X.store))
        return None if root is None else root / X.path
    if isinstance(X, LocalStore):
        return Path(X.root)
    if not isinstance(X, (str, os.PathLike)):
        return None
    text = os.fspath(X)
    elsewhere = storage.ADDRESS.match(text) and not text.startswith("file://")
    return None if elsewhere else local_path(split(text)[0])


def files_of(source: Any) -> Iterator[str | os.PathLike[str]]:
    """Files and folders on this machine that rows, or what they are made of, are read from."""
    if isinstance(source, zarr.Array):
        if (folder := folder_of(source)) is not None:
            yield folder
    elif is_dataclass(source):
        if path := getattr(source, "path", None):
            yield path
        for part in fields(source):
            yield from files_of(getattr(source, part.name))


def find_store(X: Any) -> DistanceMatrix | None:
    """The distance store that ``X`` is, names or was opened from, if it is one."""
    if isinstance(X, DistanceMatrix):
        return X
    folder = folder_of(X)
    return open_distances(folder) if folder is not None and is_store(folder) else None
