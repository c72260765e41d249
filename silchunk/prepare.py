"""From a user's arguments to row panels that are ready to be mapped: read, plan, check.

Every function that reduces distances starts here, so that all of them take the same input and
the same keywords and refuse the same mistakes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from silchunk import engine, metric_kinds, metrics, plan, precomputed, scan
from silchunk.distances import DistanceMatrix, files_of, find_store
from silchunk.engine import Scheduler
from silchunk.errors import InputError, warn
from silchunk.inbox import Consume
from silchunk.labels import StoredVector
from silchunk.panels import FromPoints, MatrixPanels, PanelSource, PointPanels
from silchunk.plan import PanelRange
from silchunk.points import as_rows
from silchunk.progress import Progress
from silchunk.readers import libraries_of
from silchunk.readers.libraries import bytes_of
from silchunk.row_table import RowTable
from silchunk.rows import (
    DaskRows,
    RememberedRows,
    RowSource,
    float_dtype,
    in_memory,
    on_disk,
    scratch_folder,
)

Vector = np.ndarray[Any, np.dtype[Any]]

# Each takes 50 MiB or more once it is loaded, and stays.
LARGE_LIBRARIES = frozenset({"numba", "scipy", "sklearn", "pandas", "pyarrow"})
# Input of up to this part of the budget is held in memory, so that it is read from disk once.
HELD_SHARE = 8
# Nor is it to take what tasks need where a budget is not much above what the libraries take.
HELD_SHARE_BEYOND = 4
# The same where there are several passes, whose tasks need little.
REMEMBERED_SHARE_BEYOND = 2
# Metrics whose parameters, unless given, come from all points, as scikit-learn has it.
FITTED_METRICS = ("seuclidean", "mahalanobis")


@dataclass(frozen=True)
class Arguments:
    """The keywords that every function with distances takes."""

    metric: str | Callable[..., float] = "euclidean"
    metric_params: Mapping[str, Any] | None = None
    dtype: Any = None
    validate: bool = True
    memory: int | str | None = None
    progress: Progress = None
    scheduler: Scheduler = None
    certify: bool = False


@dataclass(frozen=True)
class Needs:
    """What a function keeps of each row and point, known once n is."""

    outputs: int = 1  # as in `plan_panels`
    row_results: int = 1  # as in `plan_panels`
    result_bytes: int = 0  # of results that are held throughout
    table_columns: int = 0  # numbers per point that may lie in a file where they are many
    compiled: bool = True  # whether it takes kernels that numba compiles
    runtime_bytes: int = 0  # of further libraries that are loaded for it
    labels: Any = None  # as they are given: a library may be loaded to read them
    sampled_rows: int | None = None  # as in `plan_panels`
    clusters: int = 0  # as in `plan_panels`
    panel_rows: int | None = None  # as in `plan_panels`, where it has to be just so
    point_copies: int = 0  # of all points that are held beside the input
    centres: int = 0  # as in `plan_panels`
    sample_bytes: Callable[[int], int] | None = None  # of points that are held, by features
    passes: int = 1  # over the points; where there are more, more of them are held


@dataclass(frozen=True)
class Job:
    """Panels that are checked, planned and ready to be mapped."""

    panels: PanelSource
    plan: plan.Plan
    where: engine.Executor
    progress: Progress
    metric_name: str
    source: RowSource
    # Largest relative error of the distances: of stored ones, of computed ones where they are to be
    # certified.
    relative_error: float
    certified_for: str | None  # "points" or "distances", where bounds are to be certified
    table: RowTable
    scratch: Path  # for files that live as long as the job
    held_bytes: int  # what may be held in memory beyond what is planned for a task

    @property
    def n(self) -> int:
        """Number of points."""
        return self.plan.n

    def panels_of(self, rows: Vector | None) -> list[PanelRange]:
        """The panels that hold sampled ``rows``, ascending; all where none are sampled, or where
        panels are those of the sample."""
        panels = self.plan.panels()
        if rows is None or isinstance(self.panels, FromPoints):
            return panels
        firsts = np.searchsorted(rows, [start for start, _ in panels] + [self.n])
        return [panels[i] for i in np.flatnonzero(np.diff(firsts))]

    def shared(self, vector: Vector, name: str) -> Vector | StoredVector:
        """One number for each point as tasks are to carry it: as it is, or in a file that workers
        read."""
        if not self.where.distributed:
            return vector
        path = self.scratch / f"{name}.npy"
        np.save(path, vector)
        return StoredVector(str(path))

    def map(
        self,
        task: engine.Task,
        consume: Consume,
        label: str,
        panels: Sequence[PanelRange] | None = None,
    ) -> None:
        """Run ``task`` over all panels, or those given; see `silchunk.engine.map_panels`."""
        engine.map_panels(
            task,
            self.plan.panels() if panels is None else panels,
            consume,
            where=self.where,
            concurrency=self.plan.concurrency,
            progress=self.progress,
            label=label,
            task_bytes=self.plan.task_bytes,
        )


@contextmanager
def opened(X: Any, arguments: Arguments) -> Iterator[RowSource]:
    """``X`` for several jobs, one after the other: a Dask array is computed once for all."""
    kept = find_store(X)
    source: RowSource = kept or as_rows(X)
    if not isinstance(source, DaskRows):
        yield source
        return
    where = engine.executor(arguments.scheduler)
    held_bytes = _held_bytes(engine.byte_budget(arguments.memory, where))
    with scratch_folder(engine.scratch_parent()) as scratch, where.current():
        yield source.computed(scratch, 0 if where.distributed else held_bytes)


@contextmanager
def prepared(
    X: Any,
    arguments: Arguments,
    *,
    needs_of: Callable[[int], Needs] = lambda n: Needs(),
    panel_copies: int = 1,
    panel_rows: int | None = None,
    least_points: int = 2,
) -> Iterator[Job]:
    """Read, plan and check ``X``; temporary files live as long as the context.

    Parameters
    ----------
    X : points (n, d) or, with ``metric="precomputed"``, a distance matrix (n, n)
    arguments : Arguments
    needs_of : callable
        Called with n before any pass over the data; also refuses arguments that do not go with it.
    panel_copies, panel_rows : int
        As in `silchunk.plan.plan_panels`.
    least_points : int
        Fewer are refused.
    """
    if not isinstance(arguments.metric_params, (Mapping, type(None))):
        raise InputError(f"metric_params must be a dict; got {arguments.metric_params!r}.")
    kept = find_store(X)
    name = _metric_name(arguments, kept)  # as `metric_of` has it
    where = engine.executor(arguments.scheduler)
    budget = engine.byte_budget(arguments.memory, where)
    held_bytes = _held_bytes(budget - bytes_of(libraries_of(X)))
    with scratch_folder(engine.scratch_parent()) as scratch, where.current():
        source = kept or as_rows(X)
        dtype = _panel_dtype(arguments, source, name)
        if name == "precomputed":
            precomputed.check_square(source, "X")
        n, width = source.shape
        if n < least_points:
            raise InputError(f"X has {n} point; {least_points} are needed at least.")
        needs = needs_of(n)
        reading = libraries_of(X) | libraries_of(needs.labels)
        # Held in memory: what is there already, and what is small enough to be read once.
        nbytes = n * width * 8
        held = nbytes <= held_bytes and not where.distributed
        held = held and (name != "precomputed" or isinstance(source, DaskRows))
        remembered = 0
        if not held and needs.passes > 1 and _may_be_remembered(source, where):
            needed = n * (width * float_dtype(source.dtype).itemsize + 1)
            most = _rememberable_bytes(budget - bytes_of(reading))
            remembered = needed if needed <= most else 0
        input_bytes = max(source.resident_bytes, remembered, nbytes if held else 0)
        rows = n if needs.sampled_rows is None else needs.sampled_rows
        table_bytes = 8 * rows * needs.table_columns
        table_in_memory = table_bytes <= held_bytes
        job_plan = plan.plan_panels(
            n=n,
            width=width,
            itemsize=dtype.itemsize,
            budget_bytes=budget,
            concurrency=where.concurrency,
            from_points=name != "precomputed",
            resident_bytes=(0 if where.distributed else input_bytes)
            + needs.result_bytes
            + needs.point_copies * nbytes
            + (0 if needs.sample_bytes is None else needs.sample_bytes(width))
            + (table_bytes if table_in_memory else 0),
            chunk_rows=source.chunk_rows,
            outputs=needs.outputs,
            row_results=needs.row_results,
            panel_copies=panel_copies,
            panel_rows=panel_rows or needs.panel_rows,
            sampled_rows=needs.sampled_rows,
            clusters=needs.clusters,
            centres=needs.centres,
            runtime_bytes=needs.runtime_bytes
            + _runtime_bytes(name, compiled=needs.compiled or where.distributed, reading=reading),
        )
        if isinstance(source, DaskRows):
            source = source.computed(scratch, held_bytes if held else 0)
        elif held:
            source = in_memory(source)
        elif remembered:
            source = RememberedRows.of(source)
        if where.distributed:
            where.check_visible(scratch, *files_of(source))
            source = on_disk(source, scratch)
        if name == "precomputed":
            if arguments.metric_params:
                raise InputError('metric="precomputed" takes no metric_params.')
            # Taken at its word where it is not to be validated.
            exact = not arguments.validate or kept is not None
            if arguments.validate and kept is None:  # what is kept was checked when it was made
                exact = precomputed.check_matrix(
                    source,
                    name="X",
                    where=where,
                    side=job_plan.check_rows,
                    concurrency=job_plan.concurrency,
                    progress=arguments.progress,
                    dtype=dtype,
                )
            panels: PanelSource = MatrixPanels(source, dtype, exact)
            if kept is not None and kept.dtype == dtype:
                panels = kept
        else:
            panels = _point_panels(source, dtype, job_plan, where, arguments)
        yield Job(
            panels,
            job_plan,
            where,
            arguments.progress,
            kept.metric if kept else name,
            source,
            *_certificate(panels, arguments, name),
            RowTable(needs.table_columns, None if table_in_memory else scratch / "table.npy", rows),
            scratch,
            held_bytes,
        )


def _held_bytes(budget: int) -> int:
    """What of the input, and of a table of results, may be held in memory."""
    beyond_libraries = max(0, budget - plan.RUNTIME_BYTES)
    return min(max(0, budget) // HELD_SHARE, beyond_libraries // HELD_SHARE_BEYOND)


def _rememberable_bytes(budget: int) -> int:
    """What of the input may be held where several passes over it leave tasks little to hold."""
    return max(0, budget - plan.RUNTIME_BYTES) // REMEMBERED_SHARE_BEYOND


def _may_be_remembered(source: RowSource, where: engine.Executor) -> bool:
    return not (where.distributed or source.resident_bytes or isinstance(source, DaskRows))


def metric_of(X: Any, arguments: Arguments) -> str:
    """The metric's canonical name; "precomputed" for a stored matrix too."""
    return _metric_name(arguments, find_store(X))


