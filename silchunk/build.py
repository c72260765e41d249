"""Making distance stores: from points, from an existing matrix, and back to plain files."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from silchunk import disk, engine, journal, scan, storage, writing
from silchunk.condensed import condensed_rows
from silchunk.distances import DistanceMatrix, find_store, folder_of, open_distances
from silchunk.engine import Scheduler
from silchunk.errors import (
    DamagedStoreError,
    InputError,
    OutputExistsError,
)
from silchunk.metric_kinds import PairwiseMetric
from silchunk.panels import MatrixPanels, PanelSource, PointPanels
from silchunk.prepare import Arguments, Job, prepared
from silchunk.progress import Progress
from silchunk.provenance import (
    KeepBits,
    checked_bits,
    code_digest,
    differences,
    refuse_stale,
)
from silchunk.rows import scratch_folder
from silchunk.symmetric import HalfPanels, UpperPanels, symmetric_panels
from silchunk.verify import damaged_panels

# Points are kept in the store unless they are larger than this part of it.
KEPT_SHARE = 4


def build_distances(
    X: Any,
    store: str | os.PathLike[str],
    *,
    metric: str | Callable[..., float] = "euclidean",
    metric_params: Mapping[str, Any] | None = None,
    dtype: Any = "float32",
    keep_bits: KeepBits = None,
    memory: int | str | None = None,
    resume: bool = True,
    overwrite: bool = False,
    progress: Progress = None,
    scheduler: Scheduler = None,
) -> DistanceMatrix:
    """Compute the n × n distances of points once and keep them on disk.

    Parameters
    ----------
    X : points of shape (n, d)
        Of any kind that `silhouette_upper_bound` takes.
    store : path
        Folder of the store, which must not exist or be a store that silchunk made.
    metric, metric_params
        As in `silhouette_upper_bound`. Metrics other than the fast ones are computed once for
        each pair.
    dtype : "float32" or "float64"
        Of the stored distances; relative error 1e-6 or 1e-12.
    keep_bits : int, "none", "fast" or "small", optional
        Mantissa bits to keep, rounded to nearest, for smaller files: "fast" 12, "small" 8. Bounds
        from such a store are corrected outward for the error, and stay bounds.
    memory, progress, scheduler
        As in `silhouette_upper_bound`.
    resume : bool
        Go on with a build that was stopped, or return the store if it is complete. Both only if
        it has the same input and parameters.
    overwrite : bool
        Replace a store that silchunk made, whatever is in it. Nothing else is ever replaced.

    Returns
    -------
    DistanceMatrix

    Raises
    ------
    ForeignStoreError
        ``store`` holds something that silchunk did not make.
    StaleStoreError
        The store there has other input or parameters.
    OutputExistsError
        There is a store, and neither ``resume`` nor ``overwrite`` is allowed.
    DiskFullError, OverBudgetError
        It cannot fit; before any work, or where a write failed. What is done is kept.
    StoppedError
        Stopped by a signal; the same call goes on.

    Notes
    -----
    Time O(n² d), one pass; peak memory a few panels for each task. Symmetric to the last bit, zero
    on the diagonal; the same bits for every budget, scheduler and interruption.

    Examples
    --------
    >>> import tempfile
    >>> from silchunk import build_distances, silhouette_upper_bound
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     D = build_distances([[0.0], [1.0], [5.0]], f"{folder}/d.zarr")
    ...     print(D.rows(0, 2))
    ...     round(silhouette_upper_bound(D), 4)
    [[0. 1. 5.]
     [1. 0. 4.]]
    0.5833
    """
    target = _target(store, X, resume=resume, overwrite=overwrite)
    if metric == "precomputed" or find_store(X) is not None:
        raise InputError("X is a matrix of distances already: use import_distances.")
    code = code_digest(metric)
    params = storage.params_to_json(metric_params or {})
    arguments = Arguments(metric, metric_params, dtype, True, memory, progress, scheduler)
    rows = _panel_rows(target, overwrite)
    with prepared(X, arguments, panel_copies=writing.PANEL_COPIES, panel_rows=rows) as job:
        assert isinstance(job.panels, PointPanels)
        made = job.panels
        panels = symmetric_panels(made.points, made.metric, made.dtype, made.read_rows)
        resolved = made.metric.params if isinstance(made.metric, PairwiseMetric) else {}
        description = {
            "metric": job.metric_name,
            "metric_params": params,
            "metric_is_callable": callable(metric),
            "metric_code": code,
            "resolved_params": {} if callable(metric) else storage.params_to_json(resolved),
        }
        return _make(target, X, job, panels, "points", description, keep_bits, overwrite)


def import_distances(
    matrix: Any,
    store: str | os.PathLike[str],
    *,
    dtype: Any = None,
    validate: bool = True,
    keep_bits: KeepBits = None,
    memory: int | str | None = None,
    resume: bool = True,
    overwrite: bool = False,
    progress: Progress = None,
    scheduler: Scheduler = None,
) -> DistanceMatrix:
    """Bring an existing distance matrix of any size into a store.

    Parameters
    ----------
    matrix : array of shape (n, n), or condensed of shape (n (n - 1) / 2,)
        A NumPy or Dask array, ``.npy`` file or Zarr array.
    store : path
        Folder of the store.
    dtype : "float32" or "float64", optional
        Default float32 for float32 input, else float64.
    validate : bool
        Whether to check a square matrix; rounding noise is taken off: entries below zero and on
        the diagonal become zero, and the upper triangle stands for both.
    keep_bits, memory, resume, overwrite, progress, scheduler
        As in `build_distances`.

    Returns
    -------
    DistanceMatrix

    Raises
    ------
    As `build_distances`, and InputError for what is not a distance matrix.

    Notes
    -----
    Reads the matrix three times: to check it, to fingerprint it, to copy it.
    """
    target = _target(store, matrix, resume=resume, overwrite=overwrite)
    arguments = Arguments("precomputed", None, dtype, validate, memory, progress, scheduler)
    with scratch_folder(engine.scratch_parent()) as scratch:
        elsewhere = engine.executor(scheduler).distributed
        condensed = condensed_rows(matrix, scratch, as_file=elsewhere)
        given = matrix if condensed is None else condensed
        rows = _panel_rows(target, overwrite)
        with prepared(given, arguments, panel_copies=writing.PANEL_COPIES, panel_rows=rows) as job:
            description = {
                "metric": "precomputed",
                "metric_params": {},
                "metric_is_callable": False,
                "metric_code": "",
                "resolved_params": {},
            }
            panels = job.panels
            if isinstance(panels, MatrixPanels) and not panels.symmetric:
                panels = UpperPanels(job.source, panels.dtype)
            return _make(target, matrix, job, panels, "matrix", description, keep_bits, overwrite)


def _target(folder: str | os.PathLike[str], X: Any, *, resume: bool, overwrite: bool) -> Path:
    """The folder to build in, refused if anything but a store of ours is there."""
    target = storage.local_path(folder)
    source = folder_of(X)
    if source is not None and source.resolve().is_relative_to(target.resolve()):
        raise InputError(f"{target} cannot be made from itself; name another path.")
    if not os.path.lexists(target):
        if not target.parent.is_dir():
            raise InputError(f"there is no folder {str(target.parent)!r} to make {target.name} in.")
        return target
    storage.refuse_foreign(target)
    if overwrite:
        storage.refuse_unknown_files(target)
    elif not resume:
        raise OutputExistsError(
            f"{target} is a store already. Pass resume=True to go on with it, overwrite=True to "
            "replace it, or another path."
        )
    return target


def _panel_rows(target: Path, overwrite: bool) -> int | None:
    """Rows of a panel where a build goes on: it keeps to those it began with."""
    if not os.path.lexists(target):
        return None
    try:
        records = storage.read_journal(target)
    except DamagedStoreError:
        if overwrite:
            return None
        raise
    if overwrite and records.sealed:
        return None
    return storage.layout_of(storage.header_of(records)).panel_rows


def _make(
    target: Path,
    X: Any,
    job: Job,
    panels: PanelSource | HalfPanels,
    kind: str,
    description: dict[str, Any],
    keep_bits: KeepBits,
    overwrite: bool,
) -> DistanceMatrix:
    """Create the store or go on with it, fill it, seal it."""
    bits = checked_bits(keep_bits, panels.dtype)
    named = folder_of(X)
    keeps_points = kind == "points" and _small_beside(job)
    header = {
        "schema": storage.SCHEMA,
        "n": job.n,
        "dtype": panels.dtype.name,
        "panel_rows": job.plan.panel_rows,
        "keep_bits": bits,
        "relative_error": writing.rounding_error(bits, panels.relative_error),
        **description,
        "input": {
            "kind": kind,
            "digest": scan.content_digest(job.source, job.where),
            "shape": list(job.source.shape),
            "path": None if named is None else str(named),
            "kept": keeps_points,
        },
        "versions": {name: version(name) for name in ("silchunk", "zarr", "numpy")},
    }
    layout = storage.layout_of(header)
    if not _may_go_on(target, header, overwrite):
        size = storage.store_size(layout, keep_bits=bits, halves=isinstance(panels, HalfPanels))
        replaced = os.path.lexists(target)
        disk.preflight(target, *size, freed=_bytes_below(target) if replaced else 0)
        if replaced:
            _delete(target)
        storage.create_store(target, {**header, "store": uuid.uuid4().hex}, layout)
    with storage.locked(target):
        records = storage.read_journal(target)
        refuse_stale(target, storage.header_of(records), header)
        job.where.check_visible(target)
        storage.write_metadata(target, records)
        if records.sealed and not records.damaged_lines:
            return open_distances(target)
        journal.mend(records)
        storage.remove_parts(target)
        for panel in damaged_panels(target, records, layout, job.progress):
            del records.panels[panel]
        if keeps_points and not (target / storage.POINTS_FILE).exists():
            storage.keep_points(target, job.source)
        writing.fill(
            target,
            layout,
            records,
            panels,
            keep_bits=bits,
            plan=job.plan,
            where=job.where,
            progress=job.progress,
            label="distances",
            missing=[p for p in range(layout.n_panels) if p not in records.panels],
            record=lambda record: journal.append(records, [record]),
        )
        writing.remove_halves(target)
        journal.seal(records)
    return open_distances(target)


def _may_go_on(target: Path, header: dict[str, Any], overwrite: bool) -> bool:
    """Whether to go on with what is there, rather than to begin anew.

    With ``overwrite``, only with an unfinished build of the same: a job that is cut off and
    submitted again would otherwise never end.
    """
    if not os.path.lexists(target):
        return False
    if not overwrite:
        return True
    try:
        records = storage.read_journal(target)
        same = not differences(storage.header_of(records), header)
    except DamagedStoreError:
        return False
    return same and not records.sealed and records.metadata == storage.text_of(target / "zarr.json")


def _bytes_below(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _small_beside(job: Job) -> bool:
    n, width = job.source.shape
    return KEPT_SHARE * n * width * 8 <= n * n * job.plan.itemsize or n * width * 8 < 1 << 20


def _delete(target: Path) -> None:
    """Remove a store, file by file, touching nothing that silchunk did not make."""
    storage.refuse_unknown_files(target)
    with storage.locked(target):
        shutil.rmtree(target)
