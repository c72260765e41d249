"""Labels of all points while an algorithm runs, in memory or in a file that workers share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from silchunk.cluster.points import Vector


@dataclass(frozen=True)
class LabelVector:
    """One int32 label for each point; tasks write disjoint ranges of it.

    Writing a range again writes the same, so a task may be repeated.
    """

    array: Vector | None
    path: str | None = None

    @classmethod
    def in_memory(cls, n: int) -> LabelVector:
        return cls(np.zeros(n, np.int32))

    @classmethod
    def in_file(cls, n: int, path: Path) -> LabelVector:
        """Labels in a new ``.npy`` file, which takes no room before it is written."""
        mapped = np.lib.format.open_memmap(path, mode="w+", dtype=np.int32, shape=(n,))
        del mapped
        return cls(None, str(path))

    def _mapped(self, mode: Literal["r", "r+", "c"]) -> Vector:
        if self.array is not None:
            return self.array
        assert self.path is not None
        mapped: Vector = np.load(self.path, mmap_mode=mode, allow_pickle=False)
        return mapped

    def read(self, start: int, stop: int) -> Vector:
        """Labels of a range of rows, not to be written to."""
        return np.asarray(self._mapped("r")[start:stop])

    def room(self, start: int, stop: int) -> Vector:
        """Where the labels of a range of rows are to be written."""
        return np.asarray(self._mapped("r+")[start:stop])

    def whole(self) -> Vector:
        """All labels. Those in a file stay mapped from it, also when the file is deleted."""
        return self._mapped("c")
