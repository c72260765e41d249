"""Dask arrays of what silchunk holds or is to compute, which is done when somebody asks for it."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import dask
import numpy as np

from silchunk.errors import InputError
from silchunk.machine import default_budget


def lazy_vector(
    function: Callable[..., Any],
    length: Callable[[], int],
    *arguments: Any,
    scheduler: Any = None,
    **keywords: Any,
) -> Any:
    """``function(*arguments, **keywords)``, one number for each point, as a Dask array.

    Parameters
    ----------
    function : callable
        Of this package; it takes ``memory=`` and ``scheduler=``, and returns (n,) float64.
    length : callable
        Gives n.
    *arguments
        As the function takes them. Dask arrays among them are computed a block at a time, on
        threads, when the result is.
    scheduler : None or "threads"
    **keywords
        Of the function.

    Returns
    -------
    Dask array (n,) of float64, in one chunk

    Raises
    ------
    InputError
        There is no telling n without computing, an array is kept by the workers of a cluster, or a
        scheduler is named. What else may be wrong is raised when the result is computed.

    Notes
    -----
    The whole is one task, which runs its panels on threads of the process that it comes to. So it
    waits for no other task, and cannot come to a standstill on a cluster whose threads are all
    taken; and it does not spread over workers, as it does at once, without being put off. Its
    budget is that of the function, by default the usual share of what the process, or the worker,
    may use; results that are computed side by side in one process have a budget each.
    """
    if scheduler not in (None, "threads"):
        raise InputError(
            "compute=False leaves it to Dask where the result is computed, and runs on threads "
            f"there; leave out scheduler=, got {scheduler!r}."
        )
    for array in (*arguments, *keywords.values()):
        _check_lazy(array)
    job = _Job(function, arguments, keywords)
    # For imports that take long.
    from dask.array import from_delayed

    task = dask.delayed(job, pure=False, traverse=False)()
    return from_delayed(task, shape=(length(),), dtype="float64")


class _Job:
    """A call that is to be made. Dask is not to see the arrays in it, which it would compute as a
    whole."""

    def __init__(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> None:
        self.function = function
        self.arguments = arguments
        self.keywords = dict(keywords)

    def __call__(self) -> Any:
        arguments = [_on_threads(one) for one in self.arguments]
        keywords = {name: _on_threads(one) for name, one in self.keywords.items()}
        if keywords.get("memory") is None:
            keywords["memory"] = _default_memory()
        return self.function(*arguments, scheduler="threads", **keywords)


class _OnThreads:
    """A Dask array that is computed on threads of this process, whatever client is about."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._array, name)

    def __getitem__(self, key: Any) -> _OnThreads:
        return _OnThreads(self._array[key])

    @property
    def blocks(self) -> _Blocks:
        """As Dask's."""
        return _Blocks(self._array.blocks)

    def compute(self) -> Any:
        """As Dask's."""
        return self._array.compute(scheduler="threads")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.compute(), dtype)


class _Blocks:
    def __init__(self, blocks: Any) -> None:
        self._blocks = blocks

    def __getitem__(self, key: Any) -> _OnThreads:
        return _OnThreads(self._blocks[key])


def _on_threads(argument: Any) -> Any:
    return _OnThreads(argument) if _is_dask(argument) else argument


def _is_dask(array: Any) -> bool:
    return dask.is_dask_collection(array) and hasattr(array, "blocks")


def _check_lazy(array: Any) -> None:
    """Refuse arrays of Dask that are not there, or not known, until something is computed."""
    if not _is_dask(array):
        return
    if any(math.isnan(size) for size in array.shape):
        raise InputError(
            "compute=False needs to know the number of points; call compute_chunk_sizes() on the "
            "Dask array first."
        )
    distributed = sys.modules.get("distributed")
    if distributed is not None and distributed.futures_of(array):
        raise InputError(
            "the Dask array is kept by the workers of a cluster, whose results a task that waits "
            "for no other cannot ask for. Leave out compute=False, or write the array to Zarr with "
            "dask.array.to_zarr and pass the path."
        )


def _default_memory() -> int:
    """The budget where none is given: a share of what the worker may use, if this is one."""
    limit = None
    distributed = sys.modules.get("distributed")
    if distributed is not None:
        try:
            limit = distributed.get_worker().memory_manager.memory_limit
        except ValueError:  # no worker
            limit = None
    return default_budget(limit)


def rows_as_dask(source: Any, chunk_rows: int) -> Any:
    """A Dask array over a `RowSource`, ``chunk_rows`` rows to a chunk; reads when computed."""
    import dask.array

    _, width = source.shape
    array = dask.array.from_array(
        _RowSlices(source), chunks=(chunk_rows, width), name=False, asarray=False
    )
    return array


@dataclass(frozen=True)
class _RowSlices:
    """The little of an array's interface that Dask reads through."""

    source: Any

    @property
    def shape(self) -> tuple[int, int]:
        n, width = self.source.shape
        return n, width

    @property
    def dtype(self) -> Any:
        return self.source.dtype

    @property
    def ndim(self) -> int:
        return 2

    def __getitem__(self, key: tuple[slice, slice]) -> Any:
        wanted = [range(length)[part] for part, length in zip(key, self.shape, strict=True)]
        # What spans the wanted rows and columns is read, and then picked from.
        (top, bottom), (left, right) = ((min(w), max(w) + 1) if w else (0, 0) for w in wanted)
        block = self.source.rows(top, bottom, slice(left, right))
        rows, columns = (
            [i - first for i in w] for w, first in zip(wanted, (top, left), strict=True)
        )
        return block[rows][:, columns]
