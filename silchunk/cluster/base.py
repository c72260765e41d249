"""What all centroid estimators share: scikit-learn's contract over points of any kind."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from silchunk import scan
from silchunk.cluster import saved
from silchunk.cluster.distances import distances_to
from silchunk.cluster.fitting import (
    Fitted,
    Reference,
    Start,
    Weigher,
    fit,
    label_vectors,
    points_of,
)
from silchunk.cluster.iteration import Iteration, Rules
from silchunk.cluster.passes import PassResult, Weighing, run_pass
from silchunk.cluster.points import Points, Vector
from silchunk.cluster.seeding import INITS
from silchunk.draws import generator
from silchunk.engine import Scheduler
from silchunk.errors import InputError
from silchunk.points import as_rows, is_array_like
from silchunk.prepare import Arguments, Job
from silchunk.progress import Progress
from silchunk.rows import Block, RowSource

Init = Any  # "k-means++", "k-means||", "random" or an array (K, d)
Callback = Callable[[Iteration], None]

# Runs from random points, which are often bad; careful starts are worth one.
RANDOM_RUNS = 10


class CentroidClusterer(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    ClusterMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Centroid clustering of points of any kind and number; see its subclasses."""

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Init = "k-means++",
        n_init: int | str = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        min_cluster_size: int = 1,
        random_state: Any = None,
        memory: int | str | None = None,
        scheduler: Scheduler = None,
        progress: Progress = None,
        checkpoint: str | os.PathLike[str] | None = None,
        callback: Callback | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.min_cluster_size = min_cluster_size
        self.random_state = random_state
        self.memory = memory
        self.scheduler = scheduler
        self.progress = progress
        self.checkpoint = checkpoint
        self.callback = callback

    # What an algorithm is, told by its subclass.

    _directions = False

    def _rules(self) -> Rules:
        """The rules of the iterations; parameters are checked."""
        return Rules("inertia", self.max_iter, self.min_cluster_size, directions=self._directions)

    def _reference(self) -> Reference | None:
        """What is run from each start before."""
        return None

    def _kept_by(self) -> str:
        """The objective by which the centres of a fit were kept in their run."""
        return self._rules().objective

    def _weigher(self) -> Weigher | None:
        """Weights of points beside those given."""
        return None

    # The contract.

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Find centres and labels.

        Parameters
        ----------
        X : points (n, d)
            Array, data frame, sparse matrix, path of a .npy file or Zarr array, Zarr or Dask array.
        y : ignored
        sample_weight : (n,) array, optional
            How many points each one stands for; none negative.

        Returns
        -------
        self

        Raises
        ------
        InputError
            ``X``, weights or parameters are wrong.
        OverBudgetError
            A pass does not fit into ``memory``.
        ForeignStoreError, StaleStoreError
            ``checkpoint`` names something else, or another fit.
        """
        self._check_parameters()
        with self._points(X, sample_weight, reset=True) as (job, points):
            if job.n < self.n_clusters:
                raise InputError(
                    f"n_samples={job.n:,} should be >= n_clusters={self.n_clusters:,}: every "
                    "cluster needs a point."
                )
            if job.n < self.n_clusters * self.min_cluster_size:
                raise InputError(
                    f"{self.n_clusters:,} clusters of min_cluster_size={self.min_cluster_size:,} "
                    f"need more than the {job.n:,} points of X."
                )
            fitted = fit(
                job,
                points,
                self.n_clusters,
                Start(self.init, self._runs(), _seed(self.random_state)),
                self._rules(),
                tol=self.tol,
                reference=self._reference(),
                weigher=self._weigher(),
                checkpoint=self._checkpoint_of(job, points),
                callback=self.callback,
            )
        self._keep(fitted)
        return self

    def _keep(self, fitted: Fitted) -> None:
        found = fitted.found
        self.cluster_centers_: Block = fitted.centres
        self.labels_: Vector = fitted.labels
        self.inertia_: float = found.inertia
        self.n_iter_: int = len(fitted.history)
        self.history_: list[Iteration] = fitted.history
        self.silhouette_: float = found.micro if self._rules().objective == "micro" else found.macro
        self._n_features_out: int = self.n_clusters
        n_found = self.n_clusters - found.empty_clusters
        if n_found < self.n_clusters and self.min_cluster_size > 1:
            warnings.warn(
                f"{self.n_clusters - n_found:,} of {self.n_clusters:,} clusters have fewer than "
                f"min_cluster_size={self.min_cluster_size:,} points in the best iteration: lower "
                "n_clusters, or raise n_init or max_iter.",
                ConvergenceWarning,
                stacklevel=3,
            )
        elif n_found < self.n_clusters:
            warnings.warn(
                f"{n_found:,} distinct clusters were found, fewer than n_clusters="
                f"{self.n_clusters:,}: X has duplicate points, or fewer distinct ones than that.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def predict(self, X: Any) -> Vector:
        """The nearest centre of each point: (n,) int32.

        Of centres that are equally near, the first. For the points of the fit these are
        ``labels_``.
        """
        check_is_fitted(self)
        with self._points(X) as (job, points):
            labels, _ = label_vectors(job)
            self._pass(job, points, labels=labels)
            return labels.whole()

    def transform(self, X: Any) -> Block:
        """Euclidean distances to the centres, of directions for a spherical algorithm: (n, K)
        float64, mapped from a file where they are many."""
        check_is_fitted(self)
        with self._points(X, table_columns=len(self.cluster_centers_)) as (job, points):
            return distances_to(job, points, self.cluster_centers_)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The negative inertia of points: the larger, the nearer they are to the centres."""
        check_is_fitted(self)
        with self._points(X, sample_weight) as (job, points):
            return -self._pass(job, points).inertia

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # How it is done.

    def _pass(self, job: Job, points: Points, **options: Any) -> PassResult:
        return run_pass(job, points, self.cluster_centers_, Weighing(), "labels", **options)

    @contextmanager
    def _points(
        self,
        X: Any,
        sample_weight: Any = None,
        *,
        reset: bool = False,
        table_columns: int | None = None,
    ) -> Iterator[tuple[Job, Points]]:
        arguments = Arguments(memory=self.memory, progress=self.progress, scheduler=self.scheduler)
        with points_of(
            self._checked(X, reset),
            arguments,
            self.n_clusters if reset else len(self.cluster_centers_),
            sample_weight,
            directions=self._directions,
            table_columns=table_columns,
            init=self.init if reset else None,
        ) as ready:
            yield ready

    def _checked(self, X: Any, reset: bool) -> RowSource:
        """Points of any kind, with the number and names of features that scikit-learn checks."""
        if is_array_like(X):
            X = validate_data(self, X, reset=reset, accept_sparse="csr", dtype="numeric")
            return as_rows(X, sparse=True)
        source = as_rows(X, sparse=True)
        d = source.shape[1]
        if reset:
            self.n_features_in_ = d
            if hasattr(self, "feature_names_in_"):  # those of an earlier fit
                del self.feature_names_in_
        elif d != self.n_features_in_:
            raise InputError(
                f"X has {d} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input."
            )
        return source

    def _check_parameters(self) -> None:
        check_count(self.n_clusters, "n_clusters")
        check_count(self.max_iter, "max_iter")
        check_number(self.tol, "tol")
        check_count(self.min_cluster_size, "min_cluster_size")
        if self.n_init != "auto":
            check_count(self.n_init, "n_init")
        if isinstance(self.init, str) and self.init not in INITS:
            raise InputError(f"init must be one of {INITS} or an array; got {self.init!r}.")

    def _runs(self) -> int:
        if not isinstance(self.init, str):
            return 1
        if self.n_init == "auto":
            return RANDOM_RUNS if self.init == "random" else 1
        return int(self.n_init)

    def _checkpoint_of(self, job: Job, points: Points) -> saved.Checkpoint | None:
        if self.checkpoint is None:
            return None
        header = {
            "algorithm": type(self).__name__,
            **{name: _told(value) for name, value in sorted(self.get_params().items())},
            "points": scan.content_digest(job.source, job.where),
            "weights": None if points.weights is None else _told(points.weights[0 : job.n]),
            "versions": {name: version(name) for name in ("silchunk", "numpy")},
        }
        for name in ("memory", "scheduler", "progress", "checkpoint", "callback"):
            del header[name]
        return saved.at(self.checkpoint, header)


def check_count(value: Any, name: str) -> None:
    """Raise unless it is an integer from 1 on."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise InputError(f"{name} must be an integer, 1 or more; got {value!r}.")


def check_number(value: Any, name: str, low: float = 0.0, high: float = np.inf) -> None:
    """Raise unless it is a number from ``low`` to ``high``."""
    if isinstance(value, bool) or not isinstance(value, Real) or not low <= float(value) <= high:
        raise InputError(f"{name} must be a number from {low:g} to {high:g}; got {value!r}.")


def _seed(random_state: Any) -> int:
    return int(generator(random_state).integers(1 << 63))


def _told(value: Any) -> Any:
    """A parameter as a header has it."""
    if isinstance(value, (str, type(None))):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, (tuple, list)):
        return [_told(one) for one in value]
    array = np.asarray(value)
    if array.dtype == object:
        return type(value).__name__
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
