"""Sums of Manhattan distances by cluster, exact, without computing a single distance.

Each feature is sorted once; along the sorted coordinates a cluster's sum is a matter of counting:
see `silchunk.kernels.manhattan`. Features are taken a few at a time, so that what is held of them
does not grow with their number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from silchunk import engine
from silchunk.kernels import manhattan as kernels
from silchunk.plan import PanelRange, ranges
from silchunk.progress import Progress
from silchunk.rows import Block, RowSource, float_dtype

Vector = np.ndarray[Any, np.dtype[Any]]

# Features that are held sorted at once, unless more threads sort them. Sums do not depend on it.
FEATURES = 4


@dataclass(frozen=True)
class _Clusters:
    """Who belongs where."""

    codes: Vector  # (n,)
    kept: Vector  # (m,) points that have a cluster, ascending
    weights: Vector | None  # (n,) float64
    sizes: Vector  # (K,) float64, numbers of points or sums of weights


@dataclass(frozen=True)
class _SortedFeatures:
    """Room for some features, each sorted, with what its clusters have in it."""

    values: Block  # (f, m), ascending
    orders: Block  # (f, m), the points that they are of
    medians: Block  # (f, K)
    totals: Block  # (f, K), as in `silchunk.kernels.manhattan.find_medians`


@dataclass(frozen=True)
class _Sort:
    """Task on threads: sorts features [start, stop) into the room for those from ``first`` on."""

    points: RowSource
    clusters: _Clusters
    room: _SortedFeatures
    first: int

    def __call__(self, start: int, stop: int) -> None:
        clusters, room = self.clusters, self.room
        for feature in range(start, stop):
            column = self.points.rows(0, len(clusters.codes), slice(feature, feature + 1))[:, 0]
            column = column[clusters.kept]
            ascending = np.argsort(column)
            k = feature - self.first
            room.values[k] = column[ascending]
            room.orders[k] = clusters.kept[ascending]
            kernels.find_medians(
                room.values[k],
                room.orders[k],
                clusters.codes,
                clusters.weights,
                clusters.sizes,
                room.medians[k],
                room.totals[k],
            )


@dataclass(frozen=True)
class ClusterSums:
    """Sums of distances from n points to K clusters, held a group of clusters after the other:
    points come in any order, and what is added to lies close together, no other thread's between.

    Attributes
    ----------
    groups : (⌈K / GROUP⌉, n, GROUP) float64
    n_clusters : int
        K; what is beyond the last of them is zero.
    """

    groups: Block
    n_clusters: int

    def rows(self, start: int, stop: int) -> Block:
        """Sums of points [start, stop), (stop - start, K)."""
        by_point = self.groups[:, start:stop].swapaxes(0, 1).reshape(stop - start, -1)
        return by_point[:, : self.n_clusters]


@dataclass(frozen=True)
class _Add:
    """Task on threads: adds distances in ``features`` to a group of clusters, [start, stop)."""

    clusters: _Clusters
    features: _SortedFeatures
    groups: Block

    def __call__(self, start: int, stop: int) -> None:
        clusters, features = self.clusters, self.features
        group = self.groups[start // kernels.GROUP]
        for k in range(len(features.values)):
            kernels.add_feature(
                features.values[k],
                features.orders[k],
                clusters.codes,
                clusters.weights,
                clusters.sizes,
                features.medians[k],
                features.totals[k],
                start,
                group,
            )


def manhattan_sums(
    points: RowSource,
    codes: Vector,
    n_clusters: int,
    *,
    where: engine.Executor,
    sample_weight: Vector | None = None,
    concurrency: int | None = None,
    progress: Progress = False,
) -> ClusterSums:
    """Sums of Manhattan distances from each point to each cluster.

    Takes O(n d (log n + K)) time and `manhattan_bytes` of memory, and reads each column once. The
    sums have the same bits for any number of threads; how far they are off is told in
    `silchunk.kernels.manhattan`.

    Parameters
    ----------
    points : RowSource of shape (n, d)
        Finite, and held in memory: columns are read one by one.
    codes : (n,) integers
        Cluster of each point, from 0 to K - 1; points with a negative one count for nothing.
    n_clusters : int
        K.
    where : Executor
        Of this process: tasks write into arrays that they share.
    sample_weight : (n,) float64, optional
        A weight w counts as w copies of a point.
    concurrency, progress
        As in `silchunk.engine.map_panels`.

    Returns
    -------
    ClusterSums
        Those of points that have no cluster are zero. Sums above 2¹⁰²² may come out as infinity or
        NaN.
    """
    assert not where.distributed
    n, d = points.shape
    clusters = _clusters(codes, n_clusters, sample_weight)
    groups = np.zeros((-(-n_clusters // kernels.GROUP), n, kernels.GROUP))

    def run(task: engine.Task, panels: list[PanelRange], label: str) -> None:
        engine.map_panels(
            task,
            panels,
            lambda _, done: None,
            where=where,
            concurrency=concurrency,
            progress=progress,
            label=label,
        )

    for first, last in ranges(d, max(FEATURES, concurrency or 1)):
        label = f"features {first + 1:,} to {last:,} of {d:,}"
        features = _room(last - first, clusters, points.dtype)
        each = [(feature, feature + 1) for feature in range(first, last)]
        run(_Sort(points, clusters, features, first), each, f"{label}, sorting")
        each = ranges(n_clusters, kernels.GROUP)
        run(_Add(clusters, features, groups), each, f"{label}, adding")
        del features  # before the next ones take as much
    return ClusterSums(groups, n_clusters)


def manhattan_bytes(n: int, d: int, n_clusters: int, itemsize: int, threads: int) -> int:
    """Bytes that `manhattan_sums` holds at most beyond points, codes and weights.

    Parameters
    ----------
    n, d, n_clusters : int
    itemsize : int
        Bytes of a coordinate: 4 for float32, else 8.
    threads : int
        Tasks at once.
    """
    index = _index_dtype(n).itemsize
    features = min(d, max(FEATURES, threads))
    groups = -(-n_clusters // kernels.GROUP)
    kept = n * index
    counting = n * (4 + 8 + 8)  # codes, the same as numpy counts them, and weights
    sums = 8 * n * groups * kernels.GROUP
    room = features * (n * (itemsize + index) + 16 * n_clusters)
    # A column as it is read, what is kept of it, sorted; and the order, twice.
    sorting = min(threads, features) * (n * (3 * itemsize + 8 + index) + 9 * n_clusters)
    adding = min(threads, groups) * 8 * kernels.GROUP * n_clusters
    return kept + max(counting, sums + room + max(sorting, adding))


def _clusters(codes: Vector, n_clusters: int, weights: Vector | None) -> _Clusters:
    kept = np.flatnonzero(codes >= 0).astype(_index_dtype(len(codes)))
    sizes = np.bincount(
        codes[kept], None if weights is None else weights[kept], minlength=n_clusters
    )
    return _Clusters(codes, kept, weights, sizes.astype(np.float64))


def _room(features: int, clusters: _Clusters, dtype: np.dtype[Any]) -> _SortedFeatures:
    each_point = features, len(clusters.kept)
    each_cluster = features, len(clusters.sizes)
    return _SortedFeatures(
        np.empty(each_point, float_dtype(dtype)),
        np.empty(each_point, clusters.kept.dtype),
        np.zeros(each_cluster),
        np.zeros(each_cluster),
    )


def _index_dtype(n: int) -> np.dtype[Any]:
    return np.dtype(np.int32 if n <= np.iinfo(np.int32).max else np.int64)
