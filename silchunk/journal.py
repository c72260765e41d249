"""The journal of a store: which panels are done, with checksums bound to their place.

A text file of one record a line, appended and synced to disk by the driver alone:

    {"store": "<id>", "metadata": "<the text of zarr.json>", ...} <checksum>
    {"panel": 0, "crc32c": 305419896, "bytes": 1048576} <checksum>
    ...
    {"sealed": "<SHA-256 of all lines before this one>"} <checksum>

Each line ends with the CRC-32C, in eight hexadecimal digits, of the store's id followed by the
line's JSON text, so that a record can neither be altered nor come from another store. A last line
without its end is what a killed process leaves behind; it is dropped when a build goes on.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import google_crc32c

from silchunk.errors import DamagedStoreError, StoreInUseError

FILE_NAME = "silchunk-journal.jsonl"


@dataclass(frozen=True)
class PanelRecord:
    """One finished panel: checksum and length of its file."""

    panel: int
    crc32c: int
    nbytes: int
    part: str = "shard"  # or "half", of a metric that is computed once for each pair


@dataclass
class Journal:
    """The records of a journal file, as read."""

    path: Path
    header: dict[str, Any]
    panels: dict[int, PanelRecord] = field(default_factory=dict)
    halves: dict[int, PanelRecord] = field(default_factory=dict)
    sealed: bool = False
    # Text that is no record of this store: a torn last line, or damage.
    damaged_lines: list[int] = field(default_factory=list)
    valid_bytes: int = 0

    @property
    def store_id(self) -> str:
        """The id that all checksums of the store begin with."""
        return str(self.header["store"])


class JournalWriter:
    """Appends records; holds the lock that keeps a second build away."""

    def __init__(self, journal: Journal) -> None:
        self._id = journal.store_id
        self._stream: IO[bytes] = journal.path.open("r+b")
        try:
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._stream.close()
            raise StoreInUseError(
                f"{journal.path.parent} is being built by another process; wait for it to end."
            ) from error
        self._stream.truncate(journal.valid_bytes)
        self._stream.seek(0)
        self._digest = hashlib.sha256(self._stream.read())

    def append(self, records: Iterable[PanelRecord]) -> None:
        """Record finished panels; on disk when this returns."""
        for record in records:
            self._write(
                {
                    "half" if record.part == "half" else "panel": record.panel,
                    "crc32c": record.crc32c,
                    "bytes": record.nbytes,
                }
            )
        self._sync()

    def seal(self) -> None:
        """Record that all is there."""
        self._write({"sealed": self._digest.hexdigest()})
        self._sync()

    def close(self) -> None:
        """Release the lock."""
        self._stream.close()

    def _write(self, fields: dict[str, Any]) -> None:
        line = _line(self._id, fields)
        self._stream.write(line)
        self._digest.update(line)

    def _sync(self) -> None:
        self._stream.flush()
        os.fsync(self._stream.fileno())


def create(path: Path, header: dict[str, Any]) -> None:
    """Write a new journal that holds its header alone."""
    with path.open("xb") as stream:
        stream.write(_line(header["store"], header))
        stream.flush()
        os.fsync(stream.fileno())


def read(path: Path) -> Journal:
    """Read a journal, keeping every intact record and noting what is not.

    Raises
    ------
    DamagedStoreError
        If the file or its header is missing or cannot be read.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise DamagedStoreError(f"{path} cannot be read: {error}") from error
    lines = text.splitlines(keepends=True)
    header = _parse(lines[0], None) if lines else None
    if header is None or "store" not in header:
        raise DamagedStoreError(
            f"{path} has lost its first line, which ties the store together. Build the store anew "
            "with overwrite=True."
        )
    journal = Journal(path, header, valid_bytes=len(lines[0]))
    intact = True
    for number, line in enumerate(lines[1:], start=2):
        fields = _parse(line, journal.store_id)
        if fields is None or journal.sealed:
            journal.damaged_lines.append(number)
            journal.sealed = intact = False
        elif "panel" in fields or "half" in fields:
            _keep(journal, fields)
        elif fields.get("sealed") == hashlib.sha256(text[: journal.valid_bytes]).hexdigest():
            journal.sealed = intact
        else:
            journal.damaged_lines.append(number)
        if intact and not journal.damaged_lines:
            journal.valid_bytes += len(line)
    return journal


def panel_checksum(store_id: str, panel: int, part: str, content: bytes) -> int:
    """CRC-32C of a panel's file, bound to the store and to the panel's place in it."""
    place = f"{store_id}/{part}/{panel}/".encode()
    return int(google_crc32c.extend(google_crc32c.value(place), content))


def _keep(journal: Journal, fields: dict[str, Any]) -> None:
    part, kept = ("half", journal.halves) if "half" in fields else ("shard", journal.panels)
    panel = int(fields["half" if part == "half" else "panel"])
    kept[panel] = PanelRecord(panel, int(fields["crc32c"]), int(fields["bytes"]), part)


def _line(store_id: str, fields: dict[str, Any]) -> bytes:
    text = json.dumps(fields, sort_keys=True).encode()
    return text + b" %08x\n" % google_crc32c.value(store_id.encode() + text)


def _parse(line: bytes, store_id: str | None) -> dict[str, Any] | None:
    """The fields of an intact line, else None; a header brings its own id."""
    if not line.endswith(b"\n") or len(line) < 11:
        return None
    text, checksum = line[:-10], line[-9:-1]
    try:
        fields = json.loads(text)
        wanted = int(checksum, 16)
    except ValueError:
        return None
    if not isinstance(fields, dict):
        return None
    identity = str(fields.get("store")) if store_id is None else store_id
    return fields if wanted == google_crc32c.value(identity.encode() + text) else None
