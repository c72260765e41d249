"""How silhouettes of all points, or of a sample, are computed: the way that is cheapest.

Every way fills the job's table with a row (a, b, s, nearest cluster) for each point, in order.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from silchunk import engine
from silchunk.centroids import CentroidSums, grid_ranges, moments
from silchunk.cluster_sums import (
    PAIR_ROWS,
    PairSums,
    RowSilhouettes,
    SumPairs,
    most_clusters_of_a_panel,
    silhouettes_of,
)
from silchunk.draws import draw_stratified
from silchunk.errors import InputError, OverBudgetError
from silchunk.labels import Labels, check_number_of_clusters, read_labels
from silchunk.manhattan import (
    FEATURES,
    SORTED,
    manhattan_bytes,
    manhattan_sums,
    manhattan_task_bytes,
)
from silchunk.panels import PointPanels
from silchunk.plan import ranges
from silchunk.prepare import Arguments, Job, Needs, metric_of, prepared
from silchunk.rows import RowSource, copy_to_npy, in_memory, reordered

Vector = np.ndarray[Any, np.dtype[Any]]

RESULTS = 4  # numbers for each point
# Sums are reduced to silhouettes this many points at a time.
REDUCED_POINTS = 1024
# Pairs are summed both ways unless panels are of more clusters than this, each of which costs a
# pass over a number for each point.
MOST_CLUSTERS_OF_A_PANEL = 16


@dataclass(frozen=True)
class Asked:
    """What a user asks for beside the distances."""

    labels: Any
    noise: str | None = None
    sample_weight: Any = None
    sample_size: int | None = None
    random_state: Any = None


@dataclass(frozen=True)
class Clusters:
    """Checked labels and weights, and which points are looked at."""

    labels: Labels
    totals: Vector  # (K,) float64, numbers of points or sums of weights
    sample_weight: Vector | None  # (n,) float64
    sampled: Vector | None  # (s,) int64, ascending


def clusters_of(asked: Asked, n: int) -> Clusters:
    """Read and check what is asked for of n points.

    Raises
    ------
    InputError
    """
    labels = read_labels(asked.labels, n, noise=asked.noise)
    weights = None
    if asked.sample_weight is not None:
        if asked.sample_size is not None:
            raise InputError("sample_size does not go with sample_weight; leave one out.")
        weights = checked_weights(asked.sample_weight, n)
        labels = labels.without(weights == 0)
    totals: Vector = labels.sizes.astype(np.float64)
    if weights is None or labels.n_clusters < 2:
        check_number_of_clusters(labels)
    else:
        kept = labels.codes >= 0
        totals = np.bincount(labels.codes[kept], weights[kept], labels.n_clusters)
        _check_copies(totals)
    sampled = None
    if asked.sample_size is not None:
        sampled = draw_stratified(asked.sample_size, asked.random_state, labels)
    elif asked.random_state is not None:
        raise InputError("random_state goes with sample_size.")
    return Clusters(labels, totals, weights, sampled)


def _check_copies(totals: Vector) -> None:
    """Raise unless there are more copies of points than clusters, as there have to be of points."""
    if totals.sum() <= len(totals):
        raise InputError(
            f"sample_weight sums to {totals.sum():g} in {len(totals):,} clusters. A weight is a "
            "number of copies of its point: more of them than clusters are needed, so multiply "
            "all weights by a number that is large enough."
        )


def checked_weights(sample_weight: Any, n: int) -> Vector:
    """Weights (n,) float64, finite and not negative; a point of weight 0 is left out.

    Raises
    ------
    InputError
    """
    try:
        weights = np.asarray(sample_weight, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"sample_weight cannot be read as numbers: {error}") from error
    if weights.shape != (n,):
        raise InputError(
            f"sample_weight must have one entry for each of the {n:,} points; its shape is "
            f"{weights.shape}."
        )
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        raise InputError(
            f"sample_weight is {weights[bad[0]]} at {bad[0]}; it must be finite and not negative."
        )
    return weights


class Way(Protocol):
    """A way to compute silhouettes."""

    def needs(self, n: int, clusters: Clusters) -> Needs:
        """What it holds; raises `_UnsuitedError` where another way is better."""

    def run(self, job: Job, clusters: Clusters) -> None:
        """Fill the job's table."""


