"""Writing a stored matrix to plain files that any program reads."""

from __future__ import annotations

import os
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.storage import LocalStore

from silchunk import disk, engine, storage
from silchunk.distances import DistanceMatrix, open_distances
from silchunk.engine import Scheduler
from silchunk.errors import InputError, OutputExistsError
from silchunk.prepare import Arguments, prepared
from silchunk.progress import Progress


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
    target : path
        ``.npy`` or ``.zarr``; must not exist.
    memory, progress, scheduler
        As in `build_distances`.

    Raises
    ------
    OutputExistsError
        ``target`` exists.
    DamagedStoreError
        A panel is not as it was written; nothing is left at ``target``.
    """
    D = open_distances(store)
    out = storage.local_path(target)
    if os.path.lexists(out):
        raise OutputExistsError(f"{out} exists already and is left as it is; name another path.")
    if out.suffix not in (".npy", ".zarr"):
        raise InputError(f"{out.name}: export writes .npy or .zarr; name the target so.")
    raw = D.n * D.n * D.dtype.itemsize
    disk.preflight(out, raw, 1 if out.suffix == ".npy" else D.layout.n_panels)
    temporary = out.with_name(f".{out.name}.{uuid.uuid4().hex}.tmp")
    try:
        if out.suffix == ".npy":
            np.lib.format.open_memmap(temporary, mode="w+", dtype=D.dtype, shape=D.shape)
        else:
            zarr.create_array(
                LocalStore(temporary),
                shape=D.shape,
                chunks=(D.layout.panel_rows, min(D.n, storage.CHUNK_COLUMNS)),
                dtype=D.dtype,
            )
        arguments = Arguments("precomputed", memory=memory, scheduler=scheduler)
        with disk.room_for(out, raw), prepared(D, arguments) as job:
            step = D.layout.panel_rows
            ranges_ = [(i, min(D.n, i + step)) for i in range(0, D.n, step)]
            engine.map_panels(
                _CopyPanel(D, temporary, out.suffix == ".npy"),
                ranges_,
                lambda _, done: None,
                where=job.where,
                concurrency=job.plan.concurrency,
                progress=progress,
                label="exporting",
            )
        if os.path.lexists(out):
            raise OutputExistsError(f"{out} came into being meanwhile; it is left as it is.")
        temporary.rename(out)
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)


@dataclass(frozen=True)
class _CopyPanel:
    """Panel task: copy a row range to a plain file."""

    matrix: DistanceMatrix
    target: Path
    to_npy: bool

    def __call__(self, start: int, stop: int) -> None:
        block = self.matrix.rows(start, stop)
        if self.to_npy:
            out: Any = np.load(self.target, mmap_mode="r+", allow_pickle=False)
        else:
            out = zarr.open_array(LocalStore(self.target), mode="r+")
        out[start:stop] = block
