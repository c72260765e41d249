"""A whole fit: read, plan, seed, iterate, and label all points with the best centres."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from silchunk import centroids, plan, scan
from silchunk.cluster import saved
from silchunk.cluster.iteration import Iteration, Rank, Reweigh, Rules, Run, State, iterate
from silchunk.cluster.labels import LabelVector
from silchunk.cluster.passes import PassResult, Weighing, run_pass
from silchunk.cluster.points import Points, Vector
from silchunk.cluster.seeding import held_bytes, initial_centres, n_candidates
from silchunk.errors import InputError, warn
from silchunk.inbox import LOOK_AHEAD
from silchunk.labels import StoredVector
from silchunk.prepare import Arguments, Job, Needs, prepared
from silchunk.rows import Block

# Labels that are held at once: of two iterations, int32.
LABELS_COLUMNS = 1


@dataclass(frozen=True)
class Start:
    """Where the iterations of one of several runs begin."""

    init: Any
    n_init: int
    seed: int


@dataclass(frozen=True)
class Reference:
    """Another algorithm, run from each start first: its best centres are kept unless those that
    follow are better.

    Attributes
    ----------
    rules : Rules
    margin : float
        Standard errors of the objective by which they have to be.
    """

    rules: Rules
    margin: float

    def bar(self, found: PassResult, objective: str) -> Rank:
        """What is to be exceeded, by the objective of the algorithm that follows, from what a pass
        found of the reference's centres. Fewer empty clusters exceed any score."""
        score = float(getattr(found, objective)) + self.margin * found.standard_error(objective)
        return Rank(-found.empty_clusters, score)


@dataclass(frozen=True)
class Fitted:
    """What a fit found.

    Attributes
    ----------
    centres : (K, d) float64
    labels : (n,) int32
        In memory, or mapped from a file where they are many.
    found : PassResult
        Of the pass that gave the labels.
    history : list of Iteration
        Of the best run.
    by_reference : bool
        Whether that run is one of the reference.
    """

    centres: Block
    labels: Vector
    found: PassResult
    history: list[Iteration]
    by_reference: bool


class Weigher(Protocol):
    """Weights of an algorithm that come of the points rather than of the iterations."""

    def fixed(self, job: Job, points: Points) -> Vector | StoredVector | None:
        """Weights (n,) float64 from the first iteration on, those given among them."""

    def by_labels(self, job: Job, points: Points) -> Reweigh | None:
        """Weights that each iteration forms anew."""


@contextmanager
def points_of(
    X: Any,
    arguments: Arguments,
    n_clusters: int,
    sample_weight: Any = None,
    *,
    directions: bool = False,
    table_columns: int | None = None,
    init: Any = None,
) -> Iterator[tuple[Job, Points]]:
    """Points that are read, planned and checked; temporary files live as long as the context.

    ``table_columns`` are the numbers for each point that are held beside the points; labels of two
    iterations if it is None. ``init`` is how centres are to be drawn, if they are.
    """
    weights: list[Vector] = []

    def needs_of(n: int) -> Needs:
        if sample_weight is not None:
            weights.append(checked_weights(sample_weight, n))
        return Needs(
            outputs=0,
            # Distances to centres: those of a task, and of those that wait to be put in order.
            row_results=0 if table_columns is None else (1 + LOOK_AHEAD) * table_columns,
            result_bytes=sum(some.nbytes for some in weights),
            table_columns=LABELS_COLUMNS if table_columns is None else table_columns,
            runtime_bytes=plan.SCIKIT_LEARN_BYTES,
            centres=n_candidates(init, n_clusters),
            sample_bytes=lambda d: held_bytes(init, n, d, n_clusters),
        )

    with prepared(X, arguments, needs_of=needs_of, least_points=1) as job:
        if directions:
            scan.refuse_zero_rows(
                job.source, name="X", where=job.where, read_rows=job.plan.read_rows
            )
        shared = job.shared(weights[0], "weights") if weights else None
        yield job, Points(job.source, shared, directions)


def checked_weights(sample_weight: Any, n: int) -> Vector:
    """(n,) float64, none negative and some positive.

    Raises
    ------
    InputError
    """
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.ndim == 0:
        weights = np.full(n, float(weights))
    if weights.shape != (n,):
        raise InputError(
            f"sample_weight.shape == {weights.shape}, expected ({n},): one weight for each point."
        )
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise InputError("sample_weight must be finite and not negative.")
    if not weights.any():
        raise InputError("sample_weight is zero for every point.")
    return weights


def label_vectors(job: Job) -> list[LabelVector]:
    """Room for the labels of two iterations, where all tasks can write to it."""
    if job.table.path is None and not job.where.distributed:
        return [LabelVector.in_memory(job.n) for _ in range(2)]
    return [LabelVector.in_file(job.n, job.scratch / f"labels-{turn}.npy") for turn in range(2)]


