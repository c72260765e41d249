"""Instance-weighted k-means that K-Sil is compared with: by local density, and by overlap."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np

from silchunk.cluster.base import Callback, CentroidClusterer, Init, check_count
from silchunk.cluster.fitting import Weigher
from silchunk.cluster.iteration import Reweigh, Rules
from silchunk.cluster.labels import LabelVector
from silchunk.cluster.points import Points, Vector
from silchunk.engine import Scheduler
from silchunk.errors import OverBudgetError, warn
from silchunk.labels import StoredVector
from silchunk.plan import format_bytes
from silchunk.prepare import Job
from silchunk.progress import Progress
from silchunk.rows import ArrayRows, Block

N_NEIGHBORS = 20  # as scikit-learn has it
# Of fewer points each is as far from the others as they are from it.
FEWEST_POINTS = 3
# Points are measured in a unit that makes the largest of their values about 2^SIZE_EXPONENT: what
# scikit-learn adds to distances, 1e-10, then is nothing beside them, and their squares are finite.
SIZE_EXPONENT = 300
# A local outlier factor so large tells of points that coincide: scikit-learn has the same limit.
SUSPICIOUS_FACTOR = 1e7


class LOFKMeans(CentroidClusterer):
    """k-means in which a point weighs the less, the sparser its neighbourhood is.

    A point weighs w = 1 / max(1, LOF), times its ``sample_weight``. LOF is its local outlier
    factor (Breunig et al. 2000, doi:10.1145/342009.335388) among all points, which is about 1 where
    they are as dense as around its neighbours and large for an outlier. Weights act in drawing the
    first centres and in moving them.

    Parameters
    ----------
    n_clusters : int
        K.
    n_neighbors : int
        Neighbours that LOF looks at; all other points where there are fewer.
    init, n_init, max_iter, tol, min_cluster_size, random_state, memory, scheduler, progress, \
    checkpoint, callback
        As in `KMeans`.

    Attributes
    ----------
    cluster_centers_, labels_, inertia_, n_iter_, history_, silhouette_, n_features_in_
        As in `KMeans`.

    Raises
    ------
    OverBudgetError
        The points do not fit into memory, all at once, as float64.

    Notes
    -----
    O(n K d) time an iteration and one read of the points, after one search for the neighbours of
    all points: O(n² d) time, less in few dimensions. That search holds 8 n d bytes of points, and
    about 32 bytes for each neighbour of each point.

    After Moggridge et al. (EANN 2020, doi:10.1007/978-3-030-48791-1_34), who weigh points by LOF
    too. No code of theirs was there to check their exact weights with: w = 1 / max(1, LOF), which
    is bounded and which a far outlier does not change for all others, is our choice.

    Neighbours are counted without regard to ``sample_weight``. Copies of a point are neighbours of
    each other: where there are more than ``n_neighbors`` of them, points next to them weigh close
    to nothing, and a warning says so.

    Examples
    --------
    LOF is 7/8, 4/3, 7/8 and 49/24, so that weights are 1, 3/4, 1 and 24/49:

    >>> from silchunk import LOFKMeans
    >>> found = LOFKMeans(1, n_neighbors=2, random_state=0).fit([[0], [1], [2], [5]])
    >>> found.cluster_centers_.round(4).tolist()  # 1019/635; the mean is 2
    [[1.6047]]
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_neighbors: int = N_NEIGHBORS,
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
        super().__init__(
            n_clusters,
            init=init,
            n_init=n_init,
            max_iter=max_iter,
            tol=tol,
            min_cluster_size=min_cluster_size,
            random_state=random_state,
            memory=memory,
            scheduler=scheduler,
            progress=progress,
            checkpoint=checkpoint,
            callback=callback,
        )
        self.n_neighbors = n_neighbors

    def _weigher(self) -> Weigher:
        return _AmongAll(self.n_neighbors)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_count(self.n_neighbors, "n_neighbors")