def _metric_name(arguments: Arguments, kept: DistanceMatrix | None) -> str:
    """A stored matrix is precomputed; its own metric may be named, and no other."""
    name = metrics.canonical_name(arguments.metric)
    if kept is None:
        return name
    if name not in ("precomputed", kept.metric, Arguments.metric):
        raise InputError(
            f"X is a stored matrix of {kept.metric} distances; metric={name!r} cannot be "
            "measured in it. Pass the points, or leave metric= out."
        )
    return "precomputed"


def _panel_dtype(arguments: Arguments, source: RowSource, name: str) -> np.dtype[Any]:
    """The dtype asked for, or that of the input; what is certified is not rounded to float32."""
    single, double = np.dtype(np.float32), np.dtype(np.float64)
    exact = float_dtype(source.dtype) if name == "precomputed" else double
    if arguments.dtype is None:
        return exact if arguments.certify else float_dtype(source.dtype)
    try:
        wanted = np.dtype(arguments.dtype)
    except TypeError:
        wanted = np.dtype(object)
    if wanted not in (single, double):
        raise InputError(f"dtype must be 'float32' or 'float64'; got {arguments.dtype!r}.")
    if arguments.certify and wanted.itemsize < exact.itemsize:
        raise InputError('certify=True works in float64: leave out dtype="float32".')
    return single if wanted == single else double


