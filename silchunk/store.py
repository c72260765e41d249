"""The files of a distance store: layout, metadata, checksums, and what belongs to it.

A store is a folder that holds one Zarr v3 array. Each shard is one row panel, written whole by one
task; its inner chunks are tiles. ``docs/storage.md`` describes every file and checksum.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec
from zarr.storage import LocalStore

from silchunk import journal, shard
from silchunk.errors import (
    DamagedStoreError,
    DiskFullError,
    ForeignStoreError,
    InputError,
    InputNotFoundError,
    StoreInUseError,
)
from silchunk.plan import format_bytes
from silchunk.points import RowSource, copy_to_npy

SCHEMA = 1
ATTRIBUTE = "silchunk"
POINTS_FILE = "points.npy"
HALVES_FOLDER = "halves"
SHARDS_FOLDER = "c"

# Inner chunks of about this many columns: long enough to compress and decode at full speed.
CHUNK_COLUMNS = 4096

# Mantissa bits kept under each name; None keeps all.
PRESETS: Mapping[str, int | None] = {"none": None, "fast": 12, "small": 8}


@dataclass(frozen=True)
class Layout:
    """How a matrix lies in its files."""

    n: int
    dtype: np.dtype[Any]
    panel_rows: int

    @property
    def chunk_columns(self) -> int:
        """Columns of a tile: the row divided evenly, so that the padding is less than a tile."""
        tiles = -(-self.n // CHUNK_COLUMNS)
        return -(-self.n // tiles)

    @property
    def shard_shape(self) -> tuple[int, int]:
        """Rows and padded columns of one file."""
        return self.panel_rows, -(-self.n // self.chunk_columns) * self.chunk_columns

    @property
    def n_panels(self) -> int:
        """Number of shard files."""
        return -(-self.n // self.panel_rows)

    @property
    def raw_bytes(self) -> int:
        """Bytes before compression."""
        return self.n_panels * self.shard_shape[0] * self.shard_shape[1] * self.dtype.itemsize

    def rows_of(self, panel: int) -> tuple[int, int]:
        """Row range [start, stop) of a panel."""
        return panel * self.panel_rows, min(self.n, (panel + 1) * self.panel_rows)


def is_store(path: Path) -> bool:
    """Whether a folder is a distance store, whole or not."""
    return path.is_dir() and (path / journal.FILE_NAME).is_file()


def local_path(store: str | os.PathLike[str]) -> Path:
    """A path, or a ``file://`` address of one; Zarr's own local store is what writes safely."""
    text = os.fspath(store)
    if text.startswith("file://"):
        text = unquote(urlsplit(text).path)
    elif "://" in text:
        raise InputError(
            f"{text!r}: a distance store lives in a folder; give a path that the workers can see."
        )
    return Path(os.path.abspath(text))


def read_metadata(path: Path) -> tuple[dict[str, Any], journal.Journal]:
    """Header and journal of a store, whether sealed or not.

    Raises
    ------
    ForeignStoreError, DamagedStoreError
    """
    refuse_foreign(path)
    records = read_journal(path)
    if text_of(path / "zarr.json") != records.metadata:
        raise DamagedStoreError(
            f"{path / 'zarr.json'} is not as it was written. Run: silchunk verify --repair {path}"
        )
    header = header_of(records)
    if header["schema"] != SCHEMA:
        raise DamagedStoreError(
            f"{path} has storage format {header['schema']}; this silchunk reads format {SCHEMA}."
        )
    return header, records


def refuse_foreign(path: Path) -> None:
    """Raise unless ``path`` is a distance store's own folder.

    Raises
    ------
    InputNotFoundError, ForeignStoreError
    """
    if path.is_symlink():
        raise ForeignStoreError(
            f"{path} is a symbolic link; give the folder it points to, {os.path.realpath(path)}."
        )
    if not path.exists():
        raise InputNotFoundError(f"there is no store {str(path)!r}.")
    if not is_store(path):
        raise ForeignStoreError(f"{path} is not a silchunk distance store; it is left as it is.")


