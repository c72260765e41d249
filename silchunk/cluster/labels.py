"""Labels of all points while an algorithm runs, in memory or in a file that workers share."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from silchunk.cluster.points import Vector
from silchunk.disk import room_for
from silchunk.npy_files import map_npy


@dataclass(frozen=True)
class LabelVector:
    """One int32 label for each point, by one pass; tasks write disjoint ranges of it.

    Writing a range again writes the same, so a task may be repeated.
    """

    array: Vector | None
    path: str | None = None
    offset: int = 0  # of the first label in the file, in bytes

    @classmethod
    def in_memory(cls, n: int) -> LabelVector:
        return cls(np.zeros(n, np.int32))

    @classmethod
    def in_file(cls, n: int, path: Path) -> LabelVector:
        """Labels in a new ``.npy`` file, which has its room on disk from the start.

        Raises
        ------
        DiskFullError
        """
        with room_for(path, 4 * n), path.open("xb") as stream:
            header = {"descr": "<i4", "fortran_order": False, "shape": (n,)}
            np.lib.format.write_array_header_2_0(stream, header)
            offset = stream.tell()
            os.posix_fallocate(stream.fileno(), offset, 4 * n)
        return cls(None, str(path), offset)

    def renewed(self) -> LabelVector:
        """Where to put the labels of another pass, once these are not needed: a file of another
        name, since a worker that was taken for dead may yet write to this one.

        Raises
        ------
        DiskFullError
        """
        if self.path is None:
            return self
        old = Path(self.path)
        n = (old.stat().st_size - self.offset) // 4
        old.unlink()
        return LabelVector.in_file(n, old.with_name(f"labels-{uuid.uuid4().hex}.npy"))

    def read(self, start: int, stop: int) -> Vector:
        """Labels of a range of rows, not to be written to."""
        if self.array is not None:
            return self.array[start:stop]
        assert self.path is not None
        return np.fromfile(self.path, "<i4", stop - start, offset=self.offset + 4 * start)

    def room(self, start: int, stop: int) -> Vector:
        """Where to write the labels of a range of rows, before they are kept."""
        return np.empty(stop - start, np.int32) if self.array is None else self.array[start:stop]

    def keep(self, start: int, labels: Vector) -> None:
        """Put labels, written in their `room`, in their place: these bytes and no others, since
        other workers write next to them."""
        if self.path is None:
            return
        with open(self.path, "r+b", buffering=0) as stream:
            stream.seek(self.offset + 4 * start)
            stream.write(np.ascontiguousarray(labels, "<i4").data)
            os.fsync(stream.fileno())

    def whole(self) -> Vector:
        """All labels. Those in a file stay mapped from it, also when the file is deleted."""
        if self.array is not None:
            return self.array
        assert self.path is not None
        mapped: Vector = map_npy(self.path, "c")
        return mapped
