"""Reading ``.npy`` files, from several threads."""

from __future__ import annotations

import os
import threading
from typing import Any, Literal

import numpy as np

# To read a header, NumPy has Python parse it, which two threads at once may fail at ("AST
# constructor recursion depth mismatch", python/cpython#106905).
_parsing = threading.Lock()


def map_npy(
    path: str | os.PathLike[str], mode: Literal["r", "r+", "c"] = "r"
) -> np.ndarray[Any, np.dtype[Any]]:
    """The array of a ``.npy`` file, mapped: to be read, written, or written in memory alone."""
    with _parsing:
        mapped: np.ndarray[Any, np.dtype[Any]] = np.load(path, mmap_mode=mode, allow_pickle=False)
    return mapped


def load_npy(path: str | os.PathLike[str]) -> np.ndarray[Any, np.dtype[Any]]:
    """The array of a ``.npy`` file, read."""
    with _parsing:
        array: np.ndarray[Any, np.dtype[Any]] = np.load(path, allow_pickle=False)
    return array
