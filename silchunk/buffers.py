"""Large buffers that outlive a task: fresh pages cost as much as the arithmetic done in them.

A task borrows a buffer for a panel and gives it back; the engine drops them all when its job is
done. As many exist as tasks run at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

_free: list[np.ndarray[Any, np.dtype[np.uint8]]] = []
_lock = threading.Lock()


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


def drop() -> None:
    """Give all buffers back to the system."""
    with _lock:
        _free.clear()
