"""Scorers for scikit-learn's ``GridSearchCV``, ``cross_validate`` and whatever else takes one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from silchunk.bounds import silhouette_bounds
from silchunk.errors import InputError, InputTypeError, warn
from silchunk.labels import Labels, read_labels
from silchunk.silhouettes import silhouette_score

Metric = str | Callable[..., float]

# What a labelling scores that has no silhouette: as bad as a silhouette can be.
DEGENERATE = -1.0


def silhouette_scorer(
    estimator: Any,
    X: Any,
    y: Any = None,
    *,
    metric: Metric = "euclidean",
    metric_params: Mapping[str, Any] | None = None,
    average: str = "micro",
    sample_size: int | None = None,
    random_state: Any = 0,
    noise: str = "singleton",
    memory: int | str | None = None,
) -> float:
    """Silhouette of an estimator's clusters of ``X``, as scikit-learn's ``scoring=`` takes it.

    For other values of the keywords, ``scoring=functools.partial(silhouette_scorer, ...)``.

    Parameters
    ----------
    estimator : fitted clusterer
        Asked to ``predict`` X; one that cannot has ``labels_`` of the points it was fitted on,
        which X must then be (``cv=[(all, all)]``, all being ``numpy.arange(n)``).
    X : array (n, d), or a distance matrix with ``metric="precomputed"``
        Distances are those of X as the search has it; what a pipeline makes of it is not known.
    y : ignored
    metric, metric_params, average, sample_size, random_state, memory
        As in `silhouette_score`. A sample is the same each time, as scores are compared.
    noise : "singleton", "drop" or "cluster"
        What points labelled -1 are; "singleton": each alone, so that it counts as 0.

    Returns
    -------
    float
        In [-1, 1], the higher the better. -1 with a warning for labels that have no silhouette: of
        fewer than two clusters, or of as many as there are points.

    Raises
    ------
    InputError
        ``labels_`` are not those of X, or X is wrong.
    InputTypeError
        The estimator has no labels.

    Notes
    -----
    Cost is that of `silhouette_score`. It runs on all cores; beside ``n_jobs`` processes of a
    search each has its own ``memory``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.cluster import KMeans
    >>> X = np.array([[0.0], [0.1], [1.0], [1.1]])
    >>> fitted = KMeans(2, n_init=1, random_state=0).fit(X)
    >>> round(silhouette_scorer(fitted, X), 4)  # (1 - 0.1 / 1.05 + 1 - 0.1 / 0.95) / 2
    0.8997
    """
    labels = _labels_of(estimator, X, noise)
    if not _has_silhouette(labels):
        return DEGENERATE
    return float(
        silhouette_score(
            X,
            labels,
            metric=metric,
            metric_params=metric_params,
            average=average,
            sample_size=sample_size,
            random_state=None if sample_size is None else random_state,
            memory=memory,
            progress=False,
        )
    )


def bound_gap_scorer(
    estimator: Any,
    X: Any,
    y: Any = None,
    *,
    metric: Metric = "euclidean",
    metric_params: Mapping[str, Any] | None = None,
    noise: str = "singleton",
    memory: int | str | None = None,
) -> float:
    """What share of its upper bound the silhouette of an estimator's clusters reaches.

    The bound is that of clusterings whose clusters all have as many points as the smallest one
    here. So numbers of clusters compare that leave room for silhouettes of different size.

    Parameters
    ----------
    estimator, X, y, metric, metric_params, noise, memory
        As in `silhouette_scorer`.

    Returns
    -------
    float
        In [-1, 1], the higher the better: 1 - worst-case relative error, at least -1. 1 where score
        and bound are both 0. -1 with a warning for labels that have no silhouette.

    Raises
    ------
    InputError, InputTypeError
        As `silhouette_scorer` does.

    Notes
    -----
    Cost is that of `silhouette_score` and of `silhouette_bounds`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.cluster import KMeans
    >>> X = np.array([[0.0], [0.1], [1.0], [1.1]])
    >>> round(bound_gap_scorer(KMeans(2, n_init=1, random_state=0).fit(X), X), 4)
    1.0
    """
    labels = _labels_of(estimator, X, noise)
    if not _has_silhouette(labels):
        return DEGENERATE
    keywords: dict[str, Any] = {
        "metric": metric,
        "metric_params": metric_params,
        "memory": memory,
        "progress": False,
    }
    score = silhouette_score(X, labels, **keywords)
    if labels.n_kept < len(labels.codes):  # what is left out has no part in the bound either
        X = _without_noise(X, labels, metric)
    smallest = int(labels.sizes.min())
    bounds = silhouette_bounds(X, min_cluster_size=smallest, **keywords)
    return max(DEGENERATE, 1.0 - bounds.wcre(score))


def _labels_of(estimator: Any, X: Any, noise: str) -> Labels:
    """The clusters of ``X``."""
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    if hasattr(estimator, "predict"):
        return read_labels(estimator.predict(X), n, name="predicted labels", noise=noise)
    labels = getattr(estimator, "labels_", None)
    if labels is None:
        raise InputTypeError(
            f"{type(estimator).__name__} has neither predict nor labels_; a fitted clusterer is "
            "needed."
        )
    if len(labels) != n:
        raise InputError(
            f"{type(estimator).__name__} cannot predict, and its labels are of the {len(labels):,} "
            f"points that it was fitted on; there are {n:,} to be scored. Score it on the points "
            "that it is fitted on: cv=[(all, all)] with all = numpy.arange(n)."
        )
    return read_labels(labels, n, name="labels_", noise=noise)


def _has_silhouette(labels: Labels) -> bool:
    """Whether labels are of 2 to n - 1 clusters; a search goes on without, and is told."""
    n, n_clusters = labels.n_kept, labels.n_clusters
    if 2 <= n_clusters <= n - 1:
        return True
    warn(
        f"labels of {n_clusters:,} cluster{'s' * (n_clusters != 1)} among {n:,} points have no "
        f"silhouette, for which from 2 to n - 1 are needed; the score is {DEGENERATE:g}."
    )
    return False


def _without_noise(X: Any, labels: Labels, metric: Metric) -> Any:
    import numpy as np

    kept = np.flatnonzero(labels.codes >= 0)
    points = np.asarray(X)[kept]
    return points[:, kept] if metric == "precomputed" else points
