"""Clusters by their means: moments of each, and silhouettes that n · K distances are enough for.

Every pass maps row ranges on a fixed grid, and sums of its blocks are combined in order, so that
results depend neither on the memory budget nor on the scheduler.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from silchunk import scan
from silchunk.cluster_sums import silhouettes_of
from silchunk.errors import InputError
from silchunk.kernels import centroids as kernel
from silchunk.kernels import silhouette
from silchunk.plan import PREFERRED_PANEL_ROWS, PanelRange, grid_rows, ranges
from silchunk.prepare import Job
from silchunk.rows import Block, RowSource
from silchunk.tiles import Codes

Vector = np.ndarray[Any, np.dtype[Any]]

CENTROID_METRICS = ("euclidean", "sqeuclidean", "cosine")


@dataclass(frozen=True)
class Moments:
    """Of the points of each cluster, or of their directions.

    Attributes
    ----------
    weights : (K,) float64
        Numbers of points, or sums of their weights.
    means : (K, d) float64
    spreads : (K,) float64
        Mean squared distance of a cluster's points to its mean.
    directions : bool
        Whether points were divided by their norms first.
    """

    weights: Vector
    means: Block
    spreads: Vector
    directions: bool = False


def moments(
    job: Job,
    codes: Codes,
    n_clusters: int,
    sample_weight: Codes | None = None,
    *,
    directions: bool = False,
) -> Moments:
    """One pass over the points, those of negative code left out.

    Parameters
    ----------
    job : Job
        Of points. Where it is distributed, ``codes`` and ``sample_weight`` are in files.
    codes : (n,) in 0 … K-1, each of which occurs
    n_clusters : int
        K.
    sample_weight : (n,) float64, optional
        How many points each one stands for; of each cluster some are positive.
    directions : bool
        Divide points by their norms, none of which is 0.

    Raises
    ------
    InputError
        Squared distances are too large for float64.
    """
    total = _Combined(n_clusters, job.source.shape[1])

    def combine(_: int, blocks: list[_BlockMoments]) -> None:
        for block in blocks:
            total.add(block)

    task = _SumBlocks(_Points(job.source, codes, sample_weight, directions))
    job.map(task, combine, "cluster means", grid_ranges(job))
    found = Moments(total.weights, total.means(), total.squares / total.weights, directions)
    _refuse_overflow(found)
    return found


def mean_distances(
    job: Job, codes: Codes, of: Moments, sample_weight: Codes | None = None
) -> Vector:
    """One more pass: (K,) mean distance, not squared, of a cluster's points to its mean."""
    totals = np.zeros(len(of.weights))

    def combine(_: int, blocks: list[tuple[Vector, Vector]]) -> None:
        for clusters, sums in blocks:
            totals[clusters] += sums

    task = _SumDistances(_Points(job.source, codes, sample_weight, of.directions), of.means)
    job.map(task, combine, "distances to means", grid_ranges(job))
    return totals / of.weights


def _refuse_overflow(found: Moments) -> None:
    """No sum of squared distances is above 4 W (the largest within + that to the first mean)."""
    with np.errstate(over="ignore", invalid="ignore"):
        apart = ((found.means - found.means[0]) ** 2).sum(axis=1).max()
        within = (found.weights * found.spreads).max()
        largest = 4 * found.weights.sum() * (within + 4 * apart)
    if not np.isfinite(largest):
        raise InputError(
            "sums of squared distances between the points of X are too large for float64. Divide "
            "X by a large number, which changes no index."
        )


def grid_ranges(job: Job) -> list[PanelRange]:
    """Row ranges of a pass over the points, as long as the plan lets them be."""
    return scan.grid_ranges(job.source, job.plan.read_rows)


@dataclass(frozen=True)
class CentroidSums:
    """Panel task: exact silhouettes, by sums of squared Euclidean distances to clusters or, from
    moments of directions, of cosine distances.

    Results are those of `silchunk.kernels.silhouette.silhouettes`.
    """

    points: RowSource
    codes: Codes
    moments: Moments

    def __call__(self, start: int, stop: int) -> Block:
        of = self.moments
        factors = of.weights / 2 if of.directions else of.weights
        out = np.empty((stop - start, 4))
        for part, block, codes in _row_blocks(self.points, self.codes, start, stop, of.directions):
            sums = np.empty((len(block), len(of.weights)))
            kernel.sums_to_clusters(block, of.means, of.spreads, factors, sums)
            out[part] = silhouettes_of(sums, codes, of.weights)
        return out


@dataclass(frozen=True)
class CentroidDistances:
    """Panel task: simplified silhouettes, in which distances to centroids stand for mean
    distances; laid out as those of `CentroidSums`.

    ``centroids`` (K, d) are means or, for "cosine", directions; ``weights`` is (K,).
    """

    points: RowSource
    codes: Codes
    centroids: Block
    weights: Vector
    metric: str  # one of CENTROID_METRICS

    def __call__(self, start: int, stop: int) -> Block:
        cosine = self.metric == "cosine"
        nothing = np.zeros(len(self.weights))
        factors = np.full(len(self.weights), 0.5 if cosine else 1.0)
        out = np.empty((stop - start, 4))
        for part, block, codes in _row_blocks(self.points, self.codes, start, stop, cosine):
            distances = np.empty((len(block), len(self.weights)))
            kernel.sums_to_clusters(block, self.centroids, nothing, factors, distances)
            if self.metric == "euclidean":
                np.sqrt(distances, out=distances)
            own = np.maximum(codes, 0)
            within = np.where(self.weights[own] > 1, distances[np.arange(len(own)), own], np.nan)
            out[part] = silhouette.silhouettes(distances, within, codes)
        return out


