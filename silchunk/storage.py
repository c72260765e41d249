"""The files of a distance store: layout, metadata, checksums, and what belongs to it.

A store is a folder that holds one Zarr v3 array. Each shard is one row panel, written whole by one
task; its inner chunks are tiles. ``docs/storage.md`` describes every file and checksum.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
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
from silchunk.disk import room_for
from silchunk.errors import (
    DamagedStoreError,
    ForeignStoreError,
    InputError,
    InputNotFoundError,
    StoreInUseError,
    UnsealedStoreError,
)
from silchunk.rows import RowSource, copy_to_npy
from silchunk.zarr_arrays import refuse_secrets

SCHEMA = 1
ATTRIBUTE = "silchunk"
POINTS_FILE = "points.npy"
HALVES_FOLDER = "halves"
SHARDS_FOLDER = "c"

# Every name that silchunk gives a file in a store; the parts are being written.
OWN_FILES = re.compile(
    r"(zarr\.json|silchunk-journal\.jsonl|points\.npy)(\.part)?"
    r"|c/\d+/0(\.[0-9a-f]{32}\.part)?|halves/\d+\.npy(\.[0-9a-f]{32}\.part)?"
)

# An address, also as pathlib leaves it: s3:/bucket/d.zarr.
ADDRESS = re.compile(r"[A-Za-z][\w+.:-]+:/")

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
    if not path.is_dir():
        return False
    return (path / journal.FILE_NAME).is_file() or _attributes(path) is not None


def local_path(store: str | os.PathLike[str]) -> Path:
    """A path, or a ``file://`` address of one; Zarr's own local store is what writes safely."""
    text = os.fspath(store)
    if text.startswith("file://"):
        text = unquote(urlsplit(text).path)
    elif ADDRESS.match(text):
        refuse_secrets(text, "the folder")
        raise InputError(
            f"{text!r}: a distance store lives in a folder, and so does a checkpoint. They rest on "
            "renames, locks and writes that are forced to disk, which object stores do not have. "
            "Give a path that the workers can see. A finished store goes to an object store by "
            'export_distances, and is read there as X with metric="precomputed".'
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


def refuse_unsealed(path: Path, records: journal.Journal) -> None:
    """Raise unless the build of a store has ended.

    Raises
    ------
    UnsealedStoreError
    """
    if not records.sealed:
        n_panels = layout_of(header_of(records)).n_panels
        raise UnsealedStoreError(
            f"{path} has {len(records.panels):,} of {n_panels:,} panels: its build was stopped. "
            "Run it again with the same input to go on."
        )


def read_journal(path: Path) -> journal.Journal:
    """The journal of a store; what is in ``zarr.json`` stands in for a damaged first line.

    Raises
    ------
    DamagedStoreError
        If neither can be read.
    """
    attributes = _attributes(path)
    records = journal.read(
        path / journal.FILE_NAME,
        store_id=None if attributes is None else attributes.get("store"),
        metadata=None if attributes is None else text_of(path / "zarr.json"),
    )
    if records is None:
        raise DamagedStoreError(
            f"zarr.json and {journal.FILE_NAME} of {path} are both damaged: nothing says what it "
            "was built from. Delete the folder and build it again."
        )
    return records


def _attributes(path: Path) -> dict[str, Any] | None:
    """Our attributes in ``zarr.json``, if it has any that can be read."""
    try:
        attributes = json.loads(text_of(path / "zarr.json") or "")["attributes"][ATTRIBUTE]
    except (ValueError, KeyError, TypeError):
        return None
    return attributes if isinstance(attributes, dict) else None


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
    with room_for(path / POINTS_FILE, points.shape[0] * points.shape[1] * 8):
        copy_to_npy(points, temporary)
        temporary.replace(path / POINTS_FILE)


def params_to_json(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a metric as they come back from JSON: arrays and tuples become lists.

    Raises
    ------
    InputError
        For a value that cannot be written down.
    """

    def plain(value: Any) -> Any:
        if isinstance(value, (np.ndarray, np.generic)):
            return value.tolist()
        raise InputError(
            f"metric_params holds {value!r}, which cannot be recorded in the store; use numbers, "
            "strings, lists or arrays."
        )

    if not isinstance(params, Mapping):
        raise InputError(f"metric_params must be a dict; got {params!r}.")
    written: dict[str, Any] = json.loads(json.dumps(dict(params), default=plain))
    return written


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
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreInUseError(
                f"{path} is being built by another process; wait for it to end."
            ) from error
        yield
    finally:
        os.close(folder)


def create_store(path: Path, header: Mapping[str, Any], layout: Layout) -> journal.Journal:
    """Make an empty store."""
    with appearing_whole(path) as temporary, room_for(path, 0):
        _create(temporary, header, layout)
    return read_journal(path)


@contextmanager
def appearing_whole(path: Path) -> Iterator[Path]:
    """A temporary name for a folder that is to appear at ``path`` whole or not at all."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
        if os.path.lexists(path):
            raise ForeignStoreError(f"{path} came into being meanwhile; it is left as it is.")
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _create(path: Path, header: Mapping[str, Any], layout: Layout) -> None:
    zarr.create_array(
        LocalStore(path),
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
    metadata = (path / "zarr.json").read_text()
    journal.create(path / journal.FILE_NAME, header["store"], metadata)


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
    return [
        found
        for found in path.rglob("*")
        if found.is_symlink()
        or not (found.is_dir() or OWN_FILES.fullmatch(found.relative_to(path).as_posix()))
    ]


def remove_parts(path: Path) -> None:
    """Delete what writes that a kill cut off have left. For whoever holds the lock."""
    for found in path.rglob("*.part"):
        if OWN_FILES.fullmatch(found.relative_to(path).as_posix()):
            found.unlink()


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


def store_size(
    layout: Layout, *, keep_bits: int | None = None, halves: bool = False
) -> tuple[int, int]:
    """Bytes and files of a store, at most: as if kept bits could not be compressed at all.

    With ``halves``, also those that are put aside while it is built.
    """
    bits = 8 * layout.dtype.itemsize
    exponent_and_sign = bits - int(np.finfo(layout.dtype).nmant)
    kept = bits if keep_bits is None else exponent_and_sign + keep_bits
    nbytes = layout.raw_bytes * kept // bits + (1 << 20)
    if halves:
        nbytes += layout.raw_bytes // 2
    return nbytes, layout.n_panels * (2 if halves else 1) + 3


def text_of(path: Path) -> str | None:
    """Content of a text file, or None if it cannot be read."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return None
