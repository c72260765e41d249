"""Dunn's index and its generalisations: how far apart clusters are, for how wide they are.

Dunn, "Well-separated clusters and optimal fuzzy partitions", J. Cybernetics 4 (1974) 95-104,
doi:10.1080/01969727408546059; Bezdek & Pal, "Some new indexes of cluster validity", IEEE Trans.
Syst. Man Cybern. B 28 (1998) 301-315, doi:10.1109/3477.678624.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from silchunk.centroids import grid_ranges, mean_distances, moments
from silchunk.distances import find_store
from silchunk.dunn_jobs import counted_rows, extremes, panel_tiles
from silchunk.dunn_result import DunnResult, ratio
from silchunk.engine import Scheduler
from silchunk.errors import InputError
from silchunk.kernels import dunn as kernel
from silchunk.kernels.centroids import sums_to_clusters
from silchunk.kernels.segments import add_rows
from silchunk.labelled_jobs import labelled_job
from silchunk.labels import Labels
from silchunk.metrics import canonical_name
from silchunk.panels import PanelSource
from silchunk.plan import LEAF_ROWS, PREFERRED_PANEL_ROWS, ranges
from silchunk.prepare import Arguments, Job, Needs
from silchunk.progress import Progress
from silchunk.rows import Block, RowSource
from silchunk.tiles import Codes

Vector = np.ndarray[Any, np.dtype[Any]]
Metric = str | Callable[..., float]


class _Reduction(NamedTuple):
    """How distances become a number for each two clusters, (K, K)."""

    rows: Callable[..., None]  # kernel: a tile to a number for each row and cluster
    start: float  # of that number
    dtype: type | None  # of it; None: of the distances
    combine: np.ufunc  # numbers of the rows of one cluster, and of both ways between two
    neutral: float  # to that
    once: bool  # whether one look at each pair of points is enough


_REDUCTIONS = {
    "least": _Reduction(kernel.least_rows, np.inf, None, np.minimum, np.inf, True),
    "largest": _Reduction(kernel.largest_rows, 0.0, None, np.maximum, 0.0, True),
    "sum": _Reduction(add_rows, 0.0, np.float64, np.add, 0.0, False),
    "farthest": _Reduction(kernel.least_rows, np.inf, None, np.maximum, 0.0, False),
}
# What each kind is read from; None: from means.
_SEPARATIONS: dict[str, str | None] = {
    "single": "least",
    "complete": "largest",
    "average": "sum",
    "hausdorff": "farthest",
    "centroid": None,
    "average_to_centroid": None,
}
_DIAMETERS: dict[str, str | None] = {"complete": "largest", "average": "sum", "centroid": None}


def dunn_score(
    X: Any,
    labels: Any,
    *,
    metric: Metric = "euclidean",
    metric_params: Mapping[str, Any] | None = None,
    noise: str | None = None,
    return_witnesses: bool = False,
    dtype: Any = None,
    validate: bool = True,
    memory: int | str | None = None,
    progress: Progress = None,
    scheduler: Scheduler = None,
) -> Any:
    """Dunn's index: least distance between clusters / largest distance within one.

    Parameters
    ----------
    X : array of shape (n, d), or (n, n) with ``metric="precomputed"``
        Points or distances, in memory or not, as in `silhouette_upper_bound`; or a stored matrix.
    labels : (n,) sequence or array, path of a .npy file or Zarr array, Zarr or Dask array
        Cluster of each point: numbers, strings or anything hashable; from 2 to n - 1 clusters.
    metric, metric_params, dtype, validate, memory, progress, scheduler
        As in `silhouette_upper_bound`.
    noise : "cluster", "drop" or "singleton", optional
        What points labelled -1 are: a cluster, left out, or each a cluster of its own. Default: a
        cluster, with a warning if there are any.
    return_witnesses : bool
        Also tell which points the two distances are of.

    Returns
    -------
    float or DunnResult
        At least 0; larger is better. If all clusters have diameter 0, inf, or 0 where different
        clusters have equal points too; with a `ZeroDiameterWarning`.

    Raises
    ------
    InputError
        Wrong shape, NaN or infinity, unknown metric, no distance matrix, or labels that are not
        one for each point or of fewer than 2 or more than n - 1 clusters.
    OverBudgetError
        If the plan cannot fit into ``memory``; before any work.

    Notes
    -----
    Exact: the least and the largest of all distances as computed in ``dtype``, the same whatever
    the memory and scheduler. Time O(n² d), each distance of points computed once; memory is that of
    a few rows and the labels, never O(n²).

    References
    ----------
    Dunn, J. Cybernetics 4 (1974) 95-104, doi:10.1080/01969727408546059; first in J. Cybernetics 3
    (1973) 32-57, doi:10.1080/01969727308546046.

    Examples
    --------
    >>> from silchunk import dunn_score
    >>> points = [[0, 0], [0.5, 0], [1, 0], [0.5, 1]]
    >>> dunn_score(points, [0, 0, 0, 1])
    1.0
    >>> dunn_score(points, [0, 0, 0, 1], return_witnesses=True)
    Dunn index 1
      separation 1, from point 1 to point 3 of another cluster
      diameter   1, from point 0 to point 2 of the same cluster
    """
    arguments = Arguments(metric, metric_params, dtype, validate, memory, progress, scheduler)
    with labelled_job(X, labels, noise, arguments, _needs(0)) as (job, _, codes):
        separation, diameter = extremes(job, codes)
    score = ratio(separation.value, diameter.value)
    if not return_witnesses:
        return score
    return DunnResult(score, separation.value, separation.points, diameter.value, diameter.points)


def generalized_dunn_score(
    X: Any,
    labels: Any,
    *,
    separation: str = "single",
    diameter: str = "complete",
    metric: Metric = "euclidean",
    metric_params: Mapping[str, Any] | None = None,
    noise: str | None = None,
    dtype: Any = None,
    validate: bool = True,
    memory: int | str | None = None,
    progress: Progress = None,
    scheduler: Scheduler = None,
) -> float:
    """Dunn indices of Bezdek & Pal: least separation of two clusters / largest diameter of one.

    Parameters
    ----------
    X, labels, metric, metric_params, noise, dtype, validate, memory, progress, scheduler
        As in `dunn_score`.
    separation : str
        Of two clusters. "single", "complete" or "average": least, largest or mean distance
        between a point of one and a point of the other. "hausdorff": largest distance from a
        point of either to the nearest point of the other. "centroid": distance of their means.
        "average_to_centroid": mean distance from the points of both to the mean of the other.
    diameter : str
        Of a cluster, 0 of a single point. "complete" or "average": largest or mean distance of
        two of its points. "centroid": twice the mean distance of its points to their mean.

    Returns
    -------
    float
        At least 0; larger is better. If all clusters have diameter 0, inf, or 0 where the
        separation is 0 too; with a `ZeroDiameterWarning`.

    Raises
    ------
    InputError
        As in `dunn_score`; an unknown kind; or one that takes means of clusters without points in
        the Euclidean metric.
    OverBudgetError
        If the plan cannot fit into ``memory``; before any distance.

    Notes
    -----
    One pass over the distances unless both kinds take means, time O(n² d), and two over the points
    where one does, O(n d) or, for "average_to_centroid", O(n K d). Memory is that of a few rows,
    the labels, and, but for single against complete, tables of K × K for K clusters and their
    means; never O(n²). Sums and means are in float64, in one order whatever the memory and
    scheduler.

    References
    ----------
    Bezdek & Pal, IEEE Trans. Syst. Man Cybern. B 28 (1998) 301-315, doi:10.1109/3477.678624.

    Examples
    --------
    >>> from silchunk import generalized_dunn_score
    >>> points, labels = [[0.0], [2.0], [10.0], [14.0]], [0, 0, 1, 1]
    >>> generalized_dunn_score(points, labels)  # (10 - 2) / (14 - 10)
    2.0
    >>> generalized_dunn_score(points, labels, separation="average")  # mean of 10, 14, 8, 12
    2.75
    >>> generalized_dunn_score(points, labels, separation="hausdorff")  # from 14 to 2
    3.0
    >>> generalized_dunn_score(points, labels, separation="centroid", diameter="centroid")
    2.75
    """
    _check_kind("separation", separation, _SEPARATIONS)
    _check_kind("diameter", diameter, _DIAMETERS)
    arguments = Arguments(metric, metric_params, dtype, validate, memory, progress, scheduler)
    used = {_SEPARATIONS[separation], _DIAMETERS[diameter]}
    if None in used:
        _refuse_without_means(X, arguments, separation, diameter)
    if (separation, diameter) == ("single", "complete"):
        with labelled_job(X, labels, noise, arguments, _needs(0)) as (job, _, codes):
            least, largest = extremes(job, codes)
        return ratio(least.value, largest.value)
    names = tuple(sorted(name for name in used if name))
    n_tables = len(names) + (_SEPARATIONS[separation] is None)
    with labelled_job(X, labels, noise, arguments, _needs(n_tables)) as (job, known, codes):
        tables = _tables(job, codes, known.n_clusters, names)
        if None in used:
            tables |= _tables_of_means(job, codes, known.n_clusters, separation, diameter)
    return ratio(
        _least_separation(separation, tables, known.sizes),
        _largest_diameter(diameter, tables, known.sizes),
    )


def _check_kind(name: str, kind: str, known: Mapping[str, Any]) -> None:
    if kind not in known:
        raise InputError(f"{name} must be one of {', '.join(known)}; got {kind!r}.")


def _refuse_without_means(X: Any, arguments: Arguments, separation: str, diameter: str) -> None:
    name = "a callable" if callable(arguments.metric) else canonical_name(arguments.metric)
    given = "a stored matrix" if find_store(X) is not None else f"metric={name!r}"
    if given != "metric='euclidean'":
        raise InputError(
            f"separation={separation!r} with diameter={diameter!r} takes means of clusters, which "
            f'need points and metric="euclidean"; got {given}. Other kinds take any distances: '
            'separation "single", "complete", "average" or "hausdorff", diameter "complete" or '
            '"average".'
        )


def _needs(n_tables: int) -> Callable[[int, Labels], Needs]:
    """What so many K × K tables take."""

    def needs_of(n: int, labels: Labels) -> Needs:
        kept = labels.n_clusters if n_tables else 0
        return Needs(
            outputs=0,
            row_results=2 * n_tables * kept,
            result_bytes=8 * (n_tables + 2) * kept**2,
            clusters=max(kept, 1),
        )

    return needs_of


class _ByCluster(NamedTuple):
    """What has come of the rows of each cluster."""

    clusters: Vector  # (g,) int64
    values: list[Block]  # (g, K) for each table


def _by_cluster(own: Vector, tables: list[Block], combine: list[np.ufunc]) -> _ByCluster:
    """Combine the rows of each cluster; ``own`` (r,) are theirs, ``tables`` (r, K)."""
    order = np.argsort(own, kind="stable")
    clusters, starts = np.unique(own[order], return_index=True)
    both = zip(combine, tables, strict=True)
    return _ByCluster(clusters, [how.reduceat(table[order], starts, axis=0) for how, table in both])


@dataclass(frozen=True)
class _ReducePairs:
    """Panel task: distances reduced by the clusters of both points, leaf by leaf of rows, so that
    sums are the same in panels of any length."""

    panels: PanelSource
    codes: Codes
    n_clusters: int
    names: tuple[str, ...]  # of reductions

    def __call__(self, start: int, stop: int) -> list[_ByCluster]:
        reductions = [_REDUCTIONS[name] for name in self.names]
        rows, own = counted_rows(self.codes, start, stop)
        shape, dtype = (len(rows), self.n_clusters), self.panels.dtype
        tables = [np.full(shape, one.start, one.dtype or dtype) for one in reductions]
        once = all(one.once for one in reductions)
        for tile in panel_tiles(self.panels, self.codes, rows, start, once=once):
            for one, table in zip(reductions, tables, strict=True):
                one.rows(tile.distances, tile.clusters, tile.edges, table[tile.rows])
        leaves = np.arange(start, stop + LEAF_ROWS, LEAF_ROWS)
        combine = [one.combine for one in reductions]
        return [
            _by_cluster(own[a:b], [table[a:b] for table in tables], combine)
            for a, b in pairwise(np.searchsorted(rows, leaves))
            if a < b
        ]


def _tables(job: Job, codes: Codes, n_clusters: int, names: tuple[str, ...]) -> dict[str, Block]:
    """(K, K) for each reduction, both ways between two clusters combined."""
    if not names:
        return {}
    tables = {name: np.full((n_clusters, n_clusters), _REDUCTIONS[name].neutral) for name in names}

    def combine(_: int, leaves: list[_ByCluster]) -> None:
        for leaf in leaves:
            for name, values in zip(names, leaf.values, strict=True):
                place = tables[name][leaf.clusters]
                tables[name][leaf.clusters] = _REDUCTIONS[name].combine(place, values)

    job.map(_ReducePairs(job.panels, codes, n_clusters, names), combine, "Dunn index")
    return {name: _REDUCTIONS[name].combine(table, table.T) for name, table in tables.items()}


@dataclass(frozen=True)
class _SumToMeans:
    """Panel task over points: their distances to all means, summed by cluster of a few points."""

    points: RowSource
    codes: Codes
    means: Codes  # (K, d) float64
    n_clusters: int

    def __call__(self, start: int, stop: int) -> list[_ByCluster]:
        points, means = self.points.rows(start, stop), self.means[0 : self.n_clusters]
        blocks = ranges(stop - start, PREFERRED_PANEL_ROWS)
        kept = [counted_rows(self.codes, start + a, start + b) for a, b in blocks]
        return [
            _by_cluster(own, [_distances(points[rows - start], means)], [np.add])
            for rows, own in kept
            if len(rows)
        ]


def _distances(points: Block, means: Block) -> Block:
    """(r, K) float64, from ``points`` (r, d) to ``means`` (K, d)."""
    out = np.empty((len(points), len(means)))
    sums_to_clusters(points, means, np.zeros(len(means)), np.ones(len(means)), out)
    return np.sqrt(out, out=out)


def _tables_of_means(
    job: Job, codes: Codes, n_clusters: int, separation: str, diameter: str
) -> dict[str, Block]:
    """Those of the kinds asked for that take means of clusters."""
    of = moments(job, codes, n_clusters)
    tables: dict[str, Block] = {}
    if diameter == "centroid":
        tables["spread"] = mean_distances(job, codes, of)
    if separation == "centroid":
        tables[separation] = _distances(of.means, of.means)
    if separation == "average_to_centroid":
        sums = np.zeros((n_clusters, n_clusters))

        def combine(_: int, found: list[_ByCluster]) -> None:
            for block in found:
                sums[block.clusters] += block.values[0]

        task = _SumToMeans(job.source, codes, job.shared(of.means, "means"), n_clusters)
        # Long ranges of points have many results, which is no matter where each is small.
        panels = grid_ranges(job) if n_clusters <= PREFERRED_PANEL_ROWS else None
        job.map(task, combine, "distances to means", panels)
        tables[separation] = sums + sums.T
    return tables


def _least_separation(kind: str, tables: Mapping[str, Block], sizes: Vector) -> float:
    table = tables[_SEPARATIONS[kind] or kind]
    if kind == "average":  # both ways are in the sum
        table = table / (2.0 * np.multiply.outer(sizes, sizes))
    if kind == "average_to_centroid":
        table = table / np.add.outer(sizes, sizes)
    return float(table.min(where=~np.eye(len(table), dtype=bool), initial=np.inf))


def _largest_diameter(kind: str, tables: Mapping[str, Block], sizes: Vector) -> float:
    if kind == "centroid":
        return 2.0 * float(tables["spread"].max())
    diagonal = np.diagonal(tables[_DIAMETERS[kind] or kind])
    if kind == "average":  # each ordered pair is in the sum twice
        diagonal = diagonal / (2.0 * sizes * np.maximum(sizes - 1, 1))
    return float(diagonal.max())
