"""What a bound, or a store of distances, would take, before it is computed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from silchunk import engine, shard
from silchunk.blas import one_blas_thread
from silchunk.bound_jobs import needs_of, prepared_job, whole_curve_pays
from silchunk.buffers import borrowed
from silchunk.constraints import Sizes, size_range
from silchunk.distances import find_store
from silchunk.engine import Scheduler
from silchunk.errors import InputError
from silchunk.metric_kinds import PairwiseMetric
from silchunk.panels import FromPoints, PanelSource, PointPanels
from silchunk.plan import Plan, plan_panels
from silchunk.points import as_rows
from silchunk.prepare import Arguments, Job, Needs, prepared
from silchunk.progress import Progress
from silchunk.reduction import ReduceRows, Wanted
from silchunk.storage import Layout, store_size
from silchunk.symmetric import HalfPanels, symmetric_panels
from silchunk.writing import PANEL_COPIES

# Panels are measured for so long, or one of each thread where that takes longer.
SAMPLE_SECONDS = 0.5
# Rows that are computed before, so that kernels are compiled.
FIRST_ROWS = 8


@dataclass(frozen=True)
class Estimate:
    """What a bound or a store would take.

    Attributes
    ----------
    plan : Plan
        How the job would be cut, and its memory.
    seconds : float
        Time that a sample of the panels suggests; of a store, without what its disk takes.
    stored_bytes, stored_files : int
        What the distances would take at most as a store, in ``dtype`` or by default float32,
        while it is built; see `build_distances`.
    row_seconds : float
        Time that one thread took for one row, all others being at work too.
    """

    plan: Plan
    seconds: float
    stored_bytes: int
    stored_files: int
    row_seconds: float
    # What `plan_panels` is given for this job on a cluster, but for budget and concurrency.
    _sizes: Mapping[str, Any] = field(repr=False)
    _in_order: bool = field(repr=False)  # whether results are taken in the order of panels

    def plan_on_workers(self, budget_bytes: int, concurrency: int) -> Plan:
        """The plan that this job will have on a cluster.

        Parameters
        ----------
        budget_bytes : int
            What ``memory=`` will be, of each worker process.
        concurrency : int
            Threads of each worker.

        Raises
        ------
        OverBudgetError
            Not even one panel fits.
        """
        return plan_panels(**self._sizes, budget_bytes=budget_bytes, concurrency=concurrency)

    @property
    def from_points(self) -> bool:
        """Whether distances are computed from points rather than read from a matrix."""
        return bool(self._sizes["from_points"])

    def waiting_bytes(self, plan: Plan) -> int:
        """Most that the driver holds of one panel's result while it waits for those before it."""
        if not self._in_order:
            return 0
        rows = plan.panel_rows * int(self._sizes["row_results"])
        return 8 * (rows + plan.n * int(self._sizes["outputs"]))


def estimate_bounds(
    X: Any,
    *,
    metric: str | Callable[..., float] = "euclidean",
    min_cluster_size: Sizes = 1,
    curve: bool | None = None,
    metric_params: Mapping[str, Any] | None = None,
    dtype: Any = None,
    validate: bool = True,
    memory: int | str | None = None,
    progress: Progress = None,
    scheduler: Scheduler = None,
) -> Estimate:
    """Plan a bound of ``X`` and measure a few of its panels, without doing the rest.

    Parameters and errors are those of `silhouette_upper_bound`. A matrix is not checked here,
    and the time of its check is not part of the estimate.

    Parameters
    ----------
    curve : bool, optional
        Whether bounds for all sizes are wanted, as by `silhouette_bounds` and ``silchunk bound``;
        by default where `silhouette_upper_bound` would take them from the curve.

    Returns
    -------
    Estimate
    """
    arguments = Arguments(metric, metric_params, dtype, False, memory, False, scheduler)

    def wanted_of(n: int) -> Wanted:
        within = size_range(min_cluster_size, None, n)
        whole = whole_curve_pays(len(within.smallest)) if curve is None else curve
        return Wanted(within, curve=whole)

    with prepared_job(X, arguments, wanted_of) as (job, wanted, _):
        reduce_rows = ReduceRows(job.panels, wanted)
        stored_as = np.dtype(np.float32 if dtype is None else dtype)
        needs = needs_of(job.n, wanted)
        slow = isinstance(getattr(job.panels, "metric", None), PairwiseMetric)
        return _estimate(X, job, needs, 1, reduce_rows, stored_as, halves=slow)