class _UnsuitedError(Exception):
    """Another way is better."""


def started(stack: ExitStack, X: Any, arguments: Arguments, asked: Asked) -> tuple[Job, Clusters]:
    """Compute silhouettes; the job's table has them for as long as the stack is open."""
    known: list[Clusters] = []
    distributed = engine.executor(arguments.scheduler).distributed
    ways = _ways(metric_of(X, arguments), asked, distributed)
    for way in ways:

        def needs_of(n: int, way: Way = way) -> Needs:
            if not known:
                known.append(clusters_of(asked, n))
            return replace(way.needs(n, known[0]), labels=asked.labels)

        try:
            job = stack.enter_context(prepared(X, arguments, needs_of=needs_of))
        except (OverBudgetError, _UnsuitedError):
            if way is ways[-1]:
                raise
            continue
        way.run(job, known[0])
        return job, known[0]
    raise AssertionError("there is always a last way")


def _ways(metric: str, asked: Asked, distributed: bool) -> list[Way]:
    """Ways that suit, the fastest first; the last one always does."""
    if asked.sample_size is not None or metric == "precomputed":
        return [ByRows()]
    if metric in ("sqeuclidean", "cosine"):
        return [ByCentroids(directions=metric == "cosine")]
    if metric == "manhattan" and not distributed:
        return [ByCoordinates(), ByRows()]
    return [ByRows()] if asked.sample_weight is not None else [ByPairs(), ByRows()]


class ByRows:
    """All distances of a row at a time; for any metric, any matrix, weights, samples."""

    def needs(self, n: int, clusters: Clusters) -> Needs:
        sampled = clusters.sampled
        return Needs(
            outputs=0,
            row_results=clusters.labels.n_clusters + RESULTS,
            result_bytes=_label_bytes(n, clusters),
            table_columns=RESULTS,
            sampled_rows=None if sampled is None else len(sampled),
            clusters=clusters.labels.n_clusters,
        )

    def run(self, job: Job, clusters: Clusters) -> None:
        weights, sampled, codes = clusters.sample_weight, clusters.sampled, clusters.labels.codes
        task = RowSilhouettes(
            job.panels,
            job.shared(codes, "labels"),
            clusters.totals,
            None if weights is None else job.shared(weights, "weights"),
            sampled,
            None if sampled is None else codes[sampled],
        )
        job.map(task, lambda _, rows: job.table.append(rows), "silhouettes", job.panels_of(sampled))


class ByPairs:
    """Each pair of points once, which halves the work; holds n × K sums and the points in RAM."""

    def needs(self, n: int, clusters: Clusters) -> Needs:
        labels = clusters.labels
        most = most_clusters_of_a_panel(labels.sizes)
        if most > MOST_CLUSTERS_OF_A_PANEL:
            raise _UnsuitedError
        return Needs(
            outputs=5 * most,  # of a task that runs, and of those that wait for one before them
            row_results=2 * labels.n_clusters,
            # Sums, and the order of the points and their places in it.
            result_bytes=8 * n * (labels.n_clusters + 2) + _label_bytes(n, clusters),
            table_columns=RESULTS,
            clusters=labels.n_clusters,
            panel_rows=PAIR_ROWS,
            point_copies=1,
        )

    def run(self, job: Job, clusters: Clusters) -> None:
        assert isinstance(job.panels, PointPanels)
        labels = clusters.labels
        order = labels.order()
        points: RowSource = reordered(job.panels.points, order)
        if job.where.distributed:
            points = copy_to_npy(points, job.scratch / "ordered.npy")
        sums = np.zeros((labels.n_clusters, len(order)))

        def add(index: int, pairs: PairSums) -> None:
            start = index * PAIR_ROWS
            stop = start + pairs.by_row.shape[1]
            sums[:, start:stop] += pairs.by_row
            sums[pairs.clusters, stop:] += pairs.by_column

        task = SumPairs(replace(job.panels, points=points), labels.edges())
        job.map(task, add, "silhouettes", ranges(len(order), PAIR_ROWS))
        place = np.zeros(job.n, np.int64)  # of points that are left out, anywhere
        place[order] = np.arange(len(order))
        for a, b in ranges(job.n, REDUCED_POINTS):
            some = np.ascontiguousarray(sums[:, place[a:b]].T)
            job.table.append(silhouettes_of(some, labels.codes[a:b], clusters.totals))


