"""Whatever finds K clusters for any K: a name, an estimator, or a function of K."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning

from silchunk import engine
from silchunk.cluster.base import CentroidClusterer
from silchunk.cluster.kmeans import KMeans
from silchunk.cluster.ksil import KSil, SphericalKSil
from silchunk.cluster.names import ALGORITHMS
from silchunk.cluster.weighted import ILOFKMeans, LOFKMeans, OWKMeans
from silchunk.errors import InputError, OverBudgetError
from silchunk.plan import format_bytes
from silchunk.prepare import Arguments
from silchunk.provenance import code_digest
from silchunk.rows import RowSource

KINDS: dict[str, type[CentroidClusterer]] = {
    kind.__name__: kind for kind in (KSil, SphericalKSil, KMeans, LOFKMeans, ILOFKMeans, OWKMeans)
}
# Parameters that say where and how to compute, not what.
RUNNING = ("memory", "scheduler", "progress", "checkpoint", "callback")


class Clusterer(Protocol):
    """Labels for any number of clusters."""

    @property
    def name(self) -> str:
        """How to call it in a table."""

    def labels(self, n_clusters: int, checkpoint: Path | None) -> Any:
        """Labels (n,) of any kind; ``checkpoint`` is a file to record the fit in, if it can."""

    def digest(self) -> str:
        """The same where labels are to be the same.

        Raises
        ------
        InputError
            It cannot be known again.
        """


def clusterer(
    estimator: Any,
    X: Any,
    source: RowSource,
    matrix: bool,
    random_state: int,
    min_cluster_size: int | None,
    arguments: Arguments,
) -> Clusterer:
    """What is to find the clusters of ``source``, which ``X`` was read as.

    Raises
    ------
    InputError
        It is nothing that can be asked for K clusters, or not of this input.
    """
    if isinstance(estimator, type):
        raise InputError(
            f"estimator is the class {estimator.__name__}; pass an instance, "
            f"{estimator.__name__}(), or a function of K that gives labels."
        )
    if isinstance(estimator, str):
        if estimator not in ALGORITHMS:
            raise InputError(
                f"estimator must be one of {', '.join(ALGORITHMS)}, a clusterer with n_clusters, "
                f"or a function of K that gives labels; got {estimator!r}."
            )
        name, estimator = estimator, KINDS[ALGORITHMS[estimator]]()
    elif isinstance(estimator, BaseEstimator):
        name = type(estimator).__name__
    elif callable(estimator):
        if min_cluster_size is not None:
            raise InputError("min_cluster_size does not go with a function; let it see to that.")
        return Function(estimator)
    else:
        raise InputError(
            f"estimator must be a name, a clusterer with n_clusters, or a function of K that gives "
            f"labels; got {estimator!r}."
        )
    return _estimator(name, estimator, X, source, matrix, random_state, min_cluster_size, arguments)


def _estimator(
    name: str,
    estimator: Any,
    X: Any,
    source: RowSource,
    matrix: bool,
    random_state: int,
    min_cluster_size: int | None,
    arguments: Arguments,
) -> Estimator:
    params = estimator.get_params()
    if "n_clusters" not in params:
        raise InputError(
            f"{name} has no parameter n_clusters, so that it cannot be asked for K clusters; pass "
            "a function of K that gives labels."
        )
    own = isinstance(estimator, CentroidClusterer)
    if matrix and params.get("metric") != "precomputed":
        raise InputError(
            f"{name} finds clusters of points, but X is a matrix of distances. Pass the points, a "
            'clusterer with metric="precomputed", or a function of K that gives labels.'
        )
    options: dict[str, Any] = {}
    if min_cluster_size is not None:
        if "min_cluster_size" not in params:
            raise InputError(f"{name} takes no min_cluster_size.")
        options["min_cluster_size"] = min_cluster_size
    # Without a seed of its own it would not find the same again.
    if "random_state" in params and params["random_state"] is None:
        options["random_state"] = random_state
    if own:
        for key in ("memory", "scheduler", "progress"):
            if params[key] is None:
                options[key] = getattr(arguments, key)
        return Estimator(name, estimator, options, source)
    # Others take arrays. One in memory is theirs as it was given.
    held = isinstance(X, np.ndarray) or hasattr(X, "iloc")
    return Estimator(name, estimator, options, X if held else _whole(source, name, arguments))


def _whole(source: RowSource, name: str, arguments: Arguments) -> Any:
    """All rows, if they fit into memory."""
    n, width = source.shape
    budget = engine.byte_budget(arguments.memory, engine.executor(arguments.scheduler))
    if 8 * n * width > budget:
        raise OverBudgetError(
            f"{name} takes all of X at once, {format_bytes(8 * n * width)}, but the budget allows "
            f"{format_bytes(budget)}. Raise memory=, or use one of {', '.join(ALGORITHMS)}, which "
            "read X block by block."
        )
    return source.rows(0, n)


@dataclass(frozen=True)
class Estimator:
    """A clusterer with scikit-learn's interface, fitted anew for each K."""

    name: str
    estimator: Any
    options: dict[str, Any]
    X: Any

    def labels(self, n_clusters: int, checkpoint: Path | None) -> Any:
        """``labels_`` of a fit."""
        fresh: Any = clone(self.estimator)
        fresh.set_params(n_clusters=n_clusters, **self.options)
        if isinstance(self.estimator, CentroidClusterer):
            fresh.set_params(checkpoint=checkpoint)
        with warnings.catch_warnings():
            # That there are fewer clusters than asked for is told with the labels.
            warnings.filterwarnings("ignore", ".*distinct clusters", ConvergenceWarning)
            fresh.fit(self.X)
        found = getattr(fresh, "labels_", None)
        return fresh.predict(self.X) if found is None else found

    def digest(self) -> str:
        """Of the class and its parameters."""
        params = {**self.estimator.get_params(), **self.options}
        what = {name: params[name] for name in params if name not in (*RUNNING, "n_clusters")}
        kind: Any = type(self.estimator)
        return _digest(partial(kind, **what))


@dataclass(frozen=True)
class Function:
    """A function of K that gives labels."""

    function: Callable[[int], Any]

    @property
    def name(self) -> str:
        """That of the function."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def labels(self, n_clusters: int, checkpoint: Path | None) -> Any:
        """What the function gives."""
        return self.function(n_clusters)

    def digest(self) -> str:
        """Of its code and what it refers to."""
        return _digest(self.function)


def _digest(function: Callable[..., Any]) -> str:
    try:
        return code_digest(function)
    except InputError as error:
        message = str(error).replace("the metric", "the estimator").replace("a build", "a sweep")
        raise InputError(f"{message} Or leave out checkpoint=.") from error