def _certificate(panels: PanelSource, arguments: Arguments, name: str) -> tuple[float, str | None]:
    """Largest relative error of the distances that is to be accounted for, and what bounds then
    hold for."""
    if not arguments.certify:
        return panels.relative_error, None
    if not isinstance(panels, FromPoints):
        return panels.relative_error, "distances"
    proven = panels.metric.relative_error
    if proven is None:
        warn(
            f"the rounding error of {name} distances is not proven: certify=True holds for the "
            "distances as computed, not for the points. It does for euclidean, sqeuclidean, "
            "manhattan, chebyshev and nan_euclidean."
        )
        return panels.relative_error, "distances"
    return proven, "points"


def _runtime_bytes(name: str, *, compiled: bool, reading: set[str]) -> int:
    """Of the libraries that reading and a metric take, and of numba where something is compiled; as
    much where this process has loaded a library as large for other reasons."""
    others = LARGE_LIBRARIES & sys.modules.keys()
    if "pyarrow" in reading:
        others -= {"pyarrow", "pandas"}
    found = plan.RUNTIME_BYTES if compiled or others else plan.UNCOMPILED_BYTES
    if name not in metrics.CORE_METRICS and name != "precomputed":
        found += plan.SCIKIT_LEARN_BYTES
    return found + bytes_of(reading)


