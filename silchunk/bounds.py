"""The upper bound of the silhouette: what no clustering of this data set can exceed.

Sträng & Dinh, "An upper bound of the silhouette validation metric for clustering", Pattern
Recognition 178 (2026) 113402, arXiv:2509.08625.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from silchunk.bound_jobs import Path, bound_job, point_bounds
from silchunk.bound_result import BoundResult
from silchunk.confidence import checked_confidence
from silchunk.constraints import (
    Sizes,
    checked_method,
    fixed_sizes,
    refuse_contradiction,
    size_range,
)
from silchunk.engine import Scheduler
from silchunk.errors import InputError
from silchunk.prepare import Arguments
from silchunk.progress import Progress
from silchunk.reduction import Wanted
from silchunk.sampling import sampled_bound
from silchunk.sized import sized_bound, sized_bounds

Vector = np.ndarray[Any, np.dtype[np.float64]]
Metric = str | Callable[..., float]


def silhouette_upper_bound(
    X: Any,
    *,
    metric: Metric = "euclidean",
    min_cluster_size: Sizes = 1,
    n_clusters: int | None = None,
    cluster_sizes: Any = None,
    labels: Any = None,
    method: str = "assignment",
    sample_size: int | None = None,
    random_state: Any = None,
    confidence: float = 0.95,
    certify: bool = False,
    checkpoint: Path = None,
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
        Least size m that a cluster may have, 1 ≤ m ≤ n/2, or n/K with ``n_clusters``. Several
        cost one pass, not one each.
    n_clusters : int, optional
        Number of clusters K, 2 ≤ K ≤ n: over clusterings into just so many.
    cluster_sizes : sequence of int, optional
        Sizes of all clusters, n in all: over clusterings with just these sizes.
    labels : array of shape (n,), optional
        A clustering whose sizes are meant, in place of ``cluster_sizes``, or to check them.
    method : "assignment" or "rearrangement"
        For given sizes: of all assignments of points to sizes that fill each size just so (the
        default; within 1e-6 of the best one, always from above), or, weaker, each point in the
        size that suits it best, as Sträng & Dinh have it.
    sample_size : int, optional
        Estimate from so many points, drawn without replacement, each against all n: time
        O(sample_size · n), and memory that does not depend on n.
    random_state : None, int, Generator or RandomState
        What the sample is drawn with.
    confidence : float
        Of the upper limit that is returned with a sample.
    certify : bool
        Round outward, so that the bound holds in exact arithmetic: for the distances of a matrix
        as stored, and for points in metrics of proven error (euclidean, sqeuclidean, manhattan,
        chebyshev, nan_euclidean), for exact distances. Distances are computed in float64. Costs
        about 1e-13 in tightness.
    checkpoint : path, optional
        Folder in which finished panels are recorded, so that the same call goes on where a killed
        one was. It may be deleted once the result is there.
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
    float, or float64 array of shape (len(min_cluster_size),), or SampledBound
        In [0, 1]. No clustering (of the kind asked for) scores above it; computed values are exact
        for the distances in ``dtype`` up to `numerical_slack`. With ``sample_size``, an estimate
        with its standard error and an upper confidence limit.

    Raises
    ------
    InputError
        Wrong shape, NaN or infinity, unknown metric, no distance matrix, or constraints that no
        clustering meets.
    OverBudgetError
        If the plan cannot fit into ``memory``; before any work.
    ForeignStoreError, StaleStoreError
        ``checkpoint`` holds something else, or another job.

    Notes
    -----
    Time O(n² (d + log n)), one pass; memory O(n) for each row of a panel, never O(n²).

    References
    ----------
    Sträng & Dinh, Pattern Recognition 178 (2026) 113402, arXiv:2509.08625. Limits from samples:
    Waudby-Smith & Ramdas, J. R. Stat. Soc. B 86 (2024) 1-27, doi:10.1093/jrsssb/qkad009.

    Examples
    --------
    >>> from silchunk import silhouette_upper_bound
    >>> points = [[0.2], [0.1], [0.12], [1.34], [1.11], [1.6]]
    >>> round(silhouette_upper_bound(points), 4)
    0.8652
    >>> silhouette_upper_bound(points, min_cluster_size=[1, 3]).round(4)
    array([0.8652, 0.8335])
    >>> round(silhouette_upper_bound(points, n_clusters=3), 4)
    0.8652
    >>> round(silhouette_upper_bound(points, cluster_sizes=[4, 2]), 4)
    0.7073
    """
    arguments = Arguments(
        metric, metric_params, dtype, validate, memory, progress, scheduler, certify
    )
    checked_method(method)
    checked_confidence(confidence)
    if cluster_sizes is not None or labels is not None:
        plain = _is_one(min_cluster_size) and min_cluster_size == 1
        if not plain or n_clusters is not None or sample_size is not None:
            raise InputError(
                "with cluster_sizes (or labels), min_cluster_size and n_clusters follow from them, "
                "and sample_size is not offered: leave these out."
            )
        return sized_bound(X, arguments, cluster_sizes, labels, method, checkpoint)
    if sample_size is not None:
        return sampled_bound(
            X,
            arguments,
            min_cluster_size=min_cluster_size,
            n_clusters=n_clusters,
            sample_size=sample_size,
            random_state=random_state,
            confidence=confidence,
            checkpoint=checkpoint,
        )
    means = point_bounds(
        X, arguments, min_cluster_size, n_clusters, checkpoint, keep_samples=False
    ).means
    return float(means[0]) if _is_one(min_cluster_size) else means


