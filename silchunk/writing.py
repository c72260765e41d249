"""Filling a store: one task writes one panel whole, the driver records it."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from silchunk import disk, engine, journal, shard, storage, symmetric
from silchunk.buffers import borrowed
from silchunk.panels import PanelSource
from silchunk.plan import Plan
from silchunk.progress import Progress
from silchunk.rows import Block
from silchunk.storage import Layout

# Panels' worth of memory that writing or reading one takes at most: the panel, its encoded form,
# and a few tiles.
PANEL_COPIES = 3


@dataclass(frozen=True)
class _WritePanel:
    """Panel task: make a panel, round it if asked, write its shard, return its record."""

    panels: PanelSource
    path: str
    layout: Layout
    store_id: str
    keep_bits: int | None

    def __call__(self, start: int, stop: int) -> journal.PanelRecord:
        layout = self.layout
        panel = start // layout.panel_rows
        file = storage.shard_file(self.path, panel)
        done = _recorded(self.path, self.store_id, "panel", panel, file)
        if done is not None:
            return done
        with borrowed((stop - start, layout.n), layout.dtype) as distances:
            self.panels.read(start, stop, distances)
            parts = shard.encode(
                distances, layout.shard_shape, layout.chunk_columns, self.keep_bits
            )
            return _write_whole(file, parts, self.store_id, "panel", panel, distances.nbytes)


@dataclass(frozen=True)
class _WriteHalf:
    """Panel task: compute a panel from its diagonal rightwards and put that half aside."""

    panels: symmetric.HalfPanels
    path: str
    layout: Layout
    store_id: str

    def __call__(self, start: int, stop: int) -> journal.PanelRecord:
        panel = start // self.layout.panel_rows
        half = symmetric.half_file(_halves(self.path), panel)
        done = _recorded(self.path, self.store_id, "half", panel, half)
        if done is not None:
            return done
        with borrowed((stop - start, self.layout.n), self.layout.dtype) as distances:
            self.panels.read(start, stop, distances)
            kept = distances[:, start:]
            return _write_whole(half, _npy(kept), self.store_id, "half", panel, kept.nbytes)


def fill(
    path: Path,
    layout: Layout,
    records: journal.Journal,
    panels: PanelSource | symmetric.HalfPanels,
    *,
    keep_bits: int | None,
    plan: Plan,
    where: engine.Executor,
    progress: Progress,
    label: str,
    missing: Sequence[int],
    record: Callable[[journal.PanelRecord], None],
) -> None:
    """Write the missing panels and have each recorded as it is done."""

    def run(task: Any, wanted: Sequence[int], what: str) -> None:
        engine.map_panels(
            task,
            [layout.rows_of(panel) for panel in wanted],
            lambda _, done: record(done),
            where=where,
            concurrency=plan.concurrency,
            progress=progress,
            label=what,
            task_bytes=plan.task_bytes,
            ordered=False,
        )

    if isinstance(panels, symmetric.HalfPanels):
        halves = _halves(path)
        halves.mkdir(exist_ok=True)
        left = [p for p in range(layout.n_panels) if not _half_is_whole(path, records, p)]
        if missing:
            run(_WriteHalf(panels, str(path), layout, records.store_id), left, f"{label}, pairs")
        panels = symmetric.MirroredPanels(str(halves), layout.n, layout.dtype, layout.panel_rows)
    run(_WritePanel(panels, str(path), layout, records.store_id, keep_bits), missing, label)


def remove_halves(path: Path) -> None:
    """Delete the halves once the panels hold them."""
    halves = _halves(path)
    if halves.is_dir():
        for file in halves.glob("*.npy"):
            if file.stem.isdigit():
                file.unlink()
        if not any(halves.iterdir()):
            halves.rmdir()


def rounding_error(keep_bits: int | None, before: float) -> float:
    """Largest relative error by keeping so many mantissa bits, rounded to nearest, of distances
    that were off by up to ``before``."""
    rounding = 0.0 if keep_bits is None else 2.0 ** -(keep_bits + 1)
    return before + rounding + before * rounding


def _write_whole(
    file: Path,
    parts: Iterable[bytes],
    store_id: str,
    kind: str,
    panel: int,
    expected_bytes: int,
) -> journal.PanelRecord:
    """Write a file under a temporary name, then give it its own; take the checksum on the way."""
    # A name of its own: a cluster may run a task twice at once.
    temporary = file.with_name(f"{file.name}.{uuid.uuid4().hex}.part")
    crc, nbytes = journal.checksum(store_id, kind, panel, b""), 0
    try:
        with disk.room_for(file, expected_bytes):
            file.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as stream:
                for part in parts:
                    stream.write(part)
                    crc = journal.extend(crc, part)
                    nbytes += len(part)
            temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    return journal.PanelRecord(panel, crc, nbytes, kind)


def _npy(array: Block) -> Iterator[bytes]:
    """The bytes of a ``.npy`` file."""
    header = io.BytesIO()
    fields = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
    np.lib.format.write_array_header_2_0(header, fields)
    yield header.getvalue()
    yield array.tobytes()


def _recorded(
    path: str, store_id: str, part: str, panel: int, file: Path
) -> journal.PanelRecord | None:
    """The record of a panel that is done: a cluster may run a task once more than it is asked."""
    if not file.exists():
        return None
    record = journal.recorded(Path(path) / journal.FILE_NAME, store_id, part, panel)
    return record if record is not None and _holds(file, store_id, record) else None


def _half_is_whole(path: Path, records: journal.Journal, panel: int) -> bool:
    record = records.halves.get(panel)
    half = symmetric.half_file(_halves(path), panel)
    return record is not None and _holds(half, records.store_id, record)


def _holds(file: Path, store_id: str, record: journal.PanelRecord) -> bool:
    """Whether a file is as it was recorded."""
    try:
        content = file.read_bytes()
    except OSError:
        return False
    crc = journal.checksum(store_id, record.part, record.panel, content)
    return (crc, len(content)) == (record.crc32c, record.nbytes)


def _halves(path: str | Path) -> Path:
    return Path(path) / storage.HALVES_FOLDER