def read_journal(path: Path) -> journal.Journal:
    """The journal of a store; what is in ``zarr.json`` stands in for a damaged first line.

    Raises
    ------
    DamagedStoreError
        If neither can be read.
    """
    metadata = text_of(path / "zarr.json")
    store_id = None
    try:
        store_id = json.loads(metadata or "")["attributes"][ATTRIBUTE]["store"]
    except (ValueError, KeyError, TypeError):
        metadata = None
    records = journal.read(path / journal.FILE_NAME, store_id=store_id, metadata=metadata)
    if records is None:
        raise DamagedStoreError(
            f"zarr.json and {journal.FILE_NAME} of {path} are both damaged: nothing says what it "
            "was built from. Delete the folder and build it again."
        )
    return records


def header_of(records: journal.Journal) -> dict[str, Any]:
    """What the store was built from and how it is laid out."""
    header: dict[str, Any] = json.loads(records.metadata)["attributes"][ATTRIBUTE]
    return header


def layout_of(header: Mapping[str, Any]) -> Layout:
    """The layout a header describes."""
    return Layout(int(header["n"]), np.dtype(header["dtype"]), int(header["panel_rows"]))


def write_metadata(path: Path, records: journal.Journal) -> None:
    """Put ``zarr.json`` back as the journal remembers it."""
    if text_of(path / "zarr.json") != records.metadata:
        temporary = path / "zarr.json.part"
        temporary.write_text(records.metadata)
        temporary.replace(path / "zarr.json")


def keep_points(path: Path, points: RowSource) -> None:
    """Keep a copy of the points in the store, so that it can always be repaired."""
    temporary = path / (POINTS_FILE + ".part")
    try:
        copy_to_npy(points, temporary)
        temporary.replace(path / POINTS_FILE)
    except OSError as error:
        raise as_disk_full(error, path, 0) from error