def _point_panels(
    source: RowSource,
    dtype: np.dtype[Any],
    job_plan: plan.Plan,
    where: engine.Executor,
    arguments: Arguments,
) -> PanelSource:
    name = metrics.canonical_name(arguments.metric)
    params = dict(arguments.metric_params or {})
    read_rows = job_plan.read_rows
    frame = scan.scan_points(
        source,
        name="X",
        where=where,
        read_rows=read_rows,
        allow_missing=metrics.allows_missing(name),
    )
    scan.warn_if_square(source, "X")
    if name == "cosine":
        scan.refuse_zero_rows(source, name="X", where=where, read_rows=read_rows)
    if name in FITTED_METRICS and not params:
        params = _fitted_params(name, source, frame, where, read_rows)
    metric = metrics.make_metric(
        arguments.metric, params, frame, source, dtype, proven=arguments.certify
    )
    if isinstance(metric, metric_kinds.PairwiseMetric):
        if metric.boolean and source.dtype.kind != "b":
            warn(
                f"metric {name!r} compares booleans: every value of X other than 0 counts as True."
            )
        if callable(arguments.metric):
            metrics.check_callable(arguments.metric, params, source)
        else:
            metrics.try_metric(metric, source)
    return PointPanels(source, metric, dtype, read_rows)


def _fitted_params(
    name: str, source: RowSource, frame: metric_kinds.Frame, where: engine.Executor, read_rows: int
) -> dict[str, Any]:
    """Parameters that scikit-learn takes from the whole data set, not from a tile of it."""
    covariance = scan.covariance(source, frame, where=where, read_rows=read_rows)
    if name == "seuclidean":
        return {"V": np.diagonal(covariance).copy()}
    try:
        return {"VI": np.linalg.inv(covariance).T}
    except np.linalg.LinAlgError as error:
        raise InputError(
            "metric 'mahalanobis': the covariance of X is singular. Pass "
            'metric_params={"VI": ...}, or drop features that depend on others.'
        ) from error
