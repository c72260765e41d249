"""The journal of a store: which panels are done, with checksums bound to their place.

A text file of one record a line, appended and synced to disk by the driver alone:

    {"metadata": "<the text of zarr.json>", "store": "<id>"} <checksum>
    {"bytes": 1048576, "crc32c": 305419896, "panel": 0} <checksum>
    ...
    {"sealed": "<SHA-256 of all lines before this one>"} <checksum>

Each line ends with the CRC-32C, in eight hexadecimal digits, of the store's id followed by the
line's JSON text, so that a record can neither be altered nor come from another store. A last line
without its end is what a killed process leaves behind, and no damage.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c

from silchunk.disk import replace_whole

FILE_NAME = "silchunk-journal.jsonl"


@dataclass(frozen=True)
class PanelRecord:
    """One finished panel: checksum and length of its file."""

    panel: int
    crc32c: int
    nbytes: int
    part: str = "panel"  # or "half", where each pair is computed once: columns from its rows on


@dataclass
class Journal:
    """The records of a journal file, as read."""

    path: Path
    store_id: str
    metadata: str
    panels: dict[int, PanelRecord] = field(default_factory=dict)
    halves: dict[int, PanelRecord] = field(default_factory=dict)
    sealed: bool = False
    damaged_lines: list[int] = field(default_factory=list)  # counted from 1

    def records(self) -> list[PanelRecord]:
        """All intact records: halves, then panels, each in order."""
        return [kept[panel] for kept in (self.halves, self.panels) for panel in sorted(kept)]


def create(path: Path, store_id: str, metadata: str) -> None:
    """Write a new journal that has its header alone."""
    replace_whole(path, _line(store_id, {"store": store_id, "metadata": metadata}))


def append(journal: Journal, records: Iterable[PanelRecord]) -> None:
    """Add finished panels to an unsealed journal; on disk when this returns."""
    with journal.path.open("ab") as stream:
        for record in records:
            stream.write(_line(journal.store_id, _fields(record)))
            _keep(journal, record)
        _sync(stream)


def seal(journal: Journal) -> None:
    """Write the journal anew, with its header, its panels in order, and the seal."""
    header = {"store": journal.store_id, "metadata": journal.metadata}
    lines = [_line(journal.store_id, header)]
    lines += [
        _line(journal.store_id, _fields(journal.panels[panel])) for panel in sorted(journal.panels)
    ]
    digest = hashlib.sha256(b"".join(lines)).hexdigest()
    replace_whole(journal.path, b"".join([*lines, _line(journal.store_id, {"sealed": digest})]))
    journal.sealed = True


def mend(journal: Journal) -> None:
    """Write the journal anew from its intact records, unsealed: a torn line would spoil the next
    one appended to it."""
    header = {"store": journal.store_id, "metadata": journal.metadata}
    lines = [_line(journal.store_id, header)]
    lines += [_line(journal.store_id, _fields(record)) for record in journal.records()]
    replace_whole(journal.path, b"".join(lines))
    journal.sealed = False
    journal.damaged_lines.clear()


def read(path: Path, *, store_id: str | None, metadata: str | None) -> Journal | None:
    """Read a journal, keeping every intact record and noting the lines that are not.

    ``store_id`` and ``metadata``, as found in ``zarr.json``, stand in for a damaged header; None
    if there is no header to go by at all.
    """
    text = path.read_bytes() if path.exists() else b""
    *lines, rest = text.split(b"\n")
    header = _parse(lines[0], None) if lines else None
    if header is not None and {"store", "metadata"} <= header.keys():
        journal = Journal(path, str(header["store"]), str(header["metadata"]))
    elif store_id is not None and metadata is not None:
        journal = Journal(path, store_id, metadata, damaged_lines=[1])
    else:
        return None
    digest = hashlib.sha256(lines[0] + b"\n") if lines else hashlib.sha256()
    for number, line in enumerate(lines[1:], start=2):
        fields = _parse(line, journal.store_id)
        record = None if fields is None else _record(fields)
        if journal.sealed or fields is None:
            journal.damaged_lines.append(number)
        elif record is not None:
            _keep(journal, record)
        elif fields.get("sealed") == digest.hexdigest():
            journal.sealed = True
        else:
            journal.damaged_lines.append(number)
        digest.update(line + b"\n")
    if rest and journal.sealed:
        journal.damaged_lines.append(len(lines) + 1)
    return journal


def recorded(path: Path, store_id: str, part: str, panel: int) -> PanelRecord | None:
    """The last record of one panel in a journal file, found without reading all others."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    begin = text.rfind(b'"%s": %d}' % (part.encode(), panel))
    if begin < 0:
        return None
    line = text[text.rfind(b"\n", 0, begin) + 1 :].split(b"\n", 1)[0]
    fields = _parse(line, store_id)
    return None if fields is None else _record(fields)


def extend(crc: int, content: bytes) -> int:
    """A checksum continued over more of a file."""
    return int(google_crc32c.extend(crc, content))


def checksum(store_id: str, part: str, panel: int, content: bytes) -> int:
    """CRC-32C of a panel's file, bound to the store and to the panel's place in it."""
    place = f"{store_id}/{part}/{panel}/".encode()
    return extend(int(google_crc32c.value(place)), content)


def _keep(journal: Journal, record: PanelRecord) -> None:
    kept = journal.panels if record.part == "panel" else journal.halves
    kept[record.panel] = record


def _fields(record: PanelRecord) -> dict[str, Any]:
    return {record.part: record.panel, "crc32c": record.crc32c, "bytes": record.nbytes}


def _record(fields: dict[str, Any]) -> PanelRecord | None:
    part = next((name for name in ("panel", "half") if name in fields), None)
    if part is None:
        return None
    return PanelRecord(int(fields[part]), int(fields["crc32c"]), int(fields["bytes"]), part)


def _line(store_id: str, fields: dict[str, Any]) -> bytes:
    text = json.dumps(fields, sort_keys=True).encode()
    return text + b" %08x\n" % google_crc32c.value(store_id.encode() + text)


def _parse(line: bytes, store_id: str | None) -> dict[str, Any] | None:
    """The fields of an intact line, else None; a header brings its own id."""
    text, checksum_text = line[:-9], line[-8:]
    try:
        fields = json.loads(text)
        wanted = int(checksum_text, 16)
    except ValueError:
        return None
    if not isinstance(fields, dict) or line[-9:-8] != b" ":
        return None
    identity = str(fields.get("store")) if store_id is None else store_id
    return fields if wanted == google_crc32c.value(identity.encode() + text) else None


def _sync(stream: Any) -> None:
    stream.flush()
    os.fsync(stream.fileno())
