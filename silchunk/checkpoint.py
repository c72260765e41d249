"""Results of finished panels, kept in a folder, so that a job that is killed goes on.

A folder holds a journal, as a distance store does, whose header tells what the job is, and a small
``.npz`` file for each finished panel, whose checksum the journal binds to the panel's place.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from silchunk import journal, scan, storage
from silchunk.disk import replace_whole, room_for
from silchunk.distances import DistanceMatrix
from silchunk.errors import DamagedStoreError, ForeignStoreError, InputError, StaleStoreError
from silchunk.inbox import Consume
from silchunk.prepare import Arguments, Job
from silchunk.provenance import code_digest, differences
from silchunk.rows import Block

log = logging.getLogger("silchunk")

KIND = "checkpoint"
JOURNAL = "silchunk-checkpoint.jsonl"
OWN_FILES = re.compile(rf"panel-\d+\.npz(\.part)?|{re.escape(JOURNAL)}(\.part)?")

Arrays = dict[str, Block]


@dataclass(frozen=True)
class Checkpoint:
    """The folder of one job."""

    folder: Path
    records: journal.Journal

    def missing(self, n_panels: int) -> list[int]:
        """The panels to compute: those that are not recorded, or not as they were written."""
        return [panel for panel in range(n_panels) if self._content(panel) is None]

    def read(self, panel: int) -> Arrays:
        """A finished panel's results."""
        content = self._content(panel)
        if content is None:
            raise DamagedStoreError(
                f"{self._file(panel)} was changed while the job ran; its panel is computed anew "
                "when the same is run again."
            )
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return dict(arrays)

    def _content(self, panel: int) -> bytes | None:
        record = self.records.panels.get(panel)
        if record is None:
            return None
        try:
            content = self._file(panel).read_bytes()
        except FileNotFoundError:
            content = b""
        store_id = self.records.store_id
        if journal.checksum(store_id, "panel", panel, content) == record.crc32c:
            return content
        log.warning("%s is damaged; its panel is computed again", self._file(panel))
        return None

    def write(self, panel: int, arrays: Mapping[str, Block]) -> None:
        """Keep a panel's results; on disk when this returns."""
        stream = io.BytesIO()
        np.savez(stream, allow_pickle=False, **dict(arrays))
        content = stream.getvalue()
        path = self._file(panel)
        with room_for(path, len(content)):
            replace_whole(path, content)
            crc = journal.checksum(self.records.store_id, "panel", panel, content)
            journal.append(self.records, [journal.PanelRecord(panel, crc, len(content))])

    def _file(self, panel: int) -> Path:
        return self.folder / f"panel-{panel:07d}.npz"


def panel_rows(checkpoint: str | os.PathLike[str] | None) -> int | None:
    """Rows of a panel of the job that a checkpoint was begun with; it keeps to them.

    Raises
    ------
    ForeignStoreError
        Something else is there.
    """
    if checkpoint is None:
        return None
    folder = storage.local_path(checkpoint)
    if not os.path.lexists(folder):
        if not folder.parent.is_dir():
            raise InputError(f"there is no folder {str(folder.parent)!r} to make {folder.name} in.")
        return None
    return int(_header(_records(folder))["panel_rows"])


@contextmanager
def opened(
    checkpoint: str | os.PathLike[str], job: Job, arguments: Arguments, task: Mapping[str, Any]
) -> Iterator[Checkpoint]:
    """Create the checkpoint of a job, or go on with it.

    ``task`` tells what is computed of the distances, in JSON's types.

    Raises
    ------
    ForeignStoreError
        Something else is there; it is left as it is.
    StaleStoreError
        It is of a job with other input or parameters.
    StoreInUseError
        Another process runs the same job.
    """
    folder = storage.local_path(checkpoint)
    header = _describe(job, arguments, task)
    if not os.path.lexists(folder):
        _create(folder, header)
    with storage.locked(folder):
        records = _records(folder)
        old = _header(records)
        found = differences(old, header)
        found += [
            f"{name} was {old['task'].get(name)!r}, now {value!r}"
            for name, value in header["task"].items()
            if old["task"].get(name) != value
        ]
        if found:
            raise StaleStoreError(
                f"{folder} is the checkpoint of another job: {'; '.join(found)}. Delete that "
                "folder, or name another path."
            )
        with room_for(records.path, len(records.metadata)):
            journal.mend(records)
        yield Checkpoint(folder, records)


def map_panels(
    job: Job,
    task: Callable[[int, int], Any],
    consume: Consume,
    label: str,
    kept: Checkpoint | None,
    from_arrays: Callable[[Arrays], Any],
    panels: list[tuple[int, int]],
) -> None:
    """As `Job.map`, where finished panels are taken from a checkpoint and others are added to it.

    Results have ``arrays()``, of which ``from_arrays`` makes them again.
    """
    if kept is None:
        job.map(task, consume, label, panels)
        return
    missing = kept.missing(len(panels))
    following = 0

    def catch_up(stop: int) -> None:
        """Consume what is kept of the panels before ``stop``, in order."""
        nonlocal following
        while following < stop:
            consume(following, from_arrays(kept.read(following)))
            following += 1

    def keep(index: int, result: Any) -> None:
        nonlocal following
        panel = missing[index]
        catch_up(panel)
        kept.write(panel, result.arrays())
        consume(panel, result)
        following = panel + 1

    job.map(task, keep, label, [panels[i] for i in missing])
    catch_up(len(panels))


def _describe(job: Job, arguments: Arguments, task: Mapping[str, Any]) -> dict[str, Any]:
    source = job.source
    digest = (
        str(source.header["store"])
        if isinstance(source, DistanceMatrix)
        else scan.content_digest(source, job.where)
    )
    return {
        "kind": KIND,
        "n": job.n,
        "dtype": job.panels.dtype.name,
        "panel_rows": job.plan.panel_rows,
        "keep_bits": None,
        "metric": job.metric_name,
        "metric_params": storage.params_to_json(arguments.metric_params or {}),
        "metric_code": code_digest(arguments.metric),
        "input": {"kind": "matrix" if source.shape[1] == job.n else "points", "digest": digest},
        "task": json.loads(json.dumps(dict(task))),
        "versions": {name: version(name) for name in ("silchunk", "numpy")},
    }


def _create(folder: Path, header: dict[str, Any]) -> None:
    text = json.dumps(header)
    with storage.appearing_whole(folder) as temporary, room_for(folder, len(text)):
        temporary.mkdir()
        journal.create(temporary / JOURNAL, uuid.uuid4().hex, text)


def _records(folder: Path) -> journal.Journal:
    """The journal of a folder that is a checkpoint and nothing else."""
    if folder.is_symlink():
        raise ForeignStoreError(
            f"{folder} is a symbolic link; give the folder it points to, "
            f"{os.path.realpath(folder)}."
        )
    path = folder / JOURNAL
    records = journal.read(path, store_id=None, metadata=None) if path.is_file() else None
    strange = (
        []
        if records is None
        else [file.name for file in folder.iterdir() if not OWN_FILES.fullmatch(file.name)]
    )
    if records is None or strange or _header(records).get("kind") != KIND:
        raise ForeignStoreError(
            f"{folder} is not the checkpoint of a silchunk job"
            + (f": it holds {strange[0]}" if strange else "")
            + ". It is left as it is; name another path."
        )
    return records


def _header(records: journal.Journal) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(records.metadata)
    return header
