"""What a bound would take, before it is computed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from silchunk.blas import one_blas_thread
from silchunk.bound_jobs import prepared_job, whole_curve_pays
from silchunk.constraints import Sizes, size_range
from silchunk.engine import Scheduler
from silchunk.metric_kinds import PairwiseMetric
from silchunk.plan import Plan
from silchunk.prepare import Arguments
from silchunk.progress import Progress
from silchunk.reduction import ReduceRows, Wanted
from silchunk.storage import Layout, store_size


@dataclass(frozen=True)
class Estimate:
    """What a bound would take.

    Attributes
    ----------
    plan : Plan
        How the job would be cut, and its memory.
    seconds : float
        Time that a sample of the panels suggests.
    stored_bytes, stored_files : int
        What the distances would take at most as a store, in ``dtype`` or by default float32,
        while it is built; see `build_distances`.
    """

    plan: Plan
    seconds: float
    stored_bytes: int
    stored_files: int


def estimate_bounds(
    X: Any,
    *,
    metric: str | Callable[..., float] = "euclidean",
    min_cluster_size: Sizes = 1,
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

    Returns
    -------
    Estimate
    """
    arguments = Arguments(metric, metric_params, dtype, False, memory, False, scheduler)

    def wanted_of(n: int) -> Wanted:
        within = size_range(min_cluster_size, None, n)
        return Wanted(within, curve=whole_curve_pays(len(within.smallest)))

    with prepared_job(X, arguments, wanted_of) as (job, wanted, _):
        reduce_rows = ReduceRows(job.panels, wanted)
        with one_blas_thread():
            reduce_rows(0, min(job.n, 8))  # compiles the kernels
        sample = job.plan.panels()[: job.where.processes * job.plan.concurrency]
        began = time.perf_counter()
        job.map(reduce_rows, lambda _, reduced: None, "sample panels", sample)
        elapsed = time.perf_counter() - began
        stored_as = np.dtype(np.float32 if dtype is None else dtype)
        layout = Layout(job.n, stored_as, job.plan.panel_rows)
        slow = isinstance(getattr(job.panels, "metric", None), PairwiseMetric)
        size = store_size(layout, halves=slow)
        return Estimate(job.plan, elapsed * job.n / sample[-1][1], *size)