def fit(
    job: Job,
    points: Points,
    n_clusters: int,
    start: Start,
    rules: Rules,
    *,
    tol: float,
    reference: Reference | None = None,
    weigher: Weigher | None = None,
    checkpoint: saved.Checkpoint | None = None,
    callback: Callable[[Iteration], None] | None = None,
) -> Fitted:
    """Run an algorithm from ``start.n_init`` starts, the reference before it, and keep the best of
    each; and of both what is said by the reference."""
    tolerance = _tolerance(job, points, tol)
    turns = [replace(rules, tolerance=tolerance)]
    if reference is not None:
        turns.insert(0, replace(reference.rules, tolerance=tolerance))
    weighed, reweigh = points, None
    if weigher is not None:
        weighed = replace(points, weights=weigher.fixed(job, points))
        reweigh = weigher.by_labels(job, points)
    labels = label_vectors(job)
    kept = saved.Progress() if checkpoint is None else checkpoint.load()
    seed = start.seed if kept.seed is None else kept.seed
    kept = replace(kept, seed=seed)
    found: PassResult | None = None  # of the labels that are in ``labels``
    for run in range(kept.run, start.n_init * len(turns)):
        nth_start, turn = divmod(run, len(turns))
        own = turns[turn]
        first = kept.first
        if first is None:
            # Each start has a seed of its own, so that none depends on how many went before.
            random = np.random.default_rng([seed, nth_start])
            first = initial_centres(job, weighed, n_clusters, start.init, random)
            kept = replace(kept, first=first)
        state = kept.state or State(first, own.temperature.start, best=first)
        keep = partial(_keep, checkpoint, callback, replace(kept, run=run))
        iterate(job, weighed, state, own, labels, keep, reweigh)
        # Where the last iteration has moved the centres to has not been looked at yet.
        found = _labelled(job, weighed, state.centres, own, labels)
        ended = Run(state.centres, own.rank(found), state.history)
        if state.best_rank.above(ended.rank):
            ended, found = Run(state.best, state.best_rank, state.history), None
        of_reference = own is not turns[-1]
        so_far = kept.reference if of_reference else kept.best
        if so_far is not None and not ended.rank.above(so_far.rank):
            found = None
        elif reference is not None and of_reference:
            found = found or _labelled(job, weighed, ended.centres, own, labels)
            kept = replace(kept, reference=ended, bar=reference.bar(found, rules.objective))
        else:
            kept = replace(kept, best=ended)
        kept = replace(kept, run=run + 1, state=None, first=first if of_reference else None)
        if checkpoint is not None:
            checkpoint.write(kept)
    chosen = kept.best
    assert chosen is not None
    by_reference = kept.bar is not None and not chosen.rank.above(kept.bar)
    if by_reference and kept.reference is not None:
        chosen, found = kept.reference, None
    if found is None or weighed is not points:
        found = _labelled(job, points, chosen.centres, rules, labels)
    if reference is not None:
        _warn_of_few_copies(points, found)
    return Fitted(chosen.centres, labels[0].whole(), found, chosen.history, by_reference)


def _warn_of_few_copies(points: Points, found: PassResult) -> None:
    copies, n_clusters = float(found.counts.sum()), len(found.counts)
    if points.weights is not None and copies <= n_clusters:
        warn(
            f"sample_weight sums to {copies:g}, as if there were so many points for "
            f"{n_clusters:,} clusters: standard errors are large then, and k-means is kept more "
            "often than it should be. Multiply all weights by a number that is large enough, or "
            "pass margin=None."
        )


def _labelled(
    job: Job, points: Points, centres: Block, rules: Rules, labels: list[LabelVector]
) -> PassResult:
    """The pass that gives the labels for these centres, which it leaves in the first of two."""
    own = labels[0] = labels[0].renewed()
    weighing = Weighing(squared=rules.squared)
    least = rules.min_cluster_size
    return run_pass(job, points, centres, weighing, "labels", labels=own, min_cluster_size=least)


def _keep(
    checkpoint: saved.Checkpoint | None,
    callback: Callable[[Iteration], None] | None,
    progress: saved.Progress,
    state: State,
) -> None:
    if callback is not None:
        callback(state.history[-1])
    if checkpoint is not None:
        checkpoint.write(replace(progress, state=state))


def _tolerance(job: Job, points: Points, tol: float) -> float:
    """``tol`` relative to the mean variance of the features, as scikit-learn has it."""
    if tol == 0:
        return 0.0
    of = centroids.moments(job, _Together(), 1, directions=points.directions)
    return tol * float(of.spreads[0]) / points.shape[1]


class _Together:
    """Codes of points that are all in one cluster."""

    def __getitem__(self, points: slice) -> Vector:
        return np.zeros(points.stop - points.start, np.int8)
