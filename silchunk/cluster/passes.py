"""One pass over the points: each to its nearest centre, weighed and added up.

What a pass returns does not depend on how the points are cut into ranges: labels are exact, and
sums follow one binary tree of grid blocks.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from silchunk.cluster.labels import LabelVector
from silchunk.cluster.points import PointBlock, Points, Vector
from silchunk.errors import InputError
from silchunk.kernels import lloyd as kernel
from silchunk.kernels.blocks import ROWS
from silchunk.plan import CENTRE_FACTS
from silchunk.prepare import Job
from silchunk.rows import Block
from silchunk.sums import AlignedSum, Node

# The largest exponent of a weight: sums of them stay finite.
LARGEST_TEMPERATURE = 500.0


@dataclass(frozen=True)
class Weighing:
    """How points of a pass are weighed, by how clearly they belong to a cluster: s = 1 - a/b.

    Attributes
    ----------
    temperature : float
        τ of the weights exp(τ s), 0 for weights of 1.
    squared : bool
        a and b are squared distances to the nearest and second nearest centre.
    unclear : bool
        Weights are (1 - s) / 2 instead.
    """

    temperature: float = 0.0
    squared: bool = False
    unclear: bool = False


class Ranking:
    """Centres as they are ranked, for points of one dtype.

    Attributes
    ----------
    centres : (K, d) float64
    shift : (d,) of the dtype of the points
        What points are measured from, so that digits are not lost far from zero.
    """

    def __init__(self, centres: Block, dtype: np.dtype[Any], weighing: Weighing) -> None:
        n_clusters, d = centres.shape
        self.centres = centres
        self._weighing = weighing
        self.shift: Vector = centres.mean(axis=0).astype(dtype)
        shifted = centres - self.shift
        with np.errstate(over="ignore"):  # nothing is clear then, and all is formed in float64
            self._shifted = shifted.astype(dtype)
            squares = (shifted**2).sum(axis=1)
            self._factors = np.zeros((-(-n_clusters // ROWS) * ROWS, d + 1), dtype)
            self._factors[:n_clusters, :d] = -self._shifted
            self._factors[:n_clusters, d] = squares / 2
            self._errors = kernel.errors_of(d, dtype, float(np.sqrt(squares.max())))

    def reduce(
        self,
        block: PointBlock,
        into: Sums,
        labels: Vector,
        before: Vector | None = None,
    ) -> int:
        """Reduce a block of points into ``into``; returns how many of its ``labels`` (r,) int32,
        which are filled in, are not those of ``before``: all if there were none."""
        changed: int = kernel.reduce_block(
            block.points,
            block.weights,
            block.first,
            self.shift,
            self._shifted,
            self._factors,
            self.centres,
            self._errors,
            self._weighing.temperature,
            self._weighing.squared,
            self._weighing.unclear,
            labels if before is None else before,
            labels,
            into.totals,
            into.farthest,
            into.farthest_rows,
        )
        return len(labels) if before is None else changed


class Sums:
    """What points are added to."""

    def __init__(self, shape: tuple[int, int], n_farthest: int) -> None:
        self.totals = np.zeros((shape[0], shape[1] + CENTRE_FACTS))
        self.farthest = np.full(n_farthest, -1.0)
        self.farthest_rows = np.full(n_farthest, -1)


class PassPart(NamedTuple):
    """What a task returns of its rows."""

    totals: list[Node]
    farthest: Vector  # (f,) squared distances
    farthest_rows: Vector
    changed: int
    digests: list[int]  # of the labels, block by block


@dataclass(frozen=True)
class Pass:
    """Panel task: assign, weigh and add up a range of rows, and keep their labels."""

    points: Points
    ranking: Ranking
    before: LabelVector | None
    labels: LabelVector | None

    def __call__(self, start: int, stop: int) -> PassPart:
        sums = AlignedSum(start // self.points.grid)
        # More farthest points than clusters that can be empty are of no use.
        shape = self.ranking.centres.shape
        into = Sums(shape, min(shape[0], stop - start))
        if self.labels is None:
            own = np.empty(stop - start, np.int32)
        else:
            own = self.labels.room(start, stop)
        before = None if self.before is None else self.before.read(start, stop)
        digests, changed = [], 0
        for block in self.points.blocks(start, stop):
            here = slice(block.first - start, block.first - start + len(block.points))
            into.totals = np.zeros_like(into.totals)
            changed += self.ranking.reduce(
                block, into, own[here], None if before is None else before[here]
            )
            sums.add(Node(0, into.totals))
            digests.append(zlib.crc32(own[here].data))
        if self.labels is not None:
            self.labels.keep(start, own)
        kept = into.farthest_rows >= 0
        return PassPart(sums.nodes, into.farthest[kept], into.farthest_rows[kept], changed, digests)


@dataclass(frozen=True)
class PassResult:
    """What one pass over all points gave, for K centres.

    Attributes
    ----------
    sums : (K, d) float64
        Weighted sums of the differences of points to ``shift``.
    shift : (d,)
    weights, counts, silhouettes, squared_silhouettes, inertias, members : (K,) float64
        Sums of weights, of points, of silhouettes, of their squares and of squared distances, and
        the number of points whose weight is not 0.
    changed : int
        Labels that are not those of the pass before.
    digest : int
        Of all labels.
    farthest_rows : (f,) int64
        The points farthest from their centre, first the farthest.
    min_cluster_size : int
        Points without which a cluster counts as empty.
    """

    sums: Block
    shift: Vector
    weights: Vector
    counts: Vector
    silhouettes: Vector
    squared_silhouettes: Vector
    inertias: Vector
    members: Vector
    changed: int
    digest: int
    farthest_rows: Vector
    min_cluster_size: int = 1

    @property
    def macro(self) -> float:
        """Mean over clusters that have points of the mean of s = 1 - a/b."""
        filled = self.counts > 0
        return float((self.silhouettes[filled] / self.counts[filled]).mean())

    @property
    def micro(self) -> float:
        """Mean of s over points."""
        return float(self.silhouettes.sum() / self.counts.sum())

    def standard_error(self, average: str) -> float:
        """Standard error of the "macro" or "micro" mean of s, were the points a random sample."""
        filled = self.counts > 0
        parts = [self.counts[filled], self.silhouettes[filled], self.squared_silhouettes[filled]]
        if average == "micro":
            parts = [part.sum(keepdims=True) for part in parts]
        counts, sums, squares = parts
        variances = np.maximum(squares / counts - (sums / counts) ** 2, 0.0)
        return float(np.sqrt((variances / counts).sum()) / len(counts))

    @property
    def inertia(self) -> float:
        """Sum of squared distances."""
        return float(self.inertias.sum())

    @property
    def empty(self) -> Vector:
        """Clusters without points, or of fewer than ``min_cluster_size``."""
        return np.flatnonzero(self.members < self.min_cluster_size)

    @property
    def empty_clusters(self) -> int:
        """How many there are."""
        return len(self.empty)


def run_pass(
    job: Job,
    points: Points,
    centres: Block,
    weighing: Weighing,
    label: str,
    *,
    before: LabelVector | None = None,
    labels: LabelVector | None = None,
    min_cluster_size: int = 1,
) -> PassResult:
    """Assign every point to its nearest centre, and add up.

    Parameters
    ----------
    job, points
        Of (n, d).
    centres : (K, d) float64
    weighing : Weighing
    label : str
        For progress.
    before, labels : LabelVector, optional
        Labels to compare with, and where to put the new ones.
    min_cluster_size : int
        As in `PassResult`.
    """
    sums = AlignedSum()
    farthest: list[tuple[Vector, Vector]] = []
    changed = digest = 0

    def combine(_: int, part: PassPart) -> None:
        nonlocal changed, digest
        for node in part.totals:
            sums.add(node)
        changed += part.changed
        for of_block in part.digests:
            digest = zlib.crc32(of_block.to_bytes(4, "little"), digest)
        farthest.append((part.farthest, part.farthest_rows))
        farthest[:] = [_farthest(farthest, len(centres))]

    ranking = Ranking(centres, points.dtype, weighing)
    task = Pass(points, ranking, before, labels)
    job.map(task, combine, label, points.ranges_of(job))
    total = sums.total()
    if not np.isfinite(total).all():
        raise InputError(
            "squared distances of the points of X to the centres, or their weighted sums, are too "
            "large for float64. Divide X, or sample_weight, by a large number."
        )
    d = centres.shape[1]
    weights, counts, silhouettes, squared_silhouettes, inertias, members = total[:, d:].T
    return PassResult(
        total[:, :d],
        ranking.shift,
        weights,
        counts,
        silhouettes,
        squared_silhouettes,
        inertias,
        members,
        changed,
        digest,
        farthest[0][1],
        min_cluster_size,
    )


def _farthest(found: list[tuple[Vector, Vector]], count: int) -> tuple[Vector, Vector]:
    distances = np.concatenate([some for some, _ in found])
    rows = np.concatenate([some for _, some in found])
    first = np.lexsort((rows, -distances))[:count]
    return distances[first], rows[first]