def params_to_json(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a metric as JSON has them: arrays become lists."""
    return {
        name: value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
        for name, value in params.items()
    }


def params_from_json(params: Mapping[str, Any]) -> dict[str, Any]:
    """The reverse: lists become arrays."""
    return {
        name: np.array(value) if isinstance(value, list) else value
        for name, value in params.items()
    }


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other builds of the same store away, also those of other processes.

    Raises
    ------
    StoreInUseError
    """
    folder = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise StoreInUseError(
            f"{path} is being built by another process; wait for it to end."
        ) from error
    finally:
        os.close(folder)


def create_store(path: Path, header: Mapping[str, Any], layout: Layout) -> journal.Journal:
    """Make an empty store: under a temporary name first, so that it appears whole or not at all."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        zarr.create_array(
            LocalStore(temporary),
            shape=(layout.n, layout.n),
            chunks=(layout.panel_rows, layout.chunk_columns),
            shards=layout.shard_shape,
            dtype=layout.dtype,
            fill_value=float("nan"),
            compressors=[
                BloscCodec(typesize=layout.dtype.itemsize, **shard.COMPRESSOR),
                Crc32cCodec(),
            ],
            attributes={ATTRIBUTE: dict(header)},
        )
        metadata = (temporary / "zarr.json").read_text()
        journal.create(temporary / journal.FILE_NAME, header["store"], metadata)
        if os.path.lexists(path):
            raise ForeignStoreError(f"{path} came into being meanwhile; it is left as it is.")
        temporary.rename(path)
    except OSError as error:
        raise as_disk_full(error, path, 0) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return read_journal(path)


def read_shard(path: str | Path, records: journal.Journal, panel: int) -> bytes:
    """The bytes of a panel's file, as they were written.

    Raises
    ------
    DamagedStoreError
        In one sentence, if they are not.
    """
    record = records.panels.get(panel)
    file = shard_file(path, panel)
    if record is None:
        raise DamagedStoreError(f"panel {panel} of {path} is not recorded in the journal.")
    try:
        content = file.read_bytes()
    except FileNotFoundError as error:
        raise DamagedStoreError(f"panel {panel} is missing: there is no file {file}.") from error
    if len(content) != record.nbytes:
        raise DamagedStoreError(
            f"panel {panel} is torn: {file} has {len(content):,} bytes, not {record.nbytes:,}."
        )
    if journal.checksum(records.store_id, "panel", panel, content) != record.crc32c:
        raise DamagedStoreError(f"panel {panel} is damaged: the checksum of {file} is wrong.")
    return content


def panel_fault(path: str | Path, records: journal.Journal, panel: int) -> str | None:
    """What is wrong with a panel's file, in one sentence, or None."""
    try:
        read_shard(path, records, panel)
    except DamagedStoreError as error:
        return str(error)
    return None


def shard_file(path: str | Path, panel: int) -> Path:
    """The file of a panel, as the Zarr v3 specification names it."""
    return Path(path) / SHARDS_FOLDER / str(panel) / "0"


def unknown_files(path: Path) -> list[Path]:
    """Files in a store's folder that silchunk did not make."""
    known = {Path(name) for name in ("zarr.json", journal.FILE_NAME, POINTS_FILE)}
    known |= {name.with_name(name.name + ".part") for name in known}
    strange = []
    for found in path.rglob("*"):
        inside = found.relative_to(path)
        if found.is_dir() and not found.is_symlink():
            continue
        is_shard = len(inside.parts) == 3 and inside.parts[0] == SHARDS_FOLDER
        ours = is_shard and inside.parts[1].isdigit() and inside.name.split(".")[0] == "0"
        half = inside.parts[0] == HALVES_FOLDER and found.suffix in (".npy", ".part")
        if not (ours or half or inside in known) or found.is_symlink():
            strange.append(found)
    return strange


def refuse_unknown_files(path: Path) -> None:
    """Raise before a store is deleted that holds anything else.

    Raises
    ------
    ForeignStoreError
    """
    strange = unknown_files(path)
    if strange:
        raise ForeignStoreError(
            f"{path} holds {strange[0].relative_to(path)}, which silchunk did not make; nothing "
            "was deleted. Move it away, or name another path."
        )


def as_disk_full(error: OSError, path: Path, nbytes: int) -> OSError:
    """An error that says how much was to be written where, if the disk was the cause."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return error
    free = shutil.disk_usage(path if path.exists() else path.parent).free
    return DiskFullError(
        f"no room to write {nbytes:,} bytes to {path} ({os.strerror(error.errno or 0)}; "
        f"{free:,} bytes free on that disk). Make room, then run the same again: it goes on."
    )


def store_size(layout: Layout, *, halves: bool = False) -> tuple[int, int]:
    """Bytes and files of a store, at most: as if nothing could be compressed.

    With ``halves``, also those that are put aside while it is built.
    """
    nbytes = layout.raw_bytes * 3 // 2 if halves else layout.raw_bytes
    return nbytes, layout.n_panels * (2 if halves else 1) + 3


def preflight(path: Path, nbytes: int, n_files: int) -> None:
    """Refuse what cannot fit on the disk.

    Raises
    ------
    DiskFullError
        With bytes or files needed and free.
    """
    folder = next(parent for parent in path.parents if parent.exists())
    free = shutil.disk_usage(folder).free
    if nbytes > free:
        raise DiskFullError(
            f"{path} will take about {format_bytes(nbytes)}, but {folder} has "
            f'{format_bytes(free)} free. Use another disk, dtype="float32", or keep_bits="small".'
        )
    inodes = os.statvfs(folder)
    if inodes.f_files and n_files > inodes.f_favail:
        raise DiskFullError(
            f"{path} will take {n_files:,} files, but {folder} allows {inodes.f_favail:,} more. "
            "Raise memory=, which makes panels longer and files fewer."
        )


def text_of(path: Path) -> str | None:
    """Content of a text file, or None if it cannot be read."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return None
