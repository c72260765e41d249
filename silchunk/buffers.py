"""Memory that outlives a task: fresh pages cost as much as the arithmetic done in them.

A task borrows a buffer for a panel and gives it back; the engine drops them all when its job is
done. As many exist as tasks run at once. Smaller arrays come from the C library, which keeps some
of what is freed for the next ones: how much depends on what was freed before, and on workers Dask
has told it to keep nothing.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

# By this variable Dask has its workers' C library give back freed pages at once.
TRIM_VARIABLE, MMAP_VARIABLE = "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"
# Parameters of glibc's mallopt. By default both thresholds follow what is freed; these are the
# largest values that they then take, and the smallest.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
LARGEST_TRIM, LARGEST_MMAP, SMALLEST_MMAP = 64 << 20, 32 << 20, 128 << 10
# Enough for tasks of a few mebibytes, and little beside what the interpreter takes.
LEARNED_BYTES = 8 << 20

_free: list[np.ndarray[Any, np.dtype[np.uint8]]] = []
_lock = threading.Lock()
_keeping = False


@contextmanager
def borrowed(
    shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Iterator[np.ndarray[Any, np.dtype[Any]]]:
    """An uninitialised C-contiguous array, to be left alone once the context ends."""
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    with _lock:
        buffer = _free.pop() if _free else None
    if buffer is None or buffer.nbytes < count:
        del buffer  # the old one goes before the new one comes
        buffer = np.empty(count, np.uint8)
    try:
        yield buffer[:count].view(dtype).reshape(shape)
    finally:
        with _lock:
            _free.append(buffer)


def raise_thresholds() -> None:
    """Have the C library keep what the arrays of small tasks free, twice LEARNED_BYTES, as it does
    from when a block of that length is freed: for good, in the whole process. Thresholds that are
    higher already, or that somebody has set, stay."""
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    library.malloc.restype, library.free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
    library.free(library.malloc(ctypes.c_size_t(LEARNED_BYTES)))  # no page of it was touched


def keep_pages() -> None:
    """Until `drop`, have the C library keep freed memory as it would if Dask had not told it to
    give back all: each task allocates what the one before it has freed."""
    global _keeping
    with _lock:
        if not _keeping and os.environ.get(TRIM_VARIABLE, "").isdigit():
            _keeping = _set_thresholds(LARGEST_TRIM, LARGEST_MMAP)


def drop() -> None:
    """Give all buffers, and what is freed, back to the system."""
    global _keeping
    with _lock:
        _free.clear()
        if _keeping:
            _keeping = False
            mmap = os.environ.get(MMAP_VARIABLE, "")
            _set_thresholds(
                int(os.environ[TRIM_VARIABLE]), int(mmap) if mmap.isdigit() else SMALLEST_MMAP
            )
            ctypes.CDLL(None).malloc_trim(0)


def _set_thresholds(trim: int, mmap: int) -> bool:
    """Returns whether the C library is one that has them."""
    library = ctypes.CDLL(None)
    if not (hasattr(library, "mallopt") and hasattr(library, "malloc_trim")):
        return False
    return bool(library.mallopt(TRIM_THRESHOLD, trim) and library.mallopt(MMAP_THRESHOLD, mmap))