def estimate_distances(
    X: Any,
    *,
    metric: str | Callable[..., float] = "euclidean",
    metric_params: Mapping[str, Any] | None = None,
    dtype: Any = "float32",
    memory: int | str | None = None,
    scheduler: Scheduler = None,
) -> Estimate:
    """Plan a store of the distances of ``X``, and compute and compress a few of its panels,
    without writing them.

    Parameters and errors are those of `build_distances`.

    Returns
    -------
    Estimate
    """
    if metric == "precomputed" or find_store(X) is not None:
        raise InputError("X is a matrix of distances already: there is nothing to estimate.")
    arguments = Arguments(metric, metric_params, dtype, True, memory, False, scheduler)
    with prepared(X, arguments, panel_copies=PANEL_COPIES) as job:
        assert isinstance(job.panels, PointPanels)
        made = job.panels
        panels = symmetric_panels(made.points, made.metric, made.dtype, made.read_rows)
        layout = Layout(job.n, made.dtype, job.plan.panel_rows)
        encode, halves = _EncodePanel(panels, layout), isinstance(panels, HalfPanels)
        return _estimate(X, job, Needs(), PANEL_COPIES, encode, made.dtype, halves=halves)


@dataclass(frozen=True)
class _EncodePanel:
    """Panel task: make a panel of a store and compress it."""

    panels: PanelSource | HalfPanels
    layout: Layout

    def __call__(self, start: int, stop: int) -> int:
        layout = self.layout
        with borrowed((stop - start, layout.n), layout.dtype) as distances:
            if isinstance(self.panels, HalfPanels):
                distances[:, :start] = 0
            self.panels.read(start, stop, distances)
            parts = shard.encode(distances, layout.shard_shape, layout.chunk_columns, None)
            return sum(map(len, parts))


def _estimate(
    X: Any,
    job: Job,
    needs: Needs,
    panel_copies: int,
    task: engine.Task,
    stored_as: np.dtype[Any],
    *,
    halves: bool,
) -> Estimate:
    row_seconds, stores = _row_seconds(job, task), isinstance(task, _EncodePanel)
    if stores and halves:  # each pair once: the first rows have all columns, the last none
        row_seconds /= 2
    source = find_store(X) or as_rows(X)  # `job.source` may be a copy in memory
    sizes = {
        "n": job.n,
        "width": source.shape[1],
        "itemsize": job.plan.itemsize,
        "from_points": isinstance(job.panels, FromPoints),
        "resident_bytes": needs.result_bytes,  # input stays in its file
        "chunk_rows": source.chunk_rows,
        "outputs": needs.outputs,
        "row_results": needs.row_results,
        "panel_copies": panel_copies,
        "runtime_bytes": job.plan.runtime_bytes,
    }
    size = store_size(Layout(job.n, stored_as, job.plan.panel_rows), halves=halves)
    seconds = row_seconds * job.n / _at_once(job)
    return Estimate(job.plan, seconds, *size, row_seconds, _sizes=sizes, _in_order=not stores)


def _at_once(job: Job) -> int:
    return min(job.where.processes * job.plan.concurrency, job.plan.n_panels)


def _row_seconds(job: Job, task: engine.Task) -> float:
    """Seconds of one thread for a row, from panels of all threads; of short ones, from several."""
    at_once, panels = _at_once(job), job.plan.panels()
    with one_blas_thread():
        task(0, min(job.n, FIRST_ROWS))  # compiles the kernels
    if job.where.distributed:  # and there they are loaded
        few = [(0, min(job.n, FIRST_ROWS))] * (2 * at_once)
        job.map(task, lambda _, result: None, "first rows", few)
    sample = panels[:at_once]
    seconds = _seconds(job, task, sample)
    # What a run takes to begin weighs on a short one.
    more = panels[at_once : at_once * (1 + math.ceil(SAMPLE_SECONDS / seconds))]
    if seconds < SAMPLE_SECONDS and len(more) >= at_once:
        sample = more
        seconds = _seconds(job, task, sample)
    return seconds * at_once / (sample[-1][1] - sample[0][0])


def _seconds(job: Job, task: engine.Task, sample: list[tuple[int, int]]) -> float:
    began = time.perf_counter()
    job.map(task, lambda _, result: None, "sample panels", sample)
    return time.perf_counter() - began
