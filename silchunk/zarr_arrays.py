"""Zarr arrays wherever they lie: opened by their address, and whether all chunks are there."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import zarr
from zarr.core.sync import sync
from zarr.storage import FsspecStore, MemoryStore, StorePath, WrapperStore

from silchunk.errors import InputError, InputNotFoundError, warn

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest, Store
    from zarr.core.buffer import Buffer, BufferPrototype

Presence = np.ndarray[Any, np.dtype[np.bool_]]

log = logging.getLogger("silchunk")

# The package that opens addresses of each kind.
PACKAGES = {
    "s3": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "http": "aiohttp",
    "https": "aiohttp",
}

# Attribute of an array of distances that are rounded: their largest relative error.
ERROR_ATTRIBUTE = "silchunk_relative_error"

# A store that cannot list what it holds is asked for each chunk, unless there are more.
ASKED_AT_MOST = 10_000
ASKED_AT_ONCE = 32

METADATA = ("zarr.json", ".zarray")
CHUNK_KEY = re.compile(r"(c[/.])?\d+([/.]\d+)*")

# A user's name with a password, but not the container@account of Azure nor a port.
_PASSWORD = re.compile(r"://[^/@]*:(?!\d+(/|$))[^@]*@|https?://[^/]*@")


class Absent(NamedTuple):
    """Chunks, or shards, of an array that are not in its store."""

    absent: int
    of: int
    first: str  # key of the first one


class WholeStore(WrapperStore[Any]):
    """A store that held every chunk when it was opened: one that is gone is an error.

    Zarr reads what is not there as the fill value, without a word.
    """

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        found = await self._store.get(key, prototype, byte_range)
        if found is None:
            raise OSError(f"{key} was there and is gone")
        wanted: Buffer = found
        return wanted

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return [await self.get(key, prototype, part) for key, part in key_ranges]

    def __str__(self) -> str:
        return str(self._store)


def is_address(path: Any) -> bool:
    """Whether text names something that is not a file of this machine."""
    return isinstance(path, str) and "://" in path and not path.startswith("file://")


def refuse_secrets(address: str, name: str) -> None:
    """Refuse an address that holds a password or a token, without repeating it.

    Raises
    ------
    InputError
    """
    scheme = address.partition("://")[0]
    if _PASSWORD.search(address) or "?" in address:
        raise InputError(
            f"{name}: a {scheme}:// address must hold no user, password, or anything after a "
            "question mark: addresses are shown in messages. Credentials come from the "
            "environment or from configuration files, such as AWS_ACCESS_KEY_ID or "
            "~/.aws/credentials."
        )


def open_zarr(target: Any, name: str, described: str) -> Any:
    """The array that ``target`` is, names or holds at its root, to be read.

    Raises
    ------
    InputError
        There is no array, or it cannot be reached.
    """
    address = is_address(target)
    if address:
        refuse_secrets(target, name)
    if isinstance(target, (zarr.Array, zarr.Group)):
        opened: Any = target
    else:
        try:
            opened = zarr.open(target, mode="r")
        except FileNotFoundError as error:
            if not address:
                raise InputError(
                    f"{name}: {described} holds no readable Zarr array: {error}"
                ) from error
            raise InputNotFoundError(f"{name}: there is no Zarr array at {described}.") from error
        except (ValueError, KeyError) as error:
            raise InputError(
                f"{name}: {described} holds no readable Zarr array: {error}"
            ) from error
        except ImportError as error:
            raise needs_package(target, name, error) from error
        except Exception as error:  # of whichever library opens such addresses
            if not address:
                raise
            raise InputError(
                f"{name}: {described} cannot be opened: {type(error).__name__}: {error}"
            ) from error
    if isinstance(opened, zarr.Group):
        inside = ", ".join(sorted(opened.keys())) or "nothing"
        raise InputError(
            f"{name}: {described} is a Zarr group; give the path of one of its arrays. "
            f"It holds: {inside}."
        )
    # To read it would be to run what its author has pickled; only newer numcodecs refuses to.
    codecs = (*opened.filters, *opened.compressors)
    if any(getattr(codec, "codec_id", None) == "pickle" for codec in codecs):
        raise InputError(
            f"{name}: {described} holds pickled Python objects; save labels as "
            "labels.astype(str), numbers as floats."
        )
    return opened


def needs_package(address: Any, name: str, error: ImportError) -> InputError:
    """The error where the library that opens such addresses is not installed."""
    scheme = str(address).partition("://")[0]
    package = PACKAGES.get(scheme)
    if package is None:
        return InputError(f"{name}: {address} cannot be opened: {error}")
    return InputError(
        f"{name}: {scheme}:// addresses need the package {package}, here and on every worker: "
        f"python -m pip install {package}"
    )


def checked(array: zarr.Array[Any], name: str, described: str) -> zarr.Array[Any]:
    """The array, its chunks looked for in one listing, with a warning where some are absent.

    Where all are there, it is read through a `WholeStore`.
    """
    if lives_in_memory(array):
        return array
    try:
        missing = absent_chunks(array)
    except Exception as error:  # of whichever library lists such stores
        log.warning("%s: whether all chunks are there cannot be told: %s", name, error)
        return array
    if missing.absent:
        kind = "shards" if array.shards else "chunks"
        fill = array.fill_value
        warn(
            f"{name}: {missing.absent:,} of {missing.of:,} {kind} of {described} are not there, "
            f"{missing.first} the first; they read as the fill value, {fill}. That is as it should "
            "be where nothing else was ever written: Zarr leaves out such chunks. Otherwise the "
            "array was not written or copied to its end."
        )
        return array
    reading = array.async_array
    path = StorePath(WholeStore(array.store), array.path)
    return zarr.Array(zarr.AsyncArray(reading.metadata, path, reading.config))


def absent_chunks(array: zarr.Array[Any], *, described: bool = True) -> Absent:
    """Which chunks, or shards, are not in the store; one listing of it.

    ``described`` tells that the array's metadata is in the store too: a listing without it is not
    to be trusted.
    """
    grid = tuple(
        -(-length // size)
        for length, size in zip(array.shape, array.shards or array.chunks, strict=True)
    )
    encode = array.metadata.encode_chunk_key
    if 0 in grid:
        return Absent(0, 0, "")
    last = tuple(size - 1 for size in grid)
    if _place(encode(last)) != last:
        raise ValueError(f"keys such as {encode(last)} are not known")
    # Zarr's own count compares each key with all others.
    there = sync(_found(array, grid, not described))
    key = f"{array.path}/{encode(_first_absent(there))}".lstrip("/")
    return Absent(int(there.size - there.sum()), there.size, key)


async def _found(array: zarr.Array[Any], grid: tuple[int, ...], trusted: bool) -> Presence:
    """Which chunks are there, an array of the grid's shape; ``trusted``: whether a listing is."""
    store: Store = array.store
    if isinstance(store, FsspecStore):
        store.fs.invalidate_cache()  # of listings
    prefix = f"{array.path}/" if array.path else ""
    encode = array.metadata.encode_chunk_key
    there = np.zeros(grid, np.bool_)
    try:
        async for key in store.list_prefix(array.path):
            if not key.startswith(prefix):
                continue
            trusted |= key[len(prefix) :] in METADATA
            place = _place(key[len(prefix) :])
            if len(place) == len(grid) and all(i < n for i, n in zip(place, grid, strict=True)):
                there[place] = True
    except Exception as error:
        log.info("%s cannot be listed: %s", store, error)
        trusted = False
    # A listing that leaves out what is there is none; web servers give such.
    if trusted and not there.all():
        trusted = not await store.exists(prefix + encode(_first_absent(there)))
    if trusted:
        return there
    if there.size > ASKED_AT_MOST:
        raise ValueError(f"the store cannot list its {there.size:,} chunks")
    if not any([await store.exists(prefix + key) for key in METADATA]):
        raise ValueError("the store does not tell what it holds")
    turns = asyncio.Semaphore(ASKED_AT_ONCE)

    async def ask(place: tuple[int, ...]) -> None:
        async with turns:
            there[place] = await store.exists(prefix + encode(place))

    await asyncio.gather(*(ask(place) for place in np.ndindex(grid)))
    return there