def macro_silhouette_upper_bound(
    X: Any,
    cluster_sizes: Any = None,
    *,
    labels: Any = None,
    method: str = "assignment",
    metric: Metric = "euclidean",
    certify: bool = False,
    checkpoint: Path = None,
    metric_params: Mapping[str, Any] | None = None,
    dtype: Any = None,
    validate: bool = True,
    memory: int | str | None = None,
    progress: Progress = None,
    scheduler: Scheduler = None,
) -> float:
    """Upper bound of the macro-averaged silhouette, the mean of cluster means, for given sizes.

    Parameters
    ----------
    X : points (n, d), or a distance matrix (n, n), as in `silhouette_upper_bound`
    cluster_sizes : sequence of int
        Sizes of all clusters, n in all.
    labels : array of shape (n,), optional
        A clustering whose sizes are meant, in place of ``cluster_sizes``, or to check them.
    method : "assignment" or "rearrangement"
        The best assignment of points to sizes (the default; within 1e-6, always from above), or
        the weaker form of Sträng & Dinh: point bounds ascending against sizes descending.
    metric, certify, checkpoint, metric_params, dtype, validate, memory, progress, scheduler
        As in `silhouette_upper_bound`.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    InputError
        Also where the sizes do not add up to n, are those of fewer than two clusters, or not those
        of the labels.

    Notes
    -----
    The pass over the distances of `silhouette_upper_bound`, then O(n J) for each of some dozens of
    sweeps over a table of n × J numbers, J the number of distinct sizes; in a temporary file where
    it is large.

    Examples
    --------
    >>> from silchunk import macro_silhouette_upper_bound
    >>> points = [[0.2], [0.1], [0.12], [1.34], [1.11], [1.6]]
    >>> round(macro_silhouette_upper_bound(points, [4, 2]), 4)
    0.7705
    >>> round(macro_silhouette_upper_bound(points, [4, 2], method="rearrangement"), 4)
    0.8879
    """
    arguments = Arguments(
        metric, metric_params, dtype, validate, memory, progress, scheduler, certify
    )
    checked_method(method)
    return sized_bound(X, arguments, cluster_sizes, labels, method, checkpoint, macro=True)


def silhouette_upper_bound_samples(
    X: Any,
    *,
    metric: Metric = "euclidean",
    min_cluster_size: Sizes = 1,
    n_clusters: int | None = None,
    certify: bool = False,
    checkpoint: Path = None,
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
    arguments = Arguments(
        metric, metric_params, dtype, validate, memory, progress, scheduler, certify
    )
    samples = point_bounds(X, arguments, min_cluster_size, n_clusters, checkpoint).samples
    return samples[:, 0] if _is_one(min_cluster_size) else samples


def silhouette_bounds(
    X: Any,
    *,
    metric: Metric = "euclidean",
    min_cluster_size: Sizes = 1,
    n_clusters: int | None = None,
    cluster_sizes: Any = None,
    labels: Any = None,
    certify: bool = False,
    checkpoint: Path = None,
    metric_params: Mapping[str, Any] | None = None,
    dtype: Any = None,
    validate: bool = True,
    memory: int | str | None = None,
    progress: Progress = None,
    scheduler: Scheduler = None,
) -> BoundResult:
    """All bounds of ``X`` from one pass: ASW, single points, and every minimum cluster size.

    With ``cluster_sizes`` or ``labels``, the bounds for those sizes as well. Parameters, errors,
    cost and source are those of `silhouette_upper_bound`; the whole curve costs less than a second
    pass would.

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
    arguments = Arguments(
        metric, metric_params, dtype, validate, memory, progress, scheduler, certify
    )

    def wanted_of(n: int) -> Wanted:
        within = size_range(min_cluster_size, n_clusters, n)
        fixed = None
        if cluster_sizes is not None or labels is not None:
            fixed = fixed_sizes(cluster_sizes, labels, n)
            refuse_contradiction(within, fixed)
        return Wanted(within, curve=True, fixed=fixed)

    with bound_job(X, arguments, wanted_of, checkpoint=checkpoint) as (job, reduced):
        within, fixed = reduced.wanted.within, reduced.wanted.fixed
        assert within is not None
        one = _is_one(min_cluster_size)
        return BoundResult(
            n=job.n,
            metric=job.metric_name,
            min_cluster_size=within.smallest[0] if one else within.smallest,
            n_clusters=within.n_clusters,
            samples=reduced.samples[:, 0] if one else reduced.samples,
            sized=None if fixed is None else sized_bounds(reduced.table, fixed, certify),
            certified_for=job.certified_for,
            plan=job.plan,
            _curve=reduced.means,
        )


def _is_one(min_cluster_size: Sizes) -> bool:
    return np.ndim(min_cluster_size) == 0
