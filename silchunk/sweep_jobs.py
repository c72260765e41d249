"""One pass over the distances for all clusterings of a sweep: their silhouettes, and all bounds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from silchunk import checkpoint as checkpoints
from silchunk.bound_jobs import optimiser_bytes
from silchunk.buffers import borrowed
from silchunk.cluster_sums import silhouettes_of
from silchunk.constraints import FixedSizes, SizeRange
from silchunk.kernels import segments
from silchunk.kernels.silhouette import S
from silchunk.labels import Labels
from silchunk.panels import PanelSource
from silchunk.plan import LEAF_ROWS, SCIKIT_LEARN_BYTES, TABLE_ROWS, Plan, ranges
from silchunk.prepare import Arguments, Job, Needs, prepared
from silchunk.reduction import CACHED_BYTES, ReducedRows, Wanted
from silchunk.rounding import outward
from silchunk.row_table import RowTable
from silchunk.rows import Block, RowSource
from silchunk.sized import assignment_bound, rearrangement_bounds
from silchunk.sums import AlignedSum, Node

Vector = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Labelings:
    """Several clusterings of the same points, whose silhouettes are wanted.

    Attributes
    ----------
    codes : (r, n) int8, int16 or int32
        Cluster of each point in each of them.
    orders : (r, n) int32
        The points of each, cluster by cluster.
    sizes : r arrays (K,) of int64
    """

    codes: Vector
    orders: Vector
    sizes: tuple[Vector, ...]

    @classmethod
    def of(cls, labelings: Sequence[Labels], n: int) -> Labelings:
        """Those of labels of n points, none of which is left out."""
        dtype = np.result_type(np.int8, *(labels.codes for labels in labelings))
        codes = np.zeros((len(labelings), n), dtype)
        orders = np.zeros((len(labelings), n), np.int32)
        for j, labels in enumerate(labelings):
            codes[j], orders[j] = labels.codes, labels.order()
        return cls(codes, orders, tuple(labels.sizes for labels in labelings))

    def silhouettes(self, rows: Block, start: int, out: Block) -> None:
        """Silhouettes of the points from ``start`` on, from their rows of distances.

        Parameters
        ----------
        rows : (m, n)
        start : int
        out : (m, r) float64, filled in
        """
        m, n = rows.shape
        step = max(1, CACHED_BYTES // (n * rows.itemsize))
        sorted_rows = np.empty((min(step, m), n), rows.dtype)
        for j, sizes in enumerate(self.sizes):
            order = self.orders[j].astype(np.intp)
            clusters, edges = np.arange(len(sizes)), np.concatenate([[0], np.cumsum(sizes)])
            sums = np.zeros((m, len(sizes)))
            for first, last in ranges(m, step):
                few = sorted_rows[: last - first]
                np.take(rows[first:last], order, axis=1, out=few, mode="clip")
                segments.add_rows(few, clusters, edges, sums[first:last])
            codes = self.codes[j, start : start + m].astype(np.int64)
            out[:, j] = silhouettes_of(sums, codes, sizes.astype(np.float64))[:, S]


@dataclass(frozen=True)
class Ranges:
    """Ranges [1, n - K + 1] of cluster sizes, for several K, put together from few numbers.

    All but a few sizes at both ends are those of the range [m, n - m], which the pass for the curve
    gives beside it; bounds for single sizes make up for the others.

    Attributes
    ----------
    middle : int
        m.
    sizes : tuple of int
        Single sizes that are needed.
    parts : tuple of (bool, tuple of int)
        For each K: whether [m, n - m] is part of its range, and the sizes that are.
    """

    middle: int
    sizes: tuple[int, ...]
    parts: tuple[tuple[bool, tuple[int, ...]], ...]

    @classmethod
    def of(cls, counts: Sequence[int], n: int) -> Ranges:
        """Those of numbers of clusters, each from 2 to n."""
        middle = max((K - 1 for K in counts if n // 2 >= K - 1), default=1)
        parts = []
        for K in counts:
            whole = middle >= K - 1
            sizes = [*range(1, middle), *range(n - middle + 1, n - K + 2)]
            parts.append((whole, tuple(sizes if whole else range(1, n - K + 2))))
        needed = sorted({size for _, sizes in parts for size in sizes})
        return cls(middle, tuple(needed), tuple(parts))


@dataclass(frozen=True)
class SweepRows:
    """Panel task: of each row a silhouette in every labeling, a bound for every number of
    clusters, and one for every cluster size that occurs.

    Attributes
    ----------
    panels : PanelSource
    labelings : Labelings
    wanted : Wanted
        The curve, and bounds for all single sizes.
    parts : tuple of (bool, columns)
        As in `Ranges`, with places in ``wanted.fixed`` for sizes.
    kept : (J,) int64
        Places of the sizes that occur.
    """

    panels: PanelSource
    labelings: Labelings
    wanted: Wanted
    parts: tuple[tuple[bool, Vector], ...]
    kept: Vector

    def __call__(self, start: int, stop: int) -> ReducedRows:
        n, wanted = self.panels.n, self.wanted
        r, n_parts = len(self.labelings.sizes), len(self.parts)
        middle = np.empty((stop - start, 1))
        table = np.empty((stop - start, r + n_parts + len(self.kept)))
        sums = AlignedSum()
        with borrowed((stop - start, n), self.panels.dtype) as panel:
            self.panels.read(start, stop, panel)
            for first, last in ranges(stop - start, LEAF_ROWS):
                leaf = slice(first, last)
                # Before the rows are sorted.
                self.labelings.silhouettes(panel[leaf], start + first, table[leaf, :r])
                total = np.zeros(wanted.curve_length(n))
                single = np.empty((last - first, wanted.n_fixed))
                wanted.reduce(panel[leaf], middle[leaf], single, total)
                for j, (whole, columns) in enumerate(self.parts):
                    bound = single[:, columns].max(axis=1, initial=0.0)
                    table[leaf, r + j] = np.maximum(bound, middle[leaf, 0]) if whole else bound
                table[leaf, r + n_parts :] = single[:, self.kept]
                sums.add(Node(0, total))
        return ReducedRows(np.empty((stop - start, 0)), table, sums.nodes)


class Measured(NamedTuple):
    """What one pass tells of a clustering."""

    micro: float
    macro: float
    upper_bound_min_size: float
    assignment_bound: float


class Pass(NamedTuple):
    """What one pass tells of all."""

    clusterings: list[Measured]
    n_clusters: dict[int, float]  # upper bounds over clusterings into so many
    curve: Vector  # (n // 2,), upper bounds for every smallest size
    metric: str
    plan: Plan


def measure(
    distances: Any,
    arguments: Arguments,
    counts: Sequence[int],
    clusterings: Sequence[Labels],
    scores: Sequence[tuple[float, float] | None],
    checkpoint: Path | None,
) -> Pass:
    """Scores and bounds of clusterings, and bounds for numbers of clusters.

    Parameters
    ----------
    distances : points, or a matrix or store of distances
    counts : numbers of clusters, ascending, each from 2 to n
    clusterings : Labels of all points, each of 2 to n - 1 clusters
    scores : (micro, macro) of each where they are known already
    checkpoint : folder to keep such passes in, each in a folder of its own

    Notes
    -----
    One pass over the n² distances; O(n) per clustering in memory, and a table of a number for each
    point, clustering, K and size that occurs, in a file where it is large.
    """
    unknown = [labels for labels, known in zip(clusterings, scores, strict=True) if known is None]
    occurring = sorted({int(size) for labels in clusterings for size in labels.sizes})
    r = len(unknown)
    found: list[tuple[Ranges, Wanted]] = []

    def needs_of(n: int) -> Needs:
        parts = Ranges.of(counts, n)
        singles = np.array(sorted({*occurring, *parts.sizes}), np.int64)
        within = SizeRange((parts.middle,))
        wanted = Wanted(within, True, FixedSizes(singles, np.ones(len(singles), np.int64)))
        found.append((parts, wanted))
        columns = r + len(counts) + len(occurring)
        most = max((len(labels.sizes) for labels in clusterings), default=0)
        return Needs(
            outputs=2,  # a row of the curve; what is picked of a row of distances, and its order
            row_results=1 + columns + len(singles),
            # Labels in all their forms; the curve's tree of sums.
            result_bytes=n * (10 * len(clusterings) + 16 * 8),
            table_columns=columns,
            runtime_bytes=optimiser_bytes(most) + SCIKIT_LEARN_BYTES,
        )

    task_facts = _facts(counts, unknown, occurring)
    folder = None if checkpoint is None else _folder(checkpoint, task_facts)
    panel_rows = checkpoints.panel_rows(folder)
    with prepared(distances, arguments, needs_of=needs_of, panel_rows=panel_rows) as job:
        parts, wanted = found[-1]
        assert wanted.fixed is not None
        singles = wanted.fixed.sizes
        places = tuple((whole, np.searchsorted(singles, sizes)) for whole, sizes in parts.parts)
        kept = np.searchsorted(singles, np.array(occurring, np.int64))
        task = SweepRows(job.panels, Labelings.of(unknown, job.n), wanted, places, kept)
        sums = AlignedSum()

        def combine(_: int, reduced: ReducedRows) -> None:
            rows = reduced.table
            rows[:, r:] = outward(rows[:, r:], job.relative_error)
            job.table.append(rows)
            for node in reduced.totals:
                sums.add(node)

        with (
            nullcontext(None)
            if folder is None
            else checkpoints.opened(folder, job, arguments, task_facts)
        ) as records:
            checkpoints.map_panels(
                job,
                task,
                combine,
                "silhouettes and bounds",
                records,
                ReducedRows.from_arrays,
                job.plan.panels(),
            )
        curve = outward(sums.total() / job.n, job.relative_error)
        table = job.table.source
        bounds = _means(table, slice(r, r + len(counts)))
        first, following = r + len(counts), iter(range(r))
        measured = []
        for labels, known in zip(clusterings, scores, strict=True):
            micro, macro = known or _scores(table, next(following), labels)
            fixed = _sizes_of(labels)
            columns = first + np.searchsorted(occurring, fixed.sizes)
            bound = _assignment(job, table, columns, fixed)
            measured.append(Measured(micro, macro, float(curve[labels.sizes.min() - 1]), bound))
        return Pass(
            measured,
            dict(zip(counts, bounds.tolist(), strict=True)),
            curve,
            job.metric_name,
            job.plan,
        )


def _facts(
    counts: Sequence[int], labelings: Sequence[Labels], occurring: Sequence[int]
) -> dict[str, Any]:
    digest = hashlib.sha256()
    for labels in labelings:
        digest.update(labels.codes.astype(np.int32).tobytes())
    return {
        "n_clusters": list(counts),
        "cluster_sizes": list(occurring),
        "labels": digest.hexdigest(),
    }


def _folder(parent: Path, task: Mapping[str, Any]) -> Path:
    """A folder for each set of clusterings: a sweep over more K does not go on with fewer."""
    digest = hashlib.sha256(json.dumps(dict(task), sort_keys=True).encode()).hexdigest()
    return parent / f"distances-{digest[:16]}"


def _means(table: RowSource, columns: slice) -> Vector:
    """Means of some columns, added in the order of the curve."""
    n = table.shape[0]
    sums = AlignedSum()
    for start, stop in ranges(n, TABLE_ROWS):
        block = table.rows(start, stop)[:, columns]
        for first, last in ranges(stop - start, LEAF_ROWS):
            sums.add(Node(0, np.cumsum(block[first:last], axis=0)[-1]))
    means: Vector = sums.total() / n
    return means


def _scores(table: RowSource, column: int, labels: Labels) -> tuple[float, float]:
    """Mean silhouette over points, and of the clusters' means."""
    sums = np.zeros(labels.n_clusters)
    for start, stop in ranges(table.shape[0], TABLE_ROWS):
        values = table.rows(start, stop)[:, column]
        sums += np.bincount(labels.codes[start:stop], values, labels.n_clusters)
    return float(sums.sum() / labels.n_kept), float((sums / labels.sizes).mean())


def _sizes_of(labels: Labels) -> FixedSizes:
    distinct, counts = np.unique(labels.sizes, return_counts=True)
    return FixedSizes(distinct, counts.astype(np.int64))


def _assignment(job: Job, table: RowSource, columns: Vector, sizes: FixedSizes) -> float:
    """As `silchunk.silhouette_upper_bound` has it for clusters of these sizes."""
    # A table of its own: the sweeps over it are many, and it has few of the columns.
    path = None if job.table.path is None else job.scratch / "sizes.npy"
    own = RowTable(len(columns), path, job.n)
    for start, stop in ranges(job.n, TABLE_ROWS):
        own.append(table.rows(start, stop)[:, columns])
    weaker, _ = rearrangement_bounds(own.source, sizes, certify=False)
    found, _ = assignment_bound(own.source, sizes, sizes.asw_weights, certify=False)
    return min(weaker, found)
