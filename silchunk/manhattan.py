"""Sums of Manhattan distances by cluster, exact, without computing a single distance.

Each feature is sorted once; along the sorted coordinates a cluster's sums are a broken line: see
`silchunk.kernels.manhattan`. Features are taken a few at a time, so that what is held of them does
not grow with their number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from silchunk import engine
from silchunk.kernels import manhattan as kernel
from silchunk.plan import PanelRange, ranges
from silchunk.progress import Progress
from silchunk.rows import Block, RowSource, float_dtype

Vector = np.ndarray[Any, np.dtype[Any]]

# Features that are held sorted at once, unless more threads sort them. Sums do not depend on it.
FEATURES = 4
# Numbers for each point that are held of a sorted feature.
SORTED = 3


@dataclass(frozen=True)
class _SortedFeatures:
    """Room for some features, each sorted."""

    columns: Block  # (f, n), as they are
    ascending: Block  # (f, n) float64
    ranks: Block  # (f, n), place of each point among the ascending

    @classmethod
    def room(cls, features: int, n: int, dtype: np.dtype[Any]) -> _SortedFeatures:
        """For so many features of n points."""
        shape = features, n
        columns = np.empty(shape, float_dtype(dtype))
        return cls(columns, np.empty(shape), np.empty(shape, np.intp))


@dataclass(frozen=True)
class _Sort:
    """Task on threads: sorts features [start, stop) into the room for those from ``first`` on."""

    points: RowSource
    room: _SortedFeatures
    first: int

    def __call__(self, start: int, stop: int) -> None:
        n = self.points.shape[0]
        for feature in range(start, stop):
            k = feature - self.first
            column = self.room.columns[k]
            column[:] = self.points.rows(0, n, slice(feature, feature + 1))[:, 0]
            order = np.argsort(column)
            self.room.ascending[k] = column[order]
            self.room.ranks[k][order] = np.arange(n)


@dataclass(frozen=True)
class _Add:
    """Task on threads: adds distances in ``features`` to the sums of clusters [start, stop)."""

    features: _SortedFeatures
    order: Vector  # (m,) points, cluster by cluster
    edges: Vector  # (K + 1,)
    weights: Vector | None  # (n,) float64
    sums: Block  # (K, n)

    def __call__(self, start: int, stop: int) -> None:
        features = self.features
        along, of_points = np.empty((2, self.sums.shape[1]))
        for c in range(start, stop):
            members = self.order[self.edges[c] : self.edges[c + 1]]
            if not len(members):
                continue
            for column, ascending, ranks in zip(
                features.columns, features.ascending, features.ranks, strict=True
            ):
                values, weights = self._sorted(column[members], members)
                kernel.distances_along(ascending, values, weights, along)
                # Ranks are in range; with "clip" they are taken straight into place.
                np.take(along, ranks, out=of_points, mode="clip")
                self.sums[c] += of_points

    def _sorted(self, values: Vector, members: Vector) -> tuple[Vector, Vector | None]:
        """Coordinates of a cluster in float64, ascending, and the weights of their points."""
        if self.weights is None:
            return np.sort(values).astype(np.float64), None
        ascending = np.argsort(values)
        return values[ascending].astype(np.float64), self.weights[members[ascending]]


def manhattan_sums(
    points: RowSource,
    order: Vector,
    edges: Vector,
    *,
    where: engine.Executor,
    sample_weight: Vector | None = None,
    concurrency: int | None = None,
    progress: Progress = False,
) -> Block:
    """Sums of Manhattan distances from each point to each cluster.

    Takes O(n d (log n + K)) time and `manhattan_bytes` of memory, and reads each column once. The
    sums have the same bits for any number of threads; how far they are off is told in
    `silchunk.kernels.manhattan`.

    Parameters
    ----------
    points : RowSource of shape (n, d)
        Finite, and held in memory: columns are read one by one.
    order : (m,) integers
        Points that have a cluster, cluster by cluster.
    edges : (K + 1,) integers
        Cluster c has the points ``order[edges[c] : edges[c + 1]]``.
    where : Executor
        Of this process: tasks write into arrays that they share.
    sample_weight : (n,) float64, optional
        A weight w counts as w copies of a point.
    concurrency, progress
        As in `silchunk.engine.map_panels`.

    Returns
    -------
    (K, n) float64
        Sums above 2¹⁰²² may come out as infinity or NaN.
    """
    assert not where.distributed
    n, d = points.shape
    n_clusters = len(edges) - 1
    sums = np.zeros((n_clusters, n))

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

    held = min(d, max(FEATURES, concurrency or 1))
    room = _SortedFeatures.room(held, n, points.dtype)
    for first, last in ranges(d, held):
        label = f"features {first + 1:,} to {last:,} of {d:,}"
        few = last - first
        features = _SortedFeatures(room.columns[:few], room.ascending[:few], room.ranks[:few])
        each = [(feature, feature + 1) for feature in range(first, last)]
        run(_Sort(points, features, first), each, f"{label}, sorting")
        task = _Add(features, order, edges, sample_weight, sums)
        run(task, [(c, c + 1) for c in range(n_clusters)], f"{label}, adding")
    return sums


def manhattan_bytes(n: int, n_clusters: int, features: int) -> int:
    """Bytes that `manhattan_sums` holds throughout, beyond points, their order and weights."""
    return 8 * n * n_clusters + features * 8 * n * SORTED


def manhattan_task_bytes(n: int, largest: int) -> int:
    """Bytes that one of its tasks takes, where the largest cluster has so many points."""
    sorting = 4 * n  # a column as it is read and as it is sorted; the order, and places in it
    # Sums along a feature and those on one side, coordinates the other way, sums of the points; of
    # a cluster's points the coordinates, distances and weights that make up its line.
    adding = 4 * n + 11 * largest
    return 8 * max(sorting, adding)