class ByCoordinates:
    """Manhattan distances feature by feature, in O(nd (log n + K)); holds the points in RAM."""

    def needs(self, n: int, clusters: Clusters) -> Needs:
        labels = clusters.labels
        held = manhattan_bytes(n, labels.n_clusters, FEATURES)
        in_task = manhattan_task_bytes(n, int(labels.sizes.max()))
        weights = 0 if clusters.sample_weight is None else 8 * n
        return Needs(
            # What a task takes, and the feature that is held for it where tasks outnumber FEATURES.
            outputs=SORTED + -(-in_task // (8 * n)),
            # The points' order, and which of them have a cluster, and weights of these.
            result_bytes=held + 16 * n + weights + _label_bytes(n, clusters),
            table_columns=RESULTS,
            clusters=labels.n_clusters,
            point_copies=1,
            compiled=False,
        )

    def run(self, job: Job, clusters: Clusters) -> None:
        labels, weights = clusters.labels, clusters.sample_weight
        kept = np.flatnonzero(labels.codes >= 0)
        # Points that are left out, however far away, are not among the coordinates.
        everything = len(kept) == job.n
        sums = manhattan_sums(
            in_memory(job.source) if everything else reordered(job.source, kept),
            np.argsort(labels.codes[kept], kind="stable"),
            labels.edges(),
            where=job.where,
            sample_weight=weights if everything or weights is None else weights[kept],
            concurrency=job.plan.concurrency,
            progress=job.progress,
        )
        for a, b in ranges(job.n, REDUCED_POINTS):
            of_kept = slice(*np.searchsorted(kept, [a, b]))
            some = np.zeros((b - a, labels.n_clusters))
            some[kept[of_kept] - a] = sums[:, of_kept].T
            job.table.append(silhouettes_of(some, labels.codes[a:b], clusters.totals))


@dataclass(frozen=True)
class ByCentroids:
    """Squared Euclidean and cosine distances from the clusters' moments, in O(nKd)."""

    directions: bool

    def needs(self, n: int, clusters: Clusters) -> Needs:
        return Needs(
            outputs=0,
            row_results=RESULTS,
            result_bytes=_label_bytes(n, clusters),
            table_columns=RESULTS,
            clusters=clusters.labels.n_clusters,
            passes=2,
        )

    def run(self, job: Job, clusters: Clusters) -> None:
        weights, n_clusters = clusters.sample_weight, clusters.labels.n_clusters
        codes = job.shared(clusters.labels.codes, "labels")
        shared = None if weights is None else job.shared(weights, "weights")
        of = moments(job, codes, n_clusters, shared, directions=self.directions)
        task = CentroidSums(job.source, codes, of)
        job.map(task, lambda _, rows: job.table.append(rows), "silhouettes", grid_ranges(job))


def _label_bytes(n: int, clusters: Clusters) -> int:
    # Codes, and twice as 32-bit integers while they are read; weights.
    return 10 * n + (0 if clusters.sample_weight is None else 8 * n)
