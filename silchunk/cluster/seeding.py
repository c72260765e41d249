"""Initial centres of centroid algorithms: drawn at random, drawn far apart, or given.

Whatever is drawn depends on the points, their weights and the state of the generator alone: not on
how points are stored, nor on threads, scheduler or memory budget.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from silchunk.blas import one_blas_thread
from silchunk.cluster.passes import Ranking, Sums, Weighing
from silchunk.cluster.points import PointBlock, Points, Vector
from silchunk.errors import InputError
from silchunk.kernels.centroids import to_directions
from silchunk.kernels.seeding import assigned_squares
from silchunk.plan import ranges
from silchunk.prepare import Job
from silchunk.rows import Block

log = logging.getLogger("silchunk")

INITS = ("k-means++", "k-means||", "random")

# k-means++ picks from so many points at most, and from no more than fit into so many bytes.
SAMPLE_ROWS = 1 << 16
SAMPLE_BYTES = 64 << 20
# But from so many for each centre.
LEAST_SAMPLE = 10
# Sampled rows that lie within so many bytes of each other are read together.
SAMPLE_READ_BYTES = 1 << 20
# Weights are read this many at a time.
WEIGHTS_AT_ONCE = 1 << 18
# Of k-means||: passes that draw, and how many candidates each of them draws for every centre.
ROUNDS = 4
OVERSAMPLING = 2


def n_candidates(init: Any, n_clusters: int) -> int:
    """The most centres that points are compared with while centres are drawn."""
    drawn = 1 + ROUNDS * OVERSAMPLING * n_clusters
    return drawn if isinstance(init, str) and init == "k-means||" else n_clusters


def held_bytes(init: Any, n: int, n_features: int, n_clusters: int) -> int:
    """What is held of the points while centres are drawn."""
    spread = isinstance(init, str) and init == "k-means++"
    return 3 * 8 * n_features * min(n, _sample_rows(n_features, n_clusters)) if spread else 0


def _sample_rows(n_features: int, n_clusters: int) -> int:
    fitting = min(SAMPLE_ROWS, SAMPLE_BYTES // (8 * n_features))
    return max(fitting, LEAST_SAMPLE * n_clusters)


def initial_centres(
    job: Job, points: Points, n_clusters: int, init: Any, random: np.random.Generator
) -> Block:
    """Where a centroid algorithm begins: (K, d) float64.

    Fewer different points than centres give some of them more than once.

    Parameters
    ----------
    job : Job
        Of the points.
    points : Points
        (n, d), finite. Those of weight 0 are never drawn.
    n_clusters : int
        K, 1 … n.
    init : {"k-means++", "k-means||", "random"} or array (K, d)
        "k-means++": greedy k-means++ of scikit-learn (Arthur & Vassilvitskii 2007), on all points
        or, of more than SAMPLE_ROWS or SAMPLE_BYTES, on so many of them, all as likely to be among
        them. Reads them once; holds them and two copies.

        "k-means||": scalable k-means++ (Bahmani et al. 2012, arXiv:1203.6402). Draws candidates
        from all points, in ROUNDS passes over them at most, weighs each with the points it is
        nearest to in one pass more, and picks from them by k-means++. O(n K d) time; holds at most
        1 + ROUNDS · OVERSAMPLING · K candidates.

        "random": points without repetition, each as likely as its weight.

        An array is taken as it is, of ``points.directions`` each row by its direction.
    random : numpy.random.Generator

    Raises
    ------
    InputError
        ``init`` is none of these, not finite, not of shape (K, d), or has a row without direction;
        or all weights are 0.
    """
    if not isinstance(init, str):
        return _given(init, points, n_clusters)
    if init == "random":
        return _repeated(points.picked(_drawn_rows(points, n_clusters, random)), n_clusters)
    if init == "k-means++":
        return _spread(points, n_clusters, random)
    if init == "k-means||":
        return _spread_in_rounds(job, points, n_clusters, random)
    raise InputError(
        f"init must be one of {', '.join(INITS)}, or an array of centres; got {init!r}."
    )


def _given(init: Any, points: Points, n_clusters: int) -> Block:
    shape = (n_clusters, points.shape[1])
    try:
        centres = np.array(init, np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise InputError(
            f"init must be one of {', '.join(INITS)}, or an array of shape {shape}; it cannot be "
            f"read as numbers: {error}"
        ) from error
    if centres.shape != shape:
        raise InputError(
            f"init must have shape {shape}, a row for each of the centres and a column for each "
            f"feature; it has shape {centres.shape}."
        )
    if not np.isfinite(centres).all():
        row, column = np.argwhere(~np.isfinite(centres))[0]
        raise InputError(
            f"init has {centres[row, column]} at row {row}, column {column} (counted from 0). "
            "Centres need finite values."
        )
    if not points.directions:
        return centres
    zero = ~centres.any(axis=1)
    if zero.any():
        raise InputError(
            f"init is zero throughout row {zero.argmax()} (counted from 0): it has no direction. "
            "Give another centre."
        )
    directions = np.empty(shape)
    to_directions(centres, directions)
    return directions


def _repeated(centres: Block, n_clusters: int) -> Block:
    """(K, d): as many of the centres as are needed, or all of them over and over."""
    repeated: Block = centres[np.arange(n_clusters) % len(centres)]
    return repeated


# Exponential clocks: of points with independent waiting times E / mass, E ~ Exp(1), those that ring
# first are a sample without replacement, each draw in proportion to mass (Efraimidis & Spirakis
# 2006, doi:10.1016/j.ipl.2005.11.003). Of parts of the data only what rings first need be kept.


def _ringing(random: np.random.Generator, *factors: Vector) -> Vector:
    """(m,) logarithms, which cannot overflow, of when the clocks of points ring whose masses are
    the products of ``factors``, each (m,); inf where the mass is 0."""
    waits = random.standard_exponential(len(factors[0]))
    ringing = np.all([factor > 0 for factor in factors], axis=0)
    keys = np.full(len(waits), np.inf)
    with np.errstate(divide="ignore"):  # a wait may be 0
        keys[ringing] = np.log(waits[ringing])
    for factor in factors:
        keys[ringing] -= np.log(factor[ringing])
    return keys


def _drawn_rows(
    points: Points, count: int, random: np.random.Generator, *, equally: bool = False
) -> Vector:
    """(m,) int64: ``count`` rows of positive weight, or all of these, in the order they are drawn.

    The chance of a row is its weight, or ``equally`` that of the others.
    """
    n = points.shape[0]
    if points.weights is None:
        return random.choice(n, min(count, n), replace=False).astype(np.int64)
    keys, rows = np.empty(0), np.empty(0, np.int64)
    for start, stop in ranges(n, WEIGHTS_AT_ONCE):
        weights = points.weights[start:stop]
        keys = np.concatenate([keys, _ringing(random, weights > 0 if equally else weights)])
        rows = np.concatenate([rows, np.arange(start, stop)])
        first = np.argsort(keys, kind="stable")[:count]  # of equals the lowest row
        first = first[keys[first] < np.inf]
        keys, rows = keys[first], rows[first]
    if not len(rows):
        raise InputError("the weights of all points are 0: give some a positive weight.")
    return rows


# k-means++.


def _spread(points: Points, n_clusters: int, random: np.random.Generator) -> Block:
    """k-means++ on all points of positive weight, or a sample of them."""
    rows = np.sort(
        _drawn_rows(points, _sample_rows(points.shape[1], n_clusters), random, equally=True)
    )
    sample, weights = _read(points, rows)
    log.info("k-means++ picks %d of %d points, of %d", n_clusters, len(rows), points.shape[0])
    return sample[_plus_plus(sample, weights, n_clusters, random)]


def _read(points: Points, index: Vector) -> tuple[Block, Vector]:
    """(m, d) and (m,) float64: points of some rows, ascending, and their weights.

    No row is read twice, and of each stretch of the data no more than lies between those wanted.
    """
    d = points.shape[1]
    chunk_rows = points.source.chunk_rows
    step = chunk_rows * max(1, SAMPLE_READ_BYTES // (8 * d * chunk_rows))
    found, weights = np.empty((len(index), d)), np.ones(len(index))
    edges = np.flatnonzero(np.diff(index // step)) + 1
    for start, stop in zip([0, *edges], [*edges, len(index)], strict=True):
        first, last = int(index[start]), int(index[stop - 1]) + 1
        wanted = index[start:stop] - first
        found[start:stop] = points.rows(first, last)[wanted]
        if points.weights is not None:
            weights[start:stop] = points.weights[first:last][wanted]
    return found, weights


def _plus_plus(
    rows: Block, weights: Vector, n_clusters: int, random: np.random.Generator
) -> Vector:
    """(K,) which of the rows (m, d) greedy k-means++ picks; all of them where they are too few."""
    if len(rows) <= n_clusters:
        return np.arange(n_clusters) % len(rows)
    from sklearn.cluster import kmeans_plusplus

    # scikit-learn's distances cancel far from zero, and its squares overflow.
    centred = rows - rows.mean(axis=0)
    _, exponent = np.frexp(np.abs(centred).max())
    centred = np.ldexp(centred, -int(exponent))
    seed = int(random.integers(1 << 32))
    with one_blas_thread():  # more would add in another order
        _, picked = kmeans_plusplus(
            centred, n_clusters, sample_weight=weights / weights.max(), random_state=seed
        )
    which: Vector = picked
    return which


# k-means||.


def _spread_in_rounds(
    job: Job, points: Points, n_clusters: int, random: np.random.Generator
) -> Block:
    candidates = _candidates(job, points, n_clusters, random)
    log.info("k-means|| picks %d of %d candidates", n_clusters, len(candidates))
    if len(candidates) <= n_clusters:
        return _repeated(candidates, n_clusters)
    weights = _represented(job, points, candidates)
    return candidates[_plus_plus(candidates, weights, n_clusters, random)]


def _candidates(job: Job, points: Points, n_clusters: int, random: np.random.Generator) -> Block:
    """(m, d) float64, no two alike: K at least, if so many points of positive weight differ, and
    1 + ROUNDS · OVERSAMPLING · K at most."""
    candidates = points.picked(_drawn_rows(points, 1, random))
    seed = int(random.integers(1 << 63))
    for round_ in range(ROUNDS):
        drawn = _drawn_far(
            job, points, _FarPoints(points, candidates, OVERSAMPLING * n_clusters, seed, round_)
        )
        if not len(drawn.rows):  # every point is a candidate
            break
        candidates = np.concatenate([candidates, drawn.points])
    return candidates


class _Drawn(NamedTuple):
    """Different points, in the order of their clocks, of equals by row."""

    keys: Vector  # (m,) float64
    rows: Vector  # (m,) int64
    points: Block  # (m, d) float64


def _none_drawn(width: int) -> _Drawn:
    return _Drawn(np.empty(0), np.empty(0, np.int64), np.empty((0, width)))


def _with_more(drawn: _Drawn, more: _Drawn, count: int) -> _Drawn:
    """Of two draws together the first ``count``; points of ``more`` may be alike and in any order.

    Of points that are alike the first one stands for all. As the least of their waiting times is
    exponential in the sum of their masses, they count as one point of all their weight.
    """
    if len(drawn.keys) == count:  # spares the rest the comparison
        early = more.keys <= drawn.keys[-1]
        more = _Drawn(*(part[early] for part in more))
    if not len(more.keys):
        return drawn
    both = _Drawn(*(np.concatenate(parts) for parts in zip(drawn, more, strict=True)))
    firsts: dict[bytes, int] = {}
    for i in np.lexsort((both.rows, both.keys)).tolist():
        firsts.setdefault((both.points[i] + 0.0).tobytes(), i)  # -0.0 is 0.0
        if len(firsts) == count:
            break
    chosen = list(firsts.values())
    return _Drawn(*(part[chosen] for part in both))


@dataclass(frozen=True)
class _FarPoints:
    """Panel task: of a row range, the ``count`` points whose clocks ring first, of masses w d² with
    d the distance to the nearest of the candidates so far."""

    points: Points
    candidates: Block  # (m, d) float64
    count: int
    seed: int
    round: int

    def __call__(self, start: int, stop: int) -> _Drawn:
        drawn = _none_drawn(self.points.shape[1])
        for block, _, squares in _assigned(self.points, self.candidates, start, stop):
            # A stream of its own for each block of the grid: threads and ranges change nothing.
            random = np.random.default_rng([self.seed, self.round, block.first])
            keys = _ringing(random, block.weights, squares)
            some = np.flatnonzero(keys < np.inf)
            more = _Drawn(keys[some], block.first + some, block.points[some].astype(np.float64))
            drawn = _with_more(drawn, more, self.count)
        return drawn


def _drawn_far(job: Job, points: Points, task: _FarPoints) -> _Drawn:
    """One pass over the points."""
    drawn = _none_drawn(points.shape[1])

    def combine(_: int, more: _Drawn) -> None:
        nonlocal drawn
        drawn = _with_more(drawn, more, task.count)

    label = f"initial centres, round {task.round + 1} of {ROUNDS}"
    job.map(task, combine, label, points.ranges_of(job))
    return drawn


@dataclass(frozen=True)
class _Represented:
    """Panel task: for each grid block of a row range, which candidates are nearest to some of its
    points, and the weight of these."""

    points: Points
    candidates: Block  # (m, d) float64

    def __call__(self, start: int, stop: int) -> list[tuple[Vector, Vector]]:
        found = []
        for block, labels, _ in _assigned(self.points, self.candidates, start, stop):
            nearest, places = np.unique(labels, return_inverse=True)
            found.append((nearest, np.bincount(places, block.weights)))
        return found


def _represented(job: Job, points: Points, candidates: Block) -> Vector:
    """One pass over the points: (m,) the weight of those that each candidate is nearest to."""
    weights = np.zeros(len(candidates))

    def combine(_: int, blocks: list[tuple[Vector, Vector]]) -> None:
        for nearest, sums in blocks:
            weights[nearest] += sums

    task = _Represented(points, candidates)
    job.map(task, combine, "initial centres, weights", points.ranges_of(job))
    return weights


def _assigned(
    points: Points, centres: Block, start: int, stop: int
) -> Iterator[tuple[PointBlock, Vector, Vector]]:
    """A range of rows that begins on the grid, block by block, with the nearest centre of each
    point, (r,) int32, and its squared distance, (r,) float64."""
    ranking: Ranking | None = None
    nothing = Sums(centres.shape, 0)
    weightless = np.zeros(points.grid)  # nothing is to be summed
    for block in points.blocks(start, stop):
        size = len(block.points)
        ranking = ranking or Ranking(centres, block.points.dtype, Weighing())
        labels, squares = np.empty(size, np.int32), np.empty(size)
        ranking.reduce(block._replace(weights=weightless[:size]), nothing, labels)
        assigned_squares(block.points, labels, centres, squares)
        yield block, labels, squares