def _first_absent(there: Presence) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(there.argmin()), there.shape))


def _place(key: str) -> tuple[int, ...]:
    """Where in the grid a chunk of this key lies; () if it is none's."""
    if not CHUNK_KEY.fullmatch(key):
        return ()
    return tuple(int(part) for part in re.findall(r"\d+", key))


def unwrapped(store: Store) -> Store:
    """The store that chunks are in, without what lies around it."""
    while isinstance(store, WrapperStore):
        store = store._store
    return store


def lives_in_memory(array: zarr.Array[Any]) -> bool:
    """Whether the chunks are in the memory of this process, where no other can read them."""
    store = unwrapped(array.store)
    if isinstance(store, FsspecStore):
        files = getattr(store.fs, "sync_fs", store.fs)
        return "memory" in (files.protocol, *files.protocol)
    behind = getattr(store, "store", None)  # of obstore
    return isinstance(store, MemoryStore) or type(behind).__name__ == "MemoryStore"


def relative_error(array: zarr.Array[Any]) -> float:
    """Largest relative error of distances in a copy or an export of a distance store; else 0."""
    header = array.attrs.get("silchunk")
    if isinstance(header, Mapping):
        return float(header.get("relative_error", 0.0))  # type: ignore[arg-type]
    return float(array.attrs.get(ERROR_ATTRIBUTE, 0.0))  # type: ignore[arg-type]
