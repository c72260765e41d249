"""Exact silhouettes of points, clusters and whole clusterings, and estimates from samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np

from silchunk.distances import find_store
from silchunk.engine import Scheduler, arrays
from silchunk.points import as_rows
from silchunk.prepare import Arguments
from silchunk.progress import Progress
from silchunk.row_table import kept_rows
from silchunk.silhouette_jobs import Asked, started
from silchunk.silhouette_result import SilhouetteTable, checked_average

Vector = np.ndarray[Any, np.dtype[np.float64]]


def silhouette_table(
    X: Any,
    labels: Any,
    *,
    metric: str | Callable[..., float] = "euclidean",
    metric_params: Mapping[str, Any] | None = None,
    noise: str | None = None,
    sample_weight: Any = None,
    sample_size: int | None = None,
    random_state: Any = None,
    dtype: Any = None,
    validate: bool = True,
    memory: int | str | None = None,
    progress: Progress = None,
    scheduler: Scheduler = None,
) -> SilhouetteTable:
    """Silhouettes of all points, clusters and the whole.

    Parameters
    ----------
    X : array (n, d), path of a .npy file or Zarr array, Zarr or Dask array; or a distance matrix
        With ``metric="precomputed"``, distances (n, n) in any of these forms; a stored matrix or
        its path says so by itself.
    labels : (n,) sequence or array of hashables, path of a .npy file or Zarr array, Zarr or Dask
        array
        From 2 to n - 1 clusters.
    metric, metric_params
        Any metric of scikit-learn, or a callable.
    noise : "cluster", "drop" or "singleton", optional
        What points labelled -1 are: a cluster like any other (with a warning, unless said so),
        left out of everything, or each a cluster of its own.
    sample_weight : (n,) array of float, optional
        A point of weight w counts as w copies of it; finite, not negative, and in all more than
        there are clusters. A cluster of weight 1 or less counts as a single point, with s = 0.
    sample_size : int, optional
        Look at so many points only, drawn from each cluster in proportion to its size and two at
        least, each against all n points: estimates without bias, with standard errors.
    random_state : int, Generator or RandomState, optional
        Of the sample.
    dtype : "float32" or "float64", optional
        Distances are computed in it; by default in that of X.
    validate : bool
        Whether a precomputed matrix is checked to be one.
    memory : int or str, optional
        Most bytes that one process may use, such as ``"1GiB"``.
    progress, scheduler
        As in `silhouette_upper_bound`.

    Returns
    -------
    SilhouetteTable

    Raises
    ------
    InputError
        X, labels, weights or a parameter is wrong; the message says how.
    OverBudgetError
        It cannot be done within ``memory``.

    Notes
    -----
    Time is O(n² d), half of it where each pair can be used twice; O(nKd) for sqeuclidean and
    cosine, O(nd (log n + K)) for manhattan; O(sample_size · n · d) for a sample. Memory is bounded
    by ``memory``; the points' results go to a temporary file where they are large. Within it, what
    is fastest is done, so that results of different budgets may differ by rounding, by less than
    1e-12; those of one budget do not depend on threads or workers.

    References
    ----------
    Rousseeuw 1987, doi:10.1016/0377-0427(87)90125-7

    Examples
    --------
    >>> table = silhouette_table([[0.0], [0.1], [1.0]], ["a", "a", "b"])
    >>> print(table.samples.round(4), round(table.macro, 4))  # 0.9, 0.8/0.9, 0
    [0.9    0.8889 0.    ] 0.4472
    """
    arguments = Arguments(metric, metric_params, dtype, validate, memory, progress, scheduler)
    asked = Asked(labels, noise, sample_weight, sample_size, random_state)
    with ExitStack() as stack:
        job, clusters = started(stack, X, arguments, asked)
        rows, folder = kept_rows(job.table)
        return SilhouetteTable(
            n=job.n,
            metric=job.metric_name,
            points=clusters.sampled,
            plan=job.plan,
            _labels=clusters.labels,
            _totals=clusters.totals,
            _sample_weight=clusters.sample_weight,
            _rows=rows,
            _folder=folder,
        )


def silhouette_samples(
    X: Any,
    labels: Any,
    *,
    metric: str | Callable[..., float] = "euclidean",
    metric_params: Mapping[str, Any] | None = None,
    noise: str | None = None,
    sample_weight: Any = None,
    dtype: Any = None,
    validate: bool = True,
    memory: int | str | None = None,
    progress: Progress = None,
    scheduler: Scheduler = None,
    compute: bool = True,
) -> Vector:
    """Silhouette of each point, as scikit-learn has it: (n,) float64, in the order of X.

    Other parameters, errors, cost and source are those of `silhouette_table`. Points that are left
    out, as noise or by a weight of 0, have NaN. With ``compute=False`` it is a Dask array, whose
    one task runs on threads of the process that comes to compute it, with ``memory=`` for budget.

    Examples
    --------
    >>> silhouette_samples([[0.0], [0.1], [1.0]], [0, 0, 1]).round(4)
    array([0.9   , 0.8889, 0.    ])
    """
    if not compute:
        return arrays.lazy_vector(  # type: ignore[no-any-return]
            silhouette_samples,
            lambda: (find_store(X) or as_rows(X)).shape[0],
            X,
            labels,
            metric=metric,
            metric_params=metric_params,
            noise=noise,
            sample_weight=sample_weight,
            dtype=dtype,
            validate=validate,
            memory=memory,
            progress=progress,
            scheduler=scheduler,
        )
    return silhouette_table(
        X,
        labels,
        metric=metric,
        metric_params=metric_params,
        noise=noise,
        sample_weight=sample_weight,
        dtype=dtype,
        validate=validate,
        memory=memory,
        progress=progress,
        scheduler=scheduler,
    ).samples


def silhouette_score(
    X: Any,
    labels: Any,
    *,
    metric: str | Callable[..., float] = "euclidean",
    average: str = "micro",
    sample_size: int | None = None,
    random_state: Any = None,
    metric_params: Mapping[str, Any] | None = None,
    noise: str | None = None,
    sample_weight: Any = None,
    dtype: Any = None,
    validate: bool = True,
    memory: int | str | None = None,
    progress: Progress = None,
    scheduler: Scheduler = None,
) -> float:
    """Mean silhouette: over points (``average="micro"``, scikit-learn's) or of the clusters' means.

    Other parameters, errors, cost and source are those of `silhouette_table`. With ``sample_size``
    it is a `SampledScore`, a float with a ``standard_error``: points are sampled, but each is held
    against all others, so that it is not biased, as samples of both are.

    Examples
    --------
    >>> round(silhouette_score([[0.0], [0.1], [1.0]], [0, 0, 1]), 4)  # (0.9 + 0.8889 + 0) / 3
    0.5963
    """
    checked_average(average)
    return silhouette_table(
        X,
        labels,
        metric=metric,
        metric_params=metric_params,
        noise=noise,
        sample_weight=sample_weight,
        sample_size=sample_size,
        random_state=random_state,
        dtype=dtype,
        validate=validate,
        memory=memory,
        progress=progress,
        scheduler=scheduler,
    ).score(average)