class ILOFKMeans(LOFKMeans):
    """k-means in which a point weighs the less, the sparser its part of its own cluster is.

    As `LOFKMeans`, but LOF is taken anew after every assignment, among the points of the same
    cluster alone: w = 1 / max(1, LOF), times ``sample_weight``, in moving the centres. In a cluster
    of fewer than three points all weigh 1. The first centres are drawn without these weights.

    Parameters
    ----------
    n_clusters : int
        K.
    n_neighbors : int
        Neighbours that LOF looks at; all other points of the cluster where there are fewer.
    init, n_init, max_iter, tol, min_cluster_size, random_state, memory, scheduler, progress, \
    checkpoint, callback
        As in `KMeans`.

    Attributes
    ----------
    cluster_centers_, labels_, inertia_, n_iter_, history_, silhouette_, n_features_in_
        As in `KMeans`.

    Raises
    ------
    OverBudgetError
        The points do not fit into memory, all at once, as float64.

    Notes
    -----
    An iteration takes O(n K d) time, two reads of the points, and a search for neighbours in each
    cluster: O(n² d / K) time where clusters are alike in size, O(n² d) at worst. 8 n d bytes of
    points are held throughout.

    After the iterative variant of Moggridge et al. (EANN 2020,
    doi:10.1007/978-3-030-48791-1_34); weights, as in `LOFKMeans`, and when they are taken anew are
    our choice. The centres of least inertia are kept. The iterations end when labels and centres
    stand still, when labels return to what they were, or when inertia has not fallen for ten
    iterations.

    Examples
    --------
    Weights in the cluster of four are 1, 3/4, 1 and 24/49, as they would be without the other:

    >>> from silchunk import ILOFKMeans
    >>> X = [[0], [1], [2], [5], [90], [92]]
    >>> found = ILOFKMeans(2, n_neighbors=2, init=[[0], [90]]).fit(X)
    >>> found.cluster_centers_.round(4).tolist()
    [[1.6047], [91.0]]
    """

    def _rules(self) -> Rules:
        return Rules(
            "inertia",
            self.max_iter,
            self.min_cluster_size,
            directions=self._directions,
            unsteady=True,
        )

    def _weigher(self) -> Weigher:
        return _WithinClusters(self.n_neighbors)


class OWKMeans(CentroidClusterer):
    """k-means in which a point weighs the more, the less clearly it belongs to its cluster.

    A point weighs w = (1 - s) / 2, times its ``sample_weight``, with s = 1 - a/b, and a and b the
    distances to the nearest and the second nearest centre: so w = a / 2b, which is 0 at a centre
    and 1/2 halfway between two clusters. This is opposite to `KSil`: centres move towards outliers
    and towards points where clusters overlap.

    Parameters
    ----------
    n_clusters : int
        K.
    init, n_init, max_iter, tol, min_cluster_size, random_state, memory, scheduler, progress, \
    checkpoint, callback
        As in `KMeans`.

    Attributes
    ----------
    cluster_centers_, labels_, inertia_, n_iter_, history_, silhouette_, n_features_in_
        As in `KMeans`.

    Notes
    -----
    O(n K d) time an iteration, and one read of the points.

    After the object weighting of Gondeau et al. (2021, doi:10.1109/TCBB.2019.2921577, PMC8158064),
    of whose schemes this is the one by silhouettes, with three departures. s is taken from
    distances to centres rather than between points. All points are assigned and then all centres
    moved, where the original moves one object at a time to another cluster, as long as that lowers
    the weighted cost. And centres are weighted means, where those of the authors' code are plain
    ones.

    The centres of least inertia, in which w has no part, are kept. The iterations end when labels
    and centres stand still, when labels return to what they were, or when inertia has not fallen
    for ten iterations.

    Examples
    --------
    The points at 1 and 3 are 1 and 3 from the centre at 0, and 7 and 5 from the one at 8. They
    weigh 1/14 and 3/10, so that the centre moves to 34/13 rather than 2:

    >>> from silchunk import OWKMeans
    >>> found = OWKMeans(2, init=[[0], [8]], max_iter=1).fit([[1], [3], [7]])
    >>> found.cluster_centers_.round(4).tolist()
    [[2.6154], [7.0]]
    """

    def _rules(self) -> Rules:
        return Rules(
            "inertia",
            self.max_iter,
            self.min_cluster_size,
            unclear=True,
            directions=self._directions,
        )


