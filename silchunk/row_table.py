"""A result with many numbers for each point: in memory where it is small, else in a file."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path

import numpy as np

from silchunk.disk import room_for
from silchunk.npy_files import map_npy
from silchunk.rows import ArrayRows, Block, NpyRows, RowSource


class RowTable:
    """A float64 table (n, c) that grows by rows, in memory or in a file."""

    def __init__(self, columns: int, path: Path | None, n: int) -> None:
        self.shape = n, columns
        self.path = path
        self.filled = 0
        self.array = np.empty(self.shape) if path is None else np.empty(0)
        if path is not None:
            with path.open("wb") as stream:
                header = {"descr": "<f8", "fortran_order": False, "shape": self.shape}
                np.lib.format.write_array_header_2_0(stream, header)

    def append(self, rows: Block) -> None:
        """Add the next rows (r, c)."""
        if self.path is None:
            self.array[self.filled : self.filled + len(rows)] = rows
        else:
            with room_for(self.path, rows.nbytes), self.path.open("ab") as stream:
                stream.write(np.ascontiguousarray(rows, "<f8").data)
        self.filled += len(rows)

    def whole(self) -> Block:
        """All of it; what is in a file stays mapped from it, also when the file is deleted."""
        return self.array if self.path is None else map_npy(self.path, "c")

    @property
    def source(self) -> RowSource:
        """The whole of it, to be read by row ranges."""
        if self.path is None:
            return ArrayRows(self.array)
        return NpyRows(str(self.path), self.shape, np.dtype(np.float64))


class Folder:
    """A temporary folder that goes, with what is in it, when nothing refers to it any more."""

    def __init__(self, parent: Path) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="silchunk-", dir=parent))
        # tempfile.TemporaryDirectory warns whenever it is not closed by hand.
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def kept_rows(table: RowTable) -> tuple[RowSource, Folder | None]:
    """The rows of a job's table, and the folder that keeps them beyond the job where they are in a
    file."""
    if table.path is None:
        return table.source, None
    folder = Folder(table.path.parent.parent)
    path = folder.path / table.path.name
    shutil.move(table.path, path)
    return NpyRows(str(path), table.shape, np.dtype(np.float64)), folder
