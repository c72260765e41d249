"""Checking a store against its journal, and rebuilding what is damaged."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from silchunk import engine, journal, scan, storage, writing
from silchunk.condensed import condensed_rows
from silchunk.engine import Scheduler
from silchunk.errors import InputError, InputTypeError, StaleStoreError
from silchunk.metrics import make_metric
from silchunk.plan import RUNTIME_BYTES, SCIKIT_LEARN_BYTES, plan_panels
from silchunk.points import as_rows
from silchunk.progress import Progress
from silchunk.rows import DaskRows, RowSource, on_disk, scratch_folder
from silchunk.symmetric import HalfPanels, UpperPanels, WholePanels, symmetric_panels


@dataclass(frozen=True)
class Verification:
    """What a check of a store found, and mended.

    Attributes
    ----------
    path : str
    n_panels : int
    damaged : tuple of int
        Panels that were missing or not as they were written.
    faults : tuple of str
        One sentence for each fault, in the metadata too.
    repaired : bool
        Whether all of it was mended.
    """

    path: str
    n_panels: int
    damaged: tuple[int, ...]
    faults: tuple[str, ...]
    repaired: bool

    @property
    def ok(self) -> bool:
        """Whether the store is now as it was written."""
        return self.repaired or not self.faults

    def __str__(self) -> str:
        if not self.faults:
            return f"{self.path}: all {self.n_panels:,} panels are as they were written."
        ending = "All is mended." if self.repaired else "Nothing was changed."
        count = "1 fault" if len(self.faults) == 1 else f"{len(self.faults)} faults"
        found = f"{self.path}: {count}" + (" found" if self.repaired else "")
        return "\n".join([found, *self.faults, ending])


@dataclass(frozen=True)
class _CheckPanel:
    """Panel task: compare a panel's file with its record."""

    path: Path
    records: journal.Journal
    panel_rows: int

    def __call__(self, start: int, stop: int) -> str | None:
        return storage.panel_fault(self.path, self.records, start // self.panel_rows)


def damaged_panels(
    folder: Path,
    records: journal.Journal,
    layout: storage.Layout,
    progress: Progress,
    *,
    all_of_them: bool = False,
) -> dict[int, str]:
    """Recorded panels, or all, that are not as they were written, and what is wrong with each.

    Reads one file for each thread of this machine at a time, wherever the work itself is done.
    """
    panels = range(layout.n_panels) if all_of_them else sorted(records.panels)
    faults: dict[int, str] = {}

    def note(index: int, fault: str | None) -> None:
        if fault is not None:
            faults[panels[index]] = fault

    engine.map_panels(
        _CheckPanel(folder, records, layout.panel_rows),
        [layout.rows_of(panel) for panel in panels],
        note,
        where=engine.executor("threads"),
        progress=progress,
        label="panels verified",
    )
    return faults


def verify_distances(
    store: str | os.PathLike[str],
    repair: bool = False,
    *,
    X: Any = None,
    memory: int | str | None = None,
    progress: Progress = None,
    scheduler: Scheduler = None,
) -> Verification:
    """Check every file of a store, and rebuild what is damaged.

    Parameters
    ----------
    store : path, or the DistanceMatrix
    repair : bool
        Rebuild damaged panels, and only those, from the points the store keeps, from the file it
        was built from, or from ``X``.
    X : optional
        The input of the build, where the store keeps no copy and the file is gone.
    memory, progress, scheduler
        As in `build_distances`.

    Raises
    ------
    UnsealedStoreError
        Its build has not ended.
    DamagedStoreError
        Nothing is left to go by.
    StaleStoreError
        ``repair`` found no input, or other input than that of the build.

    Notes
    -----
    Reads the store once; nothing is decoded.
    """
    folder = storage.local_path(store)
    storage.refuse_foreign(folder)
    records = storage.read_journal(folder)
    header = storage.header_of(records)
    layout = storage.layout_of(header)
    metadata_faults = [
        f"{records.path} is missing or damaged in line {n}." for n in records.damaged_lines
    ]
    if not metadata_faults:
        storage.refuse_unsealed(folder, records)
    if storage.text_of(folder / "zarr.json") != records.metadata:
        metadata_faults.append(f"{folder / 'zarr.json'} is not as it was written.")
    panel_faults = damaged_panels(folder, records, layout, progress, all_of_them=True)
    here = engine.executor("threads")
    copy_fault = _copy_fault(folder, header, here)
    faults = (*metadata_faults, *copy_fault, *panel_faults.values())
    damaged = tuple(sorted(panel_faults))
    if repair and faults:
        where = engine.executor(scheduler)
        budget = engine.byte_budget(memory, where)
        with storage.locked(folder):
            _repair(folder, header, records, damaged, bool(copy_fault), X, where, budget, progress)
    return Verification(str(folder), layout.n_panels, damaged, faults, repair and bool(faults))


def _repair(
    folder: Path,
    header: dict[str, Any],
    records: journal.Journal,
    damaged: tuple[int, ...],
    copy_damaged: bool,
    X: Any,
    where: engine.Executor,
    budget: int,
    progress: Progress,
) -> None:
    layout = storage.layout_of(header)
    mended: list[journal.PanelRecord] = []
    with scratch_folder(engine.scratch_parent()) as scratch:
        source = _input(folder, header, X, scratch, where) if damaged or copy_damaged else None
        storage.write_metadata(folder, records)
        storage.remove_parts(folder)
        if source is not None and copy_damaged:
            storage.keep_points(folder, source)
        if source is not None and where.distributed:
            source = on_disk(source, scratch)
        if source is not None and damaged:
            from_points = header["input"]["kind"] == "points"
            job_plan = plan_panels(
                n=layout.n,
                width=source.shape[1],
                itemsize=layout.dtype.itemsize,
                budget_bytes=budget,
                concurrency=where.concurrency,
                from_points=from_points,
                resident_bytes=source.resident_bytes,
                chunk_rows=source.chunk_rows,
                panel_copies=writing.PANEL_COPIES,
                panel_rows=layout.panel_rows,
                runtime_bytes=RUNTIME_BYTES + SCIKIT_LEARN_BYTES,
            )
            panels: Any
            if from_points:
                params = storage.params_from_json(header["resolved_params"])
                frame = scan.scan_points(
                    source,
                    name="X",
                    where=where,
                    read_rows=job_plan.read_rows,
                    allow_missing=True,
                )
                metric = make_metric(header["metric"], params, frame, source, layout.dtype)
                panels = symmetric_panels(source, metric, layout.dtype, job_plan.read_rows)
                if isinstance(panels, HalfPanels):
                    panels = WholePanels(panels)
            else:
                panels = UpperPanels(source, layout.dtype)
            writing.fill(
                folder,
                layout,
                records,
                panels,
                keep_bits=header["keep_bits"],
                plan=job_plan,
                where=where,
                progress=progress,
                label="repairing",
                missing=damaged,
                record=mended.append,
            )
    # The seal is kept until all is mended: a repair that is cut off can be run again.
    for record in mended:
        records.panels[record.panel] = record
    journal.seal(records)


def _input(
    folder: Path, header: dict[str, Any], X: Any, scratch: Path, where: engine.Executor
) -> RowSource:
    """The input of the build: what was passed, else the store's copy, else the original file."""
    if header["metric_is_callable"]:
        raise StaleStoreError(
            f"{folder} was built with the callable {header['metric']!r}, which it cannot keep. "
            "Build it again with overwrite=True."
        )
    original = header["input"]["path"]
    candidates = [X, folder / storage.POINTS_FILE, original] if X is None else [X]
    for candidate in candidates:
        if candidate is None or (
            isinstance(candidate, (str, Path))
            and "://" not in str(candidate)
            and not Path(candidate).exists()
        ):
            continue
        try:
            square = condensed_rows(candidate, scratch, as_file=where.distributed)
            source = as_rows(candidate if square is None else square)
        except (InputError, InputTypeError):
            if X is not None:
                raise
            continue  # the store's copy is damaged; the original may be as it was
        if isinstance(source, DaskRows):
            source = source.computed(scratch, 0)
        if scan.content_digest(source, where) == header["input"]["digest"]:
            return source
        if X is not None:
            raise StaleStoreError(f"X is not the input that {folder} was built from.")
    raise StaleStoreError(
        f"the input that {folder} was built from is not to be found"
        + (f" (it was {original})" if original else "")
        + "; pass it as X."
    )


def _copy_fault(folder: Path, header: dict[str, Any], where: engine.Executor) -> list[str]:
    """A fault of the points that the store keeps, if it keeps them."""
    if not header["input"]["kept"]:
        return []
    file = folder / storage.POINTS_FILE
    try:
        source = as_rows(file)
        if scan.content_digest(source, where) == header["input"]["digest"]:
            return []
    except (OSError, ValueError):
        pass
    return [f"{file} is missing or not as it was written."]