@dataclass(frozen=True)
class _AmongAll:
    """Weights by LOF among all points."""

    n_neighbors: int

    def fixed(self, job: Job, points: Points) -> Vector | StoredVector:
        weights = _density_weights(_all_points(job, points), self.n_neighbors)
        return job.shared(_times_given(weights, points), "density-weights")

    def by_labels(self, job: Job, points: Points) -> None:
        return None


@dataclass(frozen=True)
class _WithinClusters:
    """Weights by LOF among the points of a cluster."""

    n_neighbors: int

    def fixed(self, job: Job, points: Points) -> Vector | StoredVector | None:
        return points.weights

    def by_labels(self, job: Job, points: Points) -> Reweigh:
        X = _all_points(job, points)
        # By turns: a file is not written while the pass before may still have it.
        names = cycle(["cluster-weights-0", "cluster-weights-1"])

        def reweigh(labels: LabelVector) -> Vector | StoredVector:
            weights = np.empty(len(X))
            for members in _clusters(labels.read(0, len(X))):
                weights[members] = _density_weights(X[members], self.n_neighbors)
            return job.shared(_times_given(weights, points), next(names))

        return reweigh


def _clusters(labels: Vector) -> Iterator[Vector]:
    """The points of each cluster that has any: (m,) int64, ascending."""
    order = np.argsort(labels, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)


def _times_given(weights: Vector, points: Points) -> Vector:
    """(n,) float64: ``weights`` times those that the points were given with."""
    if points.weights is None:
        return weights
    product: Vector = weights * points.weights[0 : len(weights)]
    return product


def _all_points(job: Job, points: Points) -> Block:
    """(n, d) float64: all points, less their mean and in a unit of their own. Factors are the
    same, but distances that scikit-learn forms of products do not cancel far from zero.

    Raises
    ------
    OverBudgetError
        They are not in memory yet, and too many to be held.
    """
    n, d = points.shape
    needed = 8 * n * d
    if needed > job.held_bytes and not isinstance(job.source, ArrayRows):
        raise OverBudgetError(
            f"local outlier factors need all {n:,} points in memory: {format_bytes(needed)}, of "
            f"which the budget allows {format_bytes(job.held_bytes)}. Raise memory=, pass points "
            "that are in memory already, fewer points or fewer features; or use KMeans or KSil, "
            "which read points a few at a time."
        )
    X = np.empty((n, d))
    for start, stop in points.ranges_of(job):
        X[start:stop] = points.rows(start, stop)
    X -= X.mean(axis=0)
    _, exponent = np.frexp(np.abs([X.min(), X.max()]).max())
    np.ldexp(X, SIZE_EXPONENT - exponent, out=X)
    return X


def _density_weights(X: Block, n_neighbors: int) -> Vector:
    """(m,) float64 in (0, 1]: 1 / max(1, LOF) of points (m, d) among each other."""
    if len(X) < FEWEST_POINTS:
        return np.ones(len(X))
    factors = _outlier_factors(X, min(n_neighbors, len(X) - 1))
    if factors.max() > SUSPICIOUS_FACTOR:
        warn(
            f"some points have a local outlier factor of {factors.max():.1e}, and weigh next to "
            f"nothing: more than n_neighbors={n_neighbors:,} others coincide, or almost. Raise "
            "n_neighbors=, or pass each point once and how often it occurs as sample_weight."
        )
    weights: Vector = 1.0 / np.maximum(factors, 1.0)
    return weights


def _outlier_factors(X: Block, n_neighbors: int) -> Vector:
    """(m,) local outlier factors of points (m, d), all finite: scikit-learn adds 1e-10 to mean
    distances that may be 0."""
    from sklearn.neighbors import LocalOutlierFactor

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of copies, which `_density_weights` gives
        found = LocalOutlierFactor(n_neighbors=n_neighbors).fit(X)
    factors: Vector = -found.negative_outlier_factor_
    return factors