def _row_blocks(
    points: RowSource, codes: Codes, start: int, stop: int, directions: bool
) -> Iterator[tuple[slice, Block, Vector]]:
    """A range of rows, a few at a time: which of the range, points or directions, int64 codes.

    So few that a number for each of them and each cluster is what the plan has room for.
    """
    whole = points.rows(start, stop)
    own = codes[start:stop].astype(np.int64)
    for first, last in ranges(stop - start, PREFERRED_PANEL_ROWS):
        block = whole[first:last]
        yield (
            slice(first, last),
            _directions(block) if directions else block,
            own[first:last],
        )


def _directions(block: Block) -> Block:
    out = np.empty(block.shape)
    kernel.to_directions(block, out)
    return out


class _GridBlock(NamedTuple):
    """Points of one block of the grid that count, their clusters numbered anew."""

    points: Block  # (r, d)
    clusters: Vector  # (r,) int64 in 0 … p-1
    weights: Vector  # (r,) float64
    codes: Vector  # (p,) int64, of those clusters
    firsts: Vector  # (p,) int64, the first point of each


@dataclass(frozen=True)
class _Points:
    """Points, or directions, with their clusters and weights."""

    source: RowSource
    codes: Codes
    sample_weight: Codes | None
    directions: bool

    def grid_blocks(self, start: int, stop: int) -> Iterator[_GridBlock]:
        """A range of rows that begins on the grid, block by block."""
        whole = self.source.rows(start, stop)
        own = self.codes[start:stop].astype(np.int64)
        weights = np.ones(stop - start)
        if self.sample_weight is not None:
            weights = self.sample_weight[start:stop].astype(np.float64)
        counts = (own >= 0) & (weights > 0)
        for first, last in ranges(stop - start, grid_rows(whole.shape[1])):
            kept = counts[first:last]
            block = whole[first:last]
            if not kept.all():
                block = block[kept]
            codes, firsts, clusters = _numbered(own[first:last][kept])
            if self.directions:
                block = _directions(block)
            yield _GridBlock(block, clusters, weights[first:last][kept], codes, firsts)


def _numbered(codes: Vector) -> tuple[Vector, Vector, Vector]:
    """Distinct codes, ascending, the first place of each, and which of them stands where.

    As `numpy.unique` has it, without sorting.
    """
    distinct = np.flatnonzero(np.bincount(codes))
    number = np.empty(distinct[-1] + 1 if len(distinct) else 0, np.int64)
    number[distinct] = np.arange(len(distinct))
    numbered = number[codes]
    firsts = np.empty(len(distinct), np.int64)
    firsts[numbered[::-1]] = np.arange(len(codes))[::-1]  # of equals, the last one written stays
    return distinct, firsts, numbered


class _BlockMoments(NamedTuple):
    """Moments of the clusters in one block of the grid."""

    codes: Vector  # (p,) int64
    weights: Vector  # (p,)
    means: Block  # (p, d)
    squares: Vector  # (p,), weighted sums of squared distances to the means


@dataclass(frozen=True)
class _SumBlocks:
    """Panel task: moments of each grid block of a row range."""

    points: _Points

    def __call__(self, start: int, stop: int) -> list[_BlockMoments]:
        return [_moments_of(block) for block in self.points.grid_blocks(start, stop)]


def _moments_of(block: _GridBlock) -> _BlockMoments:
    shape = len(block.codes), block.points.shape[1]
    weights, means, squares = np.empty(shape[0]), np.empty(shape), np.empty(shape[0])
    kernel.block_moments(
        block.points, block.clusters, block.firsts, block.weights, weights, means, squares
    )
    return _BlockMoments(block.codes, weights, means, squares)


@dataclass(frozen=True)
class _SumDistances:
    """Panel task: by grid block of a row range, its clusters and their distances to the means."""

    points: _Points
    means: Block

    def __call__(self, start: int, stop: int) -> list[tuple[Vector, Vector]]:
        found = []
        for block in self.points.grid_blocks(start, stop):
            sums, means = np.zeros(len(block.codes)), self.means[block.codes]
            kernel.add_distances(block.points, block.clusters, block.weights, means, sums)
            found.append((block.codes, sums))
        return found


class _Combined:
    """Moments of blocks made into one (Chan, Golub & LeVeque 1983,
    doi:10.1080/00031305.1983.10483115), relative to each cluster's mean in its first block."""

    def __init__(self, n_clusters: int, n_features: int) -> None:
        self.weights = np.zeros(n_clusters)
        self.squares = np.zeros(n_clusters)
        self._origins = np.zeros((n_clusters, n_features))
        self._sums = np.zeros((n_clusters, n_features))

    def add(self, block: _BlockMoments) -> None:
        codes = block.codes
        before = self.weights[codes]
        new = before == 0
        self._origins[codes[new]] = block.means[new]
        offsets = block.means - self._origins[codes]
        means = self._sums[codes] / np.where(new, 1.0, before)[:, None]
        together = before + block.weights
        with np.errstate(over="ignore", invalid="ignore"):  # `moments` refuses what comes of it
            apart = ((offsets - means) ** 2).sum(axis=1) * (before * block.weights / together)
        self.squares[codes] += block.squares + apart
        self._sums[codes] += block.weights[:, None] * offsets
        self.weights[codes] = together

    def means(self) -> Block:
        means: Block = self._origins + self._sums / self.weights[:, None]
        return means
