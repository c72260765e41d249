"""Making distance stores: from points, from an existing matrix, and back to plain files."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from silchunk import engine, journal, scan, store, writing
from silchunk.condensed import condensed_rows
from silchunk.distances import DistanceMatrix, find_store, open_distances
from silchunk.engine import Scheduler
from silchunk.errors import (
    InputError,
    OutputExistsError,
)
from silchunk.metrics import PairwiseMetric
from silchunk.panels import MatrixPanels, PanelSource, PointPanels
from silchunk.points import scratch_folder
from silchunk.prepare import Arguments, Job, prepared
from silchunk.progress import Progress
from silchunk.provenance import KeepBits, checked_bits, code_digest, refuse_stale
from silchunk.symmetric import HalfPanels, UpperPanels, symmetric_panels

# Points are kept in the store unless they are larger than this part of it.
KEPT_SHARE = 4


def build_distances(
    X: Any,
    path: str | os.PathLike[str],
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
    path : path
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
        ``path`` holds something that silchunk did not make.
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
    target = _target(path, X, resume=resume, overwrite=overwrite)
    if metric == "precomputed" or find_store(X) is not None:
        raise InputError("X is a matrix of distances already: use import_distances.")
    bits = checked_bits(keep_bits, dtype)
    arguments = Arguments(metric, metric_params, dtype, True, memory, progress, scheduler)
    with _prepared(X, arguments, target, overwrite) as job:
        assert isinstance(job.panels, PointPanels)
        made = job.panels
        panels = symmetric_panels(made.points, made.metric, made.dtype, made.read_rows)
        resolved = made.metric.params if isinstance(made.metric, PairwiseMetric) else {}
        description = {
            "metric": job.metric_name,
            "metric_params": store.params_to_json(metric_params or {}),
            "metric_is_callable": callable(metric),
            "metric_code": code_digest(metric),
            "resolved_params": {} if callable(metric) else store.params_to_json(resolved),
        }
        kind = "points"
        return _make(target, X, job, panels, kind, description, bits, overwrite)


def import_distances(
    matrix: Any,
    path: str | os.PathLike[str],
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
    path : path
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
    target = _target(path, matrix, resume=resume, overwrite=overwrite)
    arguments = Arguments("precomputed", None, dtype, validate, memory, progress, scheduler)
    with scratch_folder(engine.scratch_parent()) as scratch:
        elsewhere = engine.executor(scheduler).distributed
        condensed = condensed_rows(matrix, scratch, as_file=elsewhere)
        given = matrix if condensed is None else condensed
        with _prepared(given, arguments, target, overwrite) as job:
            bits = checked_bits(keep_bits, job.panels.dtype)
            description = {
                "metric": "precomputed",
                "metric_params": {},
                "metric_is_callable": False,
                "metric_code": "",
                "resolved_params": {},
            }
            panels: PanelSource = job.panels
            if not (isinstance(panels, MatrixPanels) and panels.symmetric):
                panels = UpperPanels(job.source, panels.dtype)
            return _make(target, matrix, job, panels, "matrix", description, bits, overwrite)


def _target(path: str | os.PathLike[str], X: Any, *, resume: bool, overwrite: bool) -> Path:
    """The folder to build in, refused if anything but a store of ours is there."""
    target = store.local_path(path)
    source = X.path if isinstance(X, DistanceMatrix) else X
    if isinstance(source, (str, os.PathLike)):
        own = Path(os.path.realpath(target))
        if Path(os.path.realpath(source)).is_relative_to(own):
            raise InputError(f"{target} cannot be made from itself; name another path.")
    if not os.path.lexists(target):
        if not target.parent.is_dir():
            raise InputError(f"there is no folder {str(target.parent)!r} to make {target.name} in.")
        return target
    store.refuse_foreign(target)
    if overwrite:
        store.refuse_unknown_files(target)
    elif not resume:
        raise OutputExistsError(
            f"{target} is a store already. Pass resume=True to go on with it, overwrite=True to "
            "replace it, or another path."
        )
    return target


@contextmanager
def _prepared(X: Any, arguments: Arguments, target: Path, overwrite: bool) -> Iterator[Job]:
    rows = None
    if os.path.lexists(target) and not overwrite:
        # A build that goes on keeps to the panels it began with.
        rows = int(store.header_of(store.read_journal(target))["panel_rows"])
    with prepared(
        X,
        arguments,
        panel_copies=writing.PANEL_COPIES,
        panel_rows=rows,
    ) as job:
        yield job


def _make(
    target: Path,
    X: Any,
    job: Job,
    panels: PanelSource | HalfPanels,
    kind: str,
    description: dict[str, Any],
    keep_bits: int | None,
    overwrite: bool,
) -> DistanceMatrix:
    """Create the store or go on with it, fill it, seal it."""
    original = os.path.abspath(X) if isinstance(X, (str, os.PathLike)) else None
    keeps_points = kind == "points" and _small_beside(job)
    header = {
        "schema": store.SCHEMA,
        "n": job.n,
        "dtype": panels.dtype.name,
        "panel_rows": job.plan.panel_rows,
        "keep_bits": keep_bits,
        "relative_error": writing.rounding_error(keep_bits),
        **description,
        "input": {
            "kind": kind,
            "digest": scan.content_digest(job.source, job.where),
            "shape": list(job.source.shape),
            "path": original,
            "kept": keeps_points,
        },
        "versions": {name: version(name) for name in ("silchunk", "zarr", "numpy")},
    }
    layout = store.layout_of(header)
    if os.path.lexists(target) and overwrite:
        _delete(target)
    if not os.path.lexists(target):
        store.preflight(target, *store.store_size(layout, halves=isinstance(panels, HalfPanels)))
        store.create_store(target, {**header, "store": uuid.uuid4().hex}, layout)
    with store.locked(target):
        records = store.read_journal(target)
        refuse_stale(target, store.header_of(records), header)
        store.write_metadata(target, records)
        if records.sealed and not records.damaged_lines:
            return open_distances(target)
        journal.mend(records)
        _forget_damaged(target, records, layout)
        if keeps_points and not (target / store.POINTS_FILE).exists():
            store.keep_points(target, job.source)
        writing.fill(
            target,
            layout,
            records,
            panels,
            keep_bits=keep_bits,
            plan=job.plan,
            where=job.where,
            progress=job.progress,
            label="distances",
        )
        writing.remove_halves(target)
        journal.seal(records)
    return open_distances(target)


def _small_beside(job: Job) -> bool:
    n, width = job.source.shape
    return KEPT_SHARE * n * width * 8 <= n * n * job.plan.itemsize or n * width * 8 < 1 << 20


def _forget_damaged(target: Path, records: journal.Journal, layout: store.Layout) -> None:
    """Drop the records of panels whose files are not what was recorded: they are made again."""
    for panel in list(records.panels):
        if panel >= layout.n_panels or store.panel_fault(target, records, panel) is not None:
            del records.panels[panel]


def _delete(target: Path) -> None:
    """Remove a store, file by file, touching nothing that silchunk did not make."""
    store.refuse_unknown_files(target)
    with store.locked(target):
        shutil.rmtree(target)
