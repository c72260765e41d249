"""Writing a stored matrix to plain files, or to an object store, for any program to read."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import FsspecStore, LocalStore, MemoryStore, StorePath

from silchunk import disk, storage, zarr_arrays
from silchunk.distances import DistanceMatrix, open_distances
from silchunk.engine import Scheduler
from silchunk.errors import InputError, OutputExistsError
from silchunk.npy_files import map_npy
from silchunk.prepare import Arguments, prepared
from silchunk.progress import Progress

if TYPE_CHECKING:
    from zarr.abc.store import Store

# Objects that are deleted at once where an export is given up.
DELETED_AT_ONCE = 32
# For what is being written to end, where an export is given up.
WRITE_SECONDS = 30.0


def export_distances(
    store: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    memory: int | str | None = None,
    progress: Progress = None,
    scheduler: Scheduler = None,
) -> None:
    """Write a stored matrix to a plain ``.npy`` file or Zarr array that any program reads.

    Parameters
    ----------
    store : path, or the DistanceMatrix
    target : path, or address on an object store
        ``.npy`` or ``.zarr``, and ``.zarr`` for an address such as ``"s3://bucket/d.zarr"``; must
        not exist.
    memory, progress, scheduler
        As in `build_distances`.

    Raises
    ------
    OutputExistsError
        ``target`` exists.
    DamagedStoreError
        A panel is not as it was written; nothing is left at ``target``.

    Notes
    -----
    A Zarr array is chunked as the store is, with a checksum in each chunk and NaN for chunks that
    get lost. At an address it can be opened once all of it is there: its ``zarr.json`` is written
    last.
    """
    D = open_distances(store)
    arguments = Arguments("precomputed", memory=memory, progress=progress, scheduler=scheduler)
    if zarr_arrays.is_address(target):
        _to_address(D, str(target).rstrip("/"), arguments)
        return
    out = storage.local_path(target)
    if os.path.lexists(out):
        raise OutputExistsError(f"{out} exists already and is left as it is; name another path.")
    if out.suffix not in (".npy", ".zarr"):
        raise InputError(f"{out.name}: export writes .npy or .zarr; name the target so.")
    raw = D.n * D.n * D.dtype.itemsize
    disk.preflight(out, raw, 1 if out.suffix == ".npy" else D.layout.n_panels)
    temporary = out.with_name(f".{out.name}.{uuid.uuid4().hex}.tmp")
    try:
        array = None
        if out.suffix == ".npy":
            np.lib.format.open_memmap(temporary, mode="w+", dtype=D.dtype, shape=D.shape)
        else:
            array = _new_array(LocalStore(temporary), D)
        with disk.room_for(out, raw):
            _copy(D, _CopyPanel(D, str(temporary), array), arguments)
        missing = 0 if array is None else zarr_arrays.absent_chunks(array, described=False).absent
        if missing:
            raise OSError(
                f"{missing:,} chunks that were written to {out} are not there. Do all workers see "
                "this file system?"
            )
        if os.path.lexists(out):
            raise OutputExistsError(f"{out} came into being meanwhile; it is left as it is.")
        temporary.rename(out)
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)


def _to_address(D: DistanceMatrix, address: str, arguments: Arguments) -> None:
    zarr_arrays.refuse_secrets(address, "the target")
    scheme = address.partition("://")[0]
    if scheme in ("http", "https"):
        raise InputError(f"{address}: {scheme}:// addresses can be read only; name another target.")
    if not address.endswith(".zarr"):
        raise InputError(f"{address}: to an address, export writes .zarr; name the target so.")
    memory = MemoryStore()
    kept = _new_array(memory, D).async_array
    try:
        store = FsspecStore.from_url(address)
        store.fs.invalidate_cache()  # what was listed before need not be there now
        if not sync(store.is_empty("")):
            raise OutputExistsError(
                f"{address} holds objects already and is left as it is; name another address. If "
                "they are of an export that was cut off, which has no zarr.json, delete them."
            )
    except ImportError as error:
        raise zarr_arrays.needs_package(address, "the target", error) from error
    except (OutputExistsError, OSError):
        raise
    except Exception as error:  # of whichever library opens such addresses
        raise InputError(f"{address} cannot be opened: {type(error).__name__}: {error}") from error
    array = zarr.Array(zarr.AsyncArray(kept.metadata, StorePath(store), kept.config))
    try:
        _copy(D, _CopyPanel(D, address, array), arguments)
        missing = zarr_arrays.absent_chunks(array, described=False)
        if missing.absent:
            raise OSError(
                f"{missing.absent:,} of {missing.of:,} chunks that were written to {address} are "
                "not there. Do all workers write to the same store?"
            )
    except BaseException:
        sync(_delete_chunks(store, array))
        raise
    if sync(store.exists("zarr.json")):
        raise OutputExistsError(
            f"another program has written to {address} meanwhile: it may be of both. Delete it."
        )
    content = sync(memory.get("zarr.json", default_buffer_prototype()))
    assert content is not None
    sync(store.set("zarr.json", content))


def _new_array(store: Store, D: DistanceMatrix) -> zarr.Array[Any]:
    return zarr.create_array(
        store,
        shape=D.shape,
        chunks=(D.layout.panel_rows, min(D.n, storage.CHUNK_COLUMNS)),
        dtype=D.dtype,
        fill_value=float("nan"),
        compressors=[ZstdCodec(), Crc32cCodec()],
        attributes={zarr_arrays.ERROR_ATTRIBUTE: D.relative_error},
    )


def _copy(D: DistanceMatrix, task: _CopyPanel, arguments: Arguments) -> None:
    with prepared(D, arguments) as job:
        if not zarr_arrays.is_address(task.target):
            job.where.check_visible(task.target)
        step = D.layout.panel_rows
        panels = [(i, min(D.n, i + step)) for i in range(0, D.n, step)]
        try:
            job.map(task, lambda _, done: None, "exporting", panels)
        except BaseException:
            job.where.everywhere(_give_up, task.token)
            raise


_writers = threading.Condition()
_writing: Counter[str] = Counter()
_given_up: set[str] = set()


def _give_up(token: str) -> None:
    """End an export in this process: when this returns, none of its tasks writes any more."""
    with _writers:
        _given_up.add(token)
        _writers.wait_for(lambda: not _writing[token], timeout=WRITE_SECONDS)


@contextmanager
def _turn(token: str) -> Iterator[bool]:
    """Whether a task may write still; it counts as writing within the context."""
    with _writers:
        allowed = token not in _given_up
        _writing[token] += 1
    try:
        yield allowed
    finally:
        with _writers:
            _writing[token] -= 1
            _writers.notify_all()


async def _delete_chunks(store: Store, array: zarr.Array[Any]) -> None:
    """Delete what has been written of an array; what cannot be is left."""
    turns = asyncio.Semaphore(DELETED_AT_ONCE)
    grid = [-(-length // size) for length, size in zip(array.shape, array.chunks, strict=True)]

    async def delete(place: tuple[int, ...]) -> None:
        async with turns:
            await store.delete(array.metadata.encode_chunk_key(place))

    await asyncio.gather(*(delete(place) for place in np.ndindex(*grid)), return_exceptions=True)


@dataclass(frozen=True)
class _CopyPanel:
    """Panel task: copy a row range to a plain file, or to an array."""

    matrix: DistanceMatrix
    target: str
    array: zarr.Array[Any] | None  # of Zarr; its metadata need not be written yet
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __call__(self, start: int, stop: int) -> None:
        with _turn(self.token) as allowed:
            if allowed:
                self._write(start, stop)

    def _write(self, start: int, stop: int) -> None:
        block = self.matrix.rows(start, stop)
        if self.array is None:
            out: Any = map_npy(self.target, "r+")
            out[start:stop] = block
            return
        try:
            self.array[start:stop] = block
        except Exception as error:
            if type(error).__module__ == "builtins" or isinstance(error, OSError):
                raise
            raise OSError(
                f"rows {start:,} to {stop:,} cannot be written to {self.target}: "
                f"{type(error).__name__}: {error}"
            ) from error
