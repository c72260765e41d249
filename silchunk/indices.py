"""Indices of a clustering that its centroids are enough for: time O(n K d) at most, never n²."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from silchunk.centroids import (
    CENTROID_METRICS,
    CentroidDistances,
    grid_ranges,
    mean_distances,
    moments,
)
from silchunk.distances import find_store
from silchunk.engine import Scheduler
from silchunk.errors import CoincidentCentroidsWarning, InputError, warn
from silchunk.kernels import centroids as kernel
from silchunk.kernels.silhouette import S
from silchunk.labelled_jobs import labelled_job
from silchunk.labels import Labels
from silchunk.metrics import canonical_name
from silchunk.plan import ranges
from silchunk.prepare import Arguments, Job, Needs
from silchunk.progress import Progress
from silchunk.rows import Block
from silchunk.silhouette_result import checked_average
from silchunk.tiles import Codes

Vector = np.ndarray[Any, np.dtype[np.float64]]

# Means this close, relative to their norms and spreads, differ by rounding only: each is off by
# two roundings, of a mean and of what a block adds to it.
COINCIDENT = 4 * 2.0**-53
# The mean of directions is a direction where it is longer than what rounding leaves of zero.
LEAST_RESULTANT = 1e-14
# Distances between centroids that are held at once.
HELD_DISTANCES = 1 << 17


def davies_bouldin_score(
    X: Any,
    labels: Any,
    *,
    noise: str | None = None,
    memory: int | str | None = None,
    progress: Progress = None,
    scheduler: Scheduler = None,
) -> float:
    """Davies-Bouldin index: mean over clusters of their similarity to the most similar other one.

    The similarity of two clusters is (S + S') / M with S the mean distance of a cluster's points
    to its mean and M the distance between the two means. Lower is better; 0 is the least.

    Parameters
    ----------
    X : array of shape (n, d)
        Points: an array, the path of a ``.npy`` file or a Zarr array, a Zarr array or store, a
        Dask array, or anything array-like.
    labels : array of shape (n,)
        Of any kind: integers, strings, an array of NumPy, Zarr or Dask, or a path. From 2 to n - 1
        different ones.
    noise : "cluster", "drop" or "singleton", optional
        What points labelled -1 are: a cluster, left out, or each a cluster of its own. None: a
        cluster, with a warning.
    memory : int or str, optional
        Most bytes one process may use, interpreter and input included: ``"1GiB"``.
    progress : bool or callable, optional
        True: a bar on a terminal, else lines on standard error. None: a bar on a terminal, else
        the log. A callable gets (panels done, panels in all).
    scheduler : "threads", "synchronous" or distributed.Client, optional
        Default: the active client if there is one, else threads.

    Returns
    -------
    float
        At least 0; the same to the last bit for every ``memory`` and ``scheduler``.

    Raises
    ------
    InputError
        Not points, NaN or infinity, one label for each point missing, or not from 2 to n - 1
        clusters.
    OverBudgetError
        If not even a few rows fit into ``memory``; before any work.

    Warns
    -----
    CoincidentCentroidsWarning
        Two means are equal up to rounding. Their similarity, infinite, counts as 0 as it does in
        scikit-learn.

    Notes
    -----
    Time O(n d + K² d), three passes over the points; memory O(K d) besides blocks of points.
    scikit-learn has 0 as well where all S, or all M, are below 1e-8, in whatever unit the points
    are; here the unit makes no difference.

    References
    ----------
    Davies & Bouldin, IEEE Trans. Pattern Anal. Mach. Intell. 1 (1979) 224-227,
    doi:10.1109/TPAMI.1979.4766909.

    Examples
    --------
    By hand: S = 1/2 and 0, M = √(2.5² + 3²), and the index is S / M for both.

    >>> from silchunk.indices import davies_bouldin_score
    >>> round(davies_bouldin_score([[0, 1], [1, 1], [3, 4]], ["a", "a", "b"]), 4)
    0.128
    """
    arguments = Arguments(memory=memory, progress=progress, scheduler=scheduler)
    with _clustered(X, labels, noise, arguments) as (job, known, codes):
        of = moments(job, codes, known.n_clusters)
        return _davies_bouldin(of.means, mean_distances(job, codes, of), known.classes)


def calinski_harabasz_score(
    X: Any,
    labels: Any,
    *,
    noise: str | None = None,
    memory: int | str | None = None,
    progress: Progress = None,
    scheduler: Scheduler = None,
) -> float:
    """Calinski-Harabasz index, or variance ratio: (B / (K - 1)) / (W / (n - K)).

    B is the sum of squared distances of the clusters' means, each counted for every one of its
    points, to the mean of all points, W that of the points to the means of their clusters. Higher
    is better.

    Parameters
    ----------
    X, labels, noise, memory, progress, scheduler
        As in `davies_bouldin_score`.

    Returns
    -------
    float
        At least 0; 1 where W = 0, as in scikit-learn.

    Raises
    ------
    InputError, OverBudgetError
        As in `davies_bouldin_score`.

    Notes
    -----
    Time O(n d), two passes over the points; memory O(K d) besides blocks of points.

    References
    ----------
    Caliński & Harabasz, Commun. Stat. 3 (1974) 1-27, doi:10.1080/03610927408827101.

    Examples
    --------
    By hand: B = 2 (5/6)² + 2 + (5/3)² + 4 = 61/6 and W = 1/2, with n - K = K - 1 = 1.

    >>> from silchunk.indices import calinski_harabasz_score
    >>> round(calinski_harabasz_score([[0, 1], [1, 1], [3, 4]], ["a", "a", "b"]), 4)
    20.3333
    """
    arguments = Arguments(memory=memory, progress=progress, scheduler=scheduler)
    with _clustered(X, labels, noise, arguments) as (job, known, codes):
        of = moments(job, codes, known.n_clusters)
    within = float(of.weights @ of.spreads)
    if within == 0.0:
        return 1.0
    offsets = of.means - of.means[0]
    offsets -= of.weights @ offsets / of.weights.sum()
    between = float(of.weights @ (offsets**2).sum(axis=1))
    n, n_clusters = known.n_kept, known.n_clusters
    return between / (n_clusters - 1) / (within / (n - n_clusters))


def simplified_silhouette_samples(
    X: Any,
    labels: Any,
    *,
    metric: str = "euclidean",
    noise: str | None = None,
    memory: int | str | None = None,
    progress: Progress = None,
    scheduler: Scheduler = None,
) -> Vector:
    """Simplified silhouette of each point: distances to centroids in place of mean distances.

    s = (b - a) / max(a, b) with a the distance to the centroid of the own cluster and b the least
    to that of another. Another quantity than the silhouette, not an estimate of it.

    Parameters
    ----------
    X, labels, noise, memory, progress, scheduler
        As in `davies_bouldin_score`.
    metric : "euclidean", "sqeuclidean" or "cosine"
        Centroids are means; for "cosine", the mean directions of the points.

    Returns
    -------
    float64 array of shape (n,)
        In [-1, 1]; 0 for a point alone in its cluster and where a = b = 0, NaN for points left out.

    Raises
    ------
    InputError
        As in `davies_bouldin_score`; another metric; for "cosine", a point that is zero or a
        cluster whose directions cancel.
    OverBudgetError
        As in `davies_bouldin_score`.

    Notes
    -----
    Time O(n K d), three passes over the points, four for "cosine"; memory O(n + K d) besides
    blocks of points.

    References
    ----------
    Vendramin, Campello & Hruschka, Stat. Anal. Data Min. 3 (2010) 209-235, doi:10.1002/sam.10080.

    Examples
    --------
    By hand: the means are (1/2, 1) and (3, 4), so 1 - 0.5 / √18 and 1 - 0.5 / √13.

    >>> from silchunk.indices import simplified_silhouette_samples
    >>> points = [[0, 1], [1, 1], [3, 4]]
    >>> simplified_silhouette_samples(points, ["a", "a", "b"]).round(4)
    array([0.8821, 0.8613, 0.    ])
    """
    arguments = Arguments(_checked_metric(metric), None, None, True, memory, progress, scheduler)
    return _simplified(X, labels, noise, arguments).samples


def simplified_silhouette_score(
    X: Any,
    labels: Any,
    *,
    metric: str = "euclidean",
    average: str = "micro",
    noise: str | None = None,
    memory: int | str | None = None,
    progress: Progress = None,
    scheduler: Scheduler = None,
) -> float:
    """Mean of the simplified silhouettes, over points or over clusters.

    Parameters
    ----------
    X, labels, metric, noise, memory, progress, scheduler
        As in `simplified_silhouette_samples`.
    average : "micro" or "macro"
        Mean over all points, or of the means of the clusters.

    Returns
    -------
    float
        In [-1, 1].

    Raises
    ------
    InputError, OverBudgetError
        As in `simplified_silhouette_samples`; another ``average``.

    Notes
    -----
    Cost and source as in `simplified_silhouette_samples`.

    Examples
    --------
    By hand, from the values of that example: 1.74347 / 3, and (0.87174 + 0) / 2.

    >>> from silchunk.indices import simplified_silhouette_score
    >>> points = [[0, 1], [1, 1], [3, 4]]
    >>> round(simplified_silhouette_score(points, ["a", "a", "b"]), 4)
    0.5812
    >>> round(simplified_silhouette_score(points, ["a", "a", "b"], average="macro"), 4)
    0.4359
    """
    checked_average(average)
    arguments = Arguments(_checked_metric(metric), None, None, True, memory, progress, scheduler)
    samples, known = _simplified(X, labels, noise, arguments)
    kept = known.codes >= 0
    if average == "micro":
        return float(samples[kept].mean())
    return float(np.mean(np.bincount(known.codes[kept], samples[kept]) / known.sizes))


@contextmanager
def _clustered(
    X: Any, labels: Any, noise: str | None, arguments: Arguments
) -> Iterator[tuple[Job, Labels, Codes]]:
    """Points that are read and checked with their labels, and codes that tasks can take along."""
    kept = find_store(X)
    if kept is not None:
        raise InputError(
            f"X is a stored distance matrix ({kept.path}): centroids need points. Pass the points "
            "that it was built from."
        )

    def needs_of(n: int, known: Labels) -> Needs:
        # A number for each point.
        return Needs(
            outputs=0, row_results=4, result_bytes=8 * n, clusters=known.n_clusters, passes=2
        )

    with labelled_job(X, labels, noise, arguments, needs_of) as ready:
        yield ready


class _Simplified(NamedTuple):
    samples: Vector  # (n,), NaN for points left out
    labels: Labels


def _checked_metric(metric: str) -> str:
    if not callable(metric) and (name := canonical_name(metric)) in CENTROID_METRICS:
        return name
    raise InputError(
        f"metric must be one of {', '.join(CENTROID_METRICS)}, of points: a cluster has no "
        f"centroid otherwise; got {metric!r}."
    )


def _simplified(X: Any, labels: Any, noise: str | None, arguments: Arguments) -> _Simplified:
    metric = str(arguments.metric)
    with _clustered(X, labels, noise, arguments) as (job, known, codes):
        of = moments(job, codes, known.n_clusters, directions=metric == "cosine")
        centroids = _mean_directions(of.means, known.classes) if of.directions else of.means
        samples = np.empty(job.n)
        parts = grid_ranges(job)

        def combine(i: int, result: Block) -> None:
            samples[slice(*parts[i])] = result[:, S]

        task = CentroidDistances(job.source, codes, centroids, of.weights, metric)
        job.map(task, combine, "simplified silhouettes", parts)
    return _Simplified(samples, known)


def _mean_directions(means: Block, classes: list[Any]) -> Block:
    lengths = np.linalg.norm(means, axis=1)
    if (lengths <= LEAST_RESULTANT).any():
        label = classes[int(lengths.argmin())]
        raise InputError(
            f"the directions of the points labelled {label!r} cancel, so that this cluster has no "
            "mean direction; metric='cosine' needs one."
        )
    directions: Block = means / lengths[:, None]
    return directions


def _davies_bouldin(means: Block, spreads: Vector, classes: list[Any]) -> float:
    """``spreads`` (K,) are mean distances, not squared, of points to ``means`` (K, d)."""
    n_clusters = len(means)
    uncertain = COINCIDENT * (np.linalg.norm(means, axis=1) + spreads)
    nothing, factors = np.zeros(n_clusters), np.ones(n_clusters)
    worst = np.empty(n_clusters)
    n_pairs, pair = 0, (0, 0)
    for first, last in ranges(n_clusters, max(1, HELD_DISTANCES // n_clusters)):
        apart = np.empty((last - first, n_clusters))
        kernel.sums_to_clusters(means[first:last], means, nothing, factors, apart)
        np.sqrt(apart, out=apart)
        coincident = apart <= uncertain[first:last, None] + uncertain
        apart[coincident] = np.inf
        worst[first:last] = ((spreads[first:last, None] + spreads) / apart).max(axis=1)
        above = np.triu(coincident, first + 1)  # each pair once
        if above.any() and not n_pairs:
            row, column = divmod(int(above.argmax()), n_clusters)
            pair = first + row, column
        n_pairs += int(above.sum())
    if n_pairs:
        _warn_of_coincidence(classes[pair[0]], classes[pair[1]], n_pairs - 1)
    return float(worst.mean())


def _warn_of_coincidence(label: Any, other: Any, n_more: int) -> None:
    more = f", as do those of {n_more:,} more pairs" * (n_more > 0)
    warn(
        f"the means of the clusters labelled {label!r} and {other!r} coincide{more}: "
        "their similarity is infinite and counts as 0, as it does in scikit-learn. The index "
        "cannot tell such clusters apart; the silhouette can.",
        CoincidentCentroidsWarning,
    )
