"""The upper bound of the silhouette: what no clustering of this data set can exceed.

Sträng & Dinh, "An upper bound of the silhouette validation metric for clustering", Pattern
Recognition 178 (2026) 113402, arXiv:2509.08625.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from silchunk.blas import one_blas_thread
from silchunk.bound_result import BoundResult, Sizes, Vector, checked_sizes, outward
from silchunk.buffers import borrowed
from silchunk.engine import Scheduler
from silchunk.kernels import bound as kernel
from silchunk.metric_kinds import PairwiseMetric
from silchunk.panels import PanelSource
from silchunk.plan import LEAF_ROWS, Plan, ranges
from silchunk.prepare import Arguments, Job, prepared
from silchunk.progress import Progress
from silchunk.storage import Layout, store_size
from silchunk.sums import AlignedSum, Node

# Rows are sorted and reduced this many bytes at a time.
CACHED_BYTES = 256 << 10

Metric = str | Callable[..., float]


@dataclass(frozen=True)
class _ReducedRows:
    bounds: Vector  # (r, s): of each row, for each size
    totals: list[Node]  # of the curve, over aligned leaves of rows


@dataclass(frozen=True)
class _ReduceRows:
    """Panel task: read or compute a panel, sort its rows, reduce each to its point bounds."""

    panels: PanelSource
    sizes: tuple[int, ...]
    curve: bool

    def __call__(self, start: int, stop: int) -> _ReducedRows:
        bounds = np.empty((stop - start, len(self.sizes)))
        sums = AlignedSum()
        with borrowed((stop - start, self.panels.n), self.panels.dtype) as panel:
            self.panels.read(start, stop, panel)
            for first, last in ranges(stop - start, LEAF_ROWS):
                total = np.zeros(self.panels.n // 2 if self.curve else 0)
                self._reduce(panel[first:last], bounds[first:last], total)
                if self.curve:
                    sums.add(Node(0, total))
        return _ReducedRows(bounds, sums.nodes)

    def _reduce(self, leaf: Vector, bounds: Vector, total: Vector) -> None:
        """Sort and reduce a few rows at a time, so that they are still in cache when reduced."""
        step = max(1, CACHED_BYTES // (leaf.shape[1] * leaf.itemsize))
        sizes = np.array(self.sizes, np.int64)
        for first, last in ranges(len(leaf), step):
            rows, out = leaf[first:last], bounds[first:last]
            rows.sort(axis=1)  # the point itself, at distance 0, comes first
            if self.curve:
                kernel.constraint_curve(rows, sizes, out, total)
            else:
                kernel.point_bounds(rows, self.sizes[0], out[:, 0])


def silhouette_upper_bound(
    X: Any,
    *,
    metric: Metric = "euclidean",
    min_cluster_size: Sizes = 1,
    metric_params: Mapping[str, Any] | None = None,
    dtype: Any = None,
    validate: bool = True,
    memory: int | str | None = None,
    progress: Progress = None,
    scheduler: Scheduler = None,
) -> Any:
    """Upper bound of the average silhouette width over all clusterings of ``X``.

    Parameters
    ----------
    X : array of shape (n, d), or (n, n) with ``metric="precomputed"``
        Points: an array, the path of a ``.npy`` file or a Zarr array, a Zarr array or store, a
        Dask array, or anything array-like. n is at least 2.
    metric : str or callable
        "euclidean", "sqeuclidean", "cosine", "manhattan", "chebyshev" (fast), any other name of
        ``sklearn.metrics.pairwise_distances``, a callable of two points, or "precomputed".
    min_cluster_size : int or sequence of int
        Least size m that a cluster may have, 1 ≤ m ≤ n/2. Several cost one pass, not one each.
    metric_params : dict, optional
        Further arguments of the metric.
    dtype : "float32" or "float64", optional
        Of the distances; default float32 for float32 input, else float64. Sums are in float64.
    validate : bool
        Whether to check a precomputed matrix (square, finite, ≥ 0, zero diagonal, symmetric).
    memory : int or str, optional
        Most bytes one process may use, interpreter and input included: ``"1GiB"``. Default 60%
        of what the machine, its control group or the workers allow.
    progress : bool or callable, optional
        True: a bar on a terminal, else lines on standard error. None: a bar on a terminal, else
        the log. A callable gets (panels done, panels in all).
    scheduler : "threads", "synchronous" or distributed.Client, optional
        Default: the active client if there is one, else threads.

    Returns
    -------
    float, or float64 array of shape (len(min_cluster_size),)
        In [0, 1]. No clustering (with clusters of that size or larger) scores above it; computed
        values are exact for the distances in ``dtype`` up to `numerical_slack`.

    Raises
    ------
    InputError
        Wrong shape, NaN or infinity, unknown metric, size out of range, no distance matrix.
    OverBudgetError
        If the plan cannot fit into ``memory``; before any work.

    Notes
    -----
    Time O(n² (d + log n)), one pass; memory O(n) for each row of a panel, never O(n²).

    References
    ----------
    Sträng & Dinh, Pattern Recognition 178 (2026) 113402, arXiv:2509.08625.

    Examples
    --------
    >>> from silchunk import silhouette_upper_bound
    >>> points = [[0.2], [0.1], [0.12], [1.34], [1.11], [1.6]]
    >>> round(silhouette_upper_bound(points), 4)
    0.8652
    >>> silhouette_upper_bound(points, min_cluster_size=[1, 3]).round(4)
    array([0.8652, 0.8335])
    """
    arguments = Arguments(metric, metric_params, dtype, validate, memory, progress, scheduler)
    if _is_one(min_cluster_size):
        return float(_mean_over_rows(_point_bounds(X, arguments, min_cluster_size))[0])
    with _bound_job(X, arguments, min_cluster_size, curve=True, keep=1) as (job, sizes):
        _, curve = _reduce(job, sizes[:1], curve=True)
        return curve[np.array(sizes) - 1]


def silhouette_upper_bound_samples(
    X: Any,
    *,
    metric: Metric = "euclidean",
    min_cluster_size: Sizes = 1,
    metric_params: Mapping[str, Any] | None = None,
    dtype: Any = None,
    validate: bool = True,
    memory: int | str | None = None,
    progress: Progress = None,
    scheduler: Scheduler = None,
) -> Vector:
    """Upper bound of each point's silhouette over all clusterings of ``X``.

    Parameters, errors, cost and source are those of `silhouette_upper_bound`.

    Returns
    -------
    float64 array of shape (n,), or (n, len(min_cluster_size))
        In [0, 1].

    Examples
    --------
    >>> from silchunk import silhouette_upper_bound_samples
    >>> silhouette_upper_bound_samples([[0.0], [1.0], [5.0]]).round(2)
    array([0.8 , 0.75, 0.2 ])
    """
    arguments = Arguments(metric, metric_params, dtype, validate, memory, progress, scheduler)
    samples = _point_bounds(X, arguments, min_cluster_size)
    return samples[:, 0] if _is_one(min_cluster_size) else samples


def silhouette_bounds(
    X: Any,
    *,
    metric: Metric = "euclidean",
    min_cluster_size: Sizes = 1,
    metric_params: Mapping[str, Any] | None = None,
    dtype: Any = None,
    validate: bool = True,
    memory: int | str | None = None,
    progress: Progress = None,
    scheduler: Scheduler = None,
) -> BoundResult:
    """All bounds of ``X`` from one pass: ASW, single points, and every minimum cluster size.

    Parameters, errors, cost and source are those of `silhouette_upper_bound`; the whole curve
    costs less than a second pass would.

    Returns
    -------
    BoundResult

    Examples
    --------
    >>> from silchunk import silhouette_bounds
    >>> bounds = silhouette_bounds([[0.2], [0.1], [0.12], [1.34], [1.11], [1.6]])
    >>> round(bounds.at(3), 4)
    0.8335
    >>> round(bounds.wcre(0.790), 3)
    0.087
    """
    arguments = Arguments(metric, metric_params, dtype, validate, memory, progress, scheduler)
    with _bound_job(X, arguments, min_cluster_size, curve=True) as (job, sizes):
        samples, curve = _reduce(job, sizes, curve=True)
        one = _is_one(min_cluster_size)
        return BoundResult(
            n=job.n,
            metric=job.metric_name,
            min_cluster_size=sizes[0] if one else sizes,
            samples=samples[:, 0] if one else samples,
            plan=job.plan,
            _curve=curve,
        )


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
    metric: Metric = "euclidean",
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
    with _bound_job(X, arguments, min_cluster_size, curve=False) as (job, sizes):
        reduce_rows = _ReduceRows(job.panels, sizes, curve=len(sizes) > 1)
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


@contextmanager
def _bound_job(
    X: Any, arguments: Arguments, min_cluster_size: Sizes, *, curve: bool, keep: int | None = None
) -> Iterator[tuple[Job, tuple[int, ...]]]:
    """Prepare a job whose samples are kept for ``keep`` sizes, by default all of them."""
    n_sizes = np.size(min_cluster_size) if keep is None else keep
    sums = curve or n_sizes > 1
    with prepared(
        X,
        arguments,
        outputs=1 if sums else 0,
        row_results=n_sizes,
        # Samples; and the curve's tree of sums, a level for each doubling of the leaves.
        result_bytes=16 * n_sizes + (4 * 32 if sums else 0),
        check_n=lambda n: checked_sizes(min_cluster_size, n),
    ) as job:
        yield job, checked_sizes(min_cluster_size, job.n)


def _point_bounds(X: Any, arguments: Arguments, min_cluster_size: Sizes) -> Vector:
    with _bound_job(X, arguments, min_cluster_size, curve=False) as (job, sizes):
        return _reduce(job, sizes, curve=len(sizes) > 1)[0]


def _reduce(job: Job, sizes: tuple[int, ...], *, curve: bool) -> tuple[Vector, Vector]:
    """Map all panels; returns samples (n, s) and, if asked for, the mean curve (n // 2,)."""
    samples = np.empty((job.n, len(sizes)))
    sums = AlignedSum()
    panels = job.plan.panels()

    def combine(index: int, reduced: _ReducedRows) -> None:
        samples[slice(*panels[index])] = reduced.bounds
        for node in reduced.totals:
            sums.add(node)

    job.map(_ReduceRows(job.panels, sizes, curve), combine, "silhouette bound")
    means = sums.total() / job.n if curve else np.empty(0)
    error = job.panels.relative_error
    return outward(samples, error), outward(means, error)


def _mean_over_rows(samples: Vector) -> Vector:
    """Column means, added in the same order as the curve: equal to it to the last bit."""
    sums = AlignedSum()
    for first, last in ranges(len(samples), LEAF_ROWS):
        sums.add(Node(0, np.cumsum(samples[first:last], axis=0)[-1]))
    return sums.total() / len(samples)


def _is_one(min_cluster_size: Sizes) -> bool:
    return np.ndim(min_cluster_size) == 0
