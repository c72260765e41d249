"""A task as it travels to workers: its arrays lie in files, so that every message stays small.

The files are plain ``.npy``; what is pickled travels and is never written.
"""

from __future__ import annotations

import io
import pickle
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from silchunk.npy_files import load_npy

# Smaller arrays travel with the task.
LARGEST_BYTES = 1024
# Reads that failed are tried again this often; nothing else is worth repeating.
READ_RETRIES = 2
RETRY_SECONDS = 0.1

_lock = threading.Lock()
_unpacked: dict[str, Callable[..., Any]] = {}


@dataclass(frozen=True)
class Parcel:
    """A callable that unpacks itself once in each process that calls it.

    Attributes
    ----------
    name : str
        Unlike that of any other.
    content : bytes
        The pickled callable, with numbers in place of arrays.
    folder : str
        Where array ``i`` is in ``i.npy``; the workers must see it.
    """

    name: str
    content: bytes
    folder: str

    def __call__(self, *arguments: Any) -> Any:
        with _lock:
            task = _unpacked.get(self.name)
            if task is None:
                task = _unpacked[self.name] = self._unpack()
        return task(*arguments)

    def _unpack(self) -> Callable[..., Any]:
        for tries_left in range(READ_RETRIES, -1, -1):
            try:
                unpickler = _Unpickler(io.BytesIO(self.content), Path(self.folder))
                unpacked: Callable[..., Any] = unpickler.load()
                return unpacked
            except OSError:
                if not tries_left:
                    raise
                time.sleep(RETRY_SECONDS)
        raise AssertionError("unreachable")


def packed(task: Callable[..., Any], folder: Path) -> Parcel:
    """``task``, its arrays written to ``folder``."""
    stream = io.BytesIO()
    _Pickler(stream, folder).dump(task)
    return Parcel(uuid.uuid4().hex, stream.getvalue(), str(folder))


def forget() -> None:
    """Drop what was unpacked in this process."""
    with _lock:
        _unpacked.clear()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, stream: io.BytesIO, folder: Path) -> None:
        super().__init__(stream)
        self.folder = folder
        # Arrays that are written, by identity, and held so that none takes another's.
        self.written: dict[int, tuple[int, Any]] = {}

    def persistent_id(self, found: Any) -> int | None:
        if type(found) is not np.ndarray or found.nbytes <= LARGEST_BYTES:
            return None
        if found.dtype.hasobject:
            return None
        if id(found) not in self.written:
            number = len(self.written)
            np.save(self.folder / f"{number}.npy", found, allow_pickle=False)
            self.written[id(found)] = number, found
        return self.written[id(found)][0]


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, folder: Path) -> None:
        super().__init__(stream)
        self.folder = folder
        self.arrays: dict[int, Any] = {}

    def persistent_load(self, number: int) -> Any:
        if number not in self.arrays:
            array = load_npy(self.folder / f"{number}.npy")
            array.flags.writeable = False
            self.arrays[number] = array
        return self.arrays[number]
