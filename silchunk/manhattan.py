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
from silchunk.rows import Block, RowSource

Vector = np.ndarray[Any, np.dtype[Any]]

# Features that are held sorted at once, unless more threads sort them. Sums do not depend on it.
FEATURES = 4
# Numbers for each point that are held of a sorted feature.
SORTED = 2


@dataclass(frozen=True)
class _SortedFeatures:
    """Room for some features, each sorted."""

    ascending: Block  # (f, n) float64
    places: Block  # (f, n), those of the points among the ascending

    @classmethod
    def room(cls, features: int, n: int) -> _SortedFeatures:
        """For so many features of n points."""
        return cls(np.empty((features, n)), np.empty((features, n), np.intp))


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
            column = self.points.rows(0, n, slice(feature, feature + 1))[:, 0]
            order = np.argsort(column)
            self.room.ascending[k] = column[order]
            self.room.places[k][order] = np.arange(n)


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
            for ascending, places in zip(features.ascending, features.places, strict=True):
                own, weights = self._sorted(places[members], members)
                kernel.distances_along(ascending, own, weights, along)
                # Places are in range; with "clip" what is taken is written straight to its place.
                np.take(along, places, out=of_points, mode="clip")
                self.sums[c] += of_points

    def _sorted(self, places: Vector, members: Vector) -> tuple[Vector, Vector | None]:
        """Places of a cluster's points, ascending, and the weights of these points."""
        if self.weights is None:
            return np.sort(places), None
        ascending = np.argsort(places)
        return places[ascending], self.weights[members[ascending]]


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

    Takes O(n d (log n + K)) time, and memory as `manhattan_bytes` and, for each thread,
    `manhattan_task_bytes` say; reads each column once. The sums have the same bits for any number
    of threads; how far they are off is told in `silchunk.kernels.manhattan`.

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
    room = _SortedFeatures.room(held, n)
    for first, last in ranges(d, held):
        label = f"features {first + 1:,} to {last:,} of {d:,}"
        few = last - first
        features = _SortedFeatures(room.ascending[:few], room.places[:few])
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
    # Sums along a feature, those of the points, coordinates on one side and sums there; of a
    # cluster's points their places, coordinates and weights, and what makes up its line.
    adding = 4 * n + 9 * largest
    return 8 * max(sorting, adding)
