"""The iterations of a centroid algorithm: assign, weigh, move, until nothing gets better.

One pass over the points is one iteration. The best centres that were seen are kept, so that no
later iteration can spoil the result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from silchunk.cluster.labels import LabelVector
from silchunk.cluster.passes import (
    LARGEST_TEMPERATURE,
    PassResult,
    Ranking,
    Sums,
    Weighing,
    run_pass,
)
from silchunk.cluster.points import PointBlock, Points, Vector
from silchunk.kernels.lloyd import INERTIA
from silchunk.labels import StoredVector
from silchunk.prepare import Job
from silchunk.rows import Block

# Iterations without a better score after which an algorithm that may oscillate ends.
PATIENCE = 10
# A score is better if it is by more than this, relative: less may be rounding.
GAIN = 1e-12


class Iteration(NamedTuple):
    """One iteration, as `history_` has it.

    All but ``shift`` tell of the centres that it began with.
    """

    iteration: int  # from 1 on
    macro: float  # mean over clusters of the mean of s = 1 - a/b, with distances to centres
    micro: float  # mean of s over points
    inertia: float  # sum of squared distances to the nearest centre
    temperature: float  # τ of the weights exp(τ s), 0 where there are none
    shift: float  # root of the sum of squares of what the centres moved by
    labels_changed: int
    empty_clusters: int  # without points, or with fewer than min_cluster_size


@dataclass(frozen=True)
class Temperature:
    """How τ follows the score: times ``step`` where it got better, else divided by it."""

    start: float = 0.0
    low: float = 0.0
    high: float = LARGEST_TEMPERATURE
    step: float = 1.0

    def after(self, temperature: float, improved: bool) -> float:
        """τ of the next iteration."""
        if self.start == 0:
            return 0.0
        moved = temperature * self.step if improved else temperature / self.step
        return min(max(moved, self.low), self.high)


class Rank(NamedTuple):
    """How good centres are: those with fewer empty clusters, which means over clusters leave out,
    before all others."""

    filled: int  # less the number of clusters
    score: float  # the objective, to be large

    def above(self, other: Rank) -> bool:
        """Whether these are better, by more than rounding."""
        if self.filled != other.filled:
            return self.filled > other.filled
        return self.score > other.score + GAIN * abs(other.score)


# Below that of all centres.
NO_RANK = Rank(-1 << 62, 0.0)


@dataclass(frozen=True)
class Rules:
    """What tells centroid algorithms apart.

    Attributes
    ----------
    objective : "macro", "micro" or "inertia"
        By which the best iterate is kept; the first two are to be large, inertia small.
    max_iter : int
        Passes at most.
    min_cluster_size : int
        Clusters of fewer points count as empty.
    tolerance : float
        Sum of squares of what centres move by, below which they stand still.
    temperature : Temperature
    squared, unclear : bool
        As in `Weighing`.
    directions : bool
        Centres have norm 1.
    unsteady : bool
        Weights follow the labels in another way, so that iterations may go in circles.
    title : str
        What an iteration is called in progress.
    """

    objective: str
    max_iter: int
    min_cluster_size: int = 1
    tolerance: float = 0.0
    temperature: Temperature = Temperature()
    squared: bool = False
    unclear: bool = False
    directions: bool = False
    unsteady: bool = False
    title: str = "iteration"

    @property
    def weighted(self) -> bool:
        """Whether iterations can go on after labels have settled, and get worse."""
        relocating = self.min_cluster_size > 1
        return self.unclear or self.unsteady or relocating or self.objective != "inertia"

    def weighing(self, temperature: float) -> Weighing:
        """How points are weighed at a temperature."""
        return Weighing(temperature, self.squared, self.unclear)

    def rank(self, found: PassResult | Iteration) -> Rank:
        """How good centres are."""
        value = float(getattr(found, self.objective))
        return Rank(-found.empty_clusters, -value if self.objective == "inertia" else value)


@dataclass
class State:
    """All that the next iteration depends on, the points and the rules apart.

    Attributes
    ----------
    centres : (K, d) float64, of the next iteration
    temperature : float
    best, best_rank : centres of the best iteration so far, and how good they are
    best_iteration : its number, 0 before the first
    before : (K, d) float64 or None, centres of the last iteration
    history : list of Iteration
    seen : digests of the labels of each iteration, in order
    done : whether the algorithm has ended
    """

    centres: Block
    temperature: float
    best: Block
    before: Block | None = None
    best_rank: Rank = NO_RANK
    best_iteration: int = 0
    history: list[Iteration] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)
    done: bool = False


class Run(NamedTuple):
    """What is kept of one that has ended."""

    centres: Block  # (K, d) float64, the best of it
    rank: Rank
    history: list[Iteration]


# Gives the weights of all points for the sums of a pass, from their labels.
Reweigh = Callable[[LabelVector], Vector | StoredVector]


def iterate(
    job: Job,
    points: Points,
    state: State,
    rules: Rules,
    labels: list[LabelVector],
    keep: Callable[[State], None],
    reweigh: Reweigh | None = None,
) -> None:
    """Run an algorithm to its end, from its beginning or from where it was interrupted.

    Parameters
    ----------
    labels : two LabelVector
        Those of the last iteration are in one of them, by turns, renewed for each.
    keep : callable
        Called with the state after each iteration.
    reweigh : callable, optional
        Weights that depend on the labels: a second pass of each iteration sums with them.
    """
    n_done = len(state.history)
    if state.before is not None and not state.done:
        # Labels are not part of a state: they are those of its last centres.
        run_pass(job, points, state.before, Weighing(), "labels", labels=labels[(n_done - 1) % 2])
    while not state.done:
        n_done = len(state.history)
        own = labels[n_done % 2] = labels[n_done % 2].renewed()
        found = run_pass(
            job,
            points,
            state.centres,
            rules.weighing(state.temperature),
            _label(state, rules),
            before=labels[(n_done - 1) % 2] if n_done else None,
            labels=own,
            min_cluster_size=rules.min_cluster_size,
        )
        moving, towards = found, points
        if reweigh is not None:
            towards = dataclasses.replace(points, weights=reweigh(own))
            moving = run_pass(
                job,
                towards,
                state.centres,
                Weighing(),
                "weighted sums",
                min_cluster_size=rules.min_cluster_size,
            )
        _advance(state, rules, found, moved_centres(towards, state, rules, moving))
        keep(state)


def moved_centres(points: Points, state: State, rules: Rules, found: PassResult) -> Block:
    """The weighted means of what was assigned; empty clusters at the farthest points."""
    sums, weights = found.sums.copy(), found.weights.copy()
    taken = _relocate(points, state, rules, found, sums, weights)
    filled = weights > 0
    centres = state.centres.copy()
    centres[filled] = found.shift + sums[filled] / weights[filled, None]
    if rules.directions:
        lengths = np.linalg.norm(centres, axis=1, keepdims=True)
        # Directions that cancel have no mean: such a centre stays.
        centres = np.where(lengths > 1e-12, centres / np.maximum(lengths, 1e-300), state.centres)
    for cluster, point in taken.items():
        centres[cluster] = point
    return centres


def _relocate(
    points: Points,
    state: State,
    rules: Rules,
    found: PassResult,
    sums: Block,
    weights: Vector,
) -> dict[int, Block]:
    """New places of empty clusters: the points farthest from their centres, which are taken out of
    the sums of the clusters they leave. Neither a point that a cluster needs for its least size nor
    one at its centre is taken."""
    empty = found.empty
    if not len(empty) or not len(found.farthest_rows):
        return {}
    rows = found.farthest_rows
    block = points.picked(rows).astype(points.dtype)
    counts = np.ones(len(rows))
    if points.weights is not None:
        counts = np.array([points.weights[row : row + 1][0] for row in rows.tolist()])
    members = found.members.copy()
    ranking = Ranking(state.centres, points.dtype, rules.weighing(state.temperature))
    d = block.shape[1]
    places = iter(empty.tolist())
    taken: dict[int, Block] = {}
    for point, count in zip(block, counts, strict=True):
        into = Sums(state.centres.shape, 0)
        label = np.empty(1, np.int32)
        ranking.reduce(PointBlock(0, point[None], np.array([count])), into, label)
        cluster = int(label[0])
        if members[cluster] <= rules.min_cluster_size or not into.totals[cluster, d + INERTIA]:
            continue
        place = next(places, None)
        if place is None:
            break
        taken[place] = point
        members[cluster] -= 1
        sums[cluster] -= into.totals[cluster, :d]
        weights[cluster] -= into.totals[cluster, d]
    return taken


def _advance(state: State, rules: Rules, found: PassResult, centres: Block) -> None:
    """Record an iteration, and decide whether and how to go on."""
    rank = rules.rank(found)
    shift = float(((centres - state.centres) ** 2).sum())
    improved = not state.history or rank.above(rules.rank(state.history[-1]))
    state.history.append(
        Iteration(
            len(state.history) + 1,
            found.macro,
            found.micro,
            found.inertia,
            state.temperature,
            shift**0.5,
            found.changed,
            len(found.empty),
        )
    )
    if rank.above(state.best_rank):
        state.best, state.best_rank, state.best_iteration = state.centres, rank, len(state.history)
    state.before, state.centres = state.centres, centres
    state.temperature = rules.temperature.after(state.temperature, improved)
    state.done = _ends(state, rules, found, shift)
    state.seen.append(found.digest)


def _ends(state: State, rules: Rules, found: PassResult, shift: float) -> bool:
    n_done = len(state.history)
    if n_done >= rules.max_iter:
        return True
    stable = n_done > 1 and found.changed == 0 and not len(found.empty)
    if not rules.weighted:
        return stable or shift <= rules.tolerance
    if stable and shift <= rules.tolerance:
        return True
    # Labels that come back after others: the algorithm goes in circles.
    if not stable and found.digest in state.seen:
        return True
    return n_done - state.best_iteration >= PATIENCE


def _label(state: State, rules: Rules) -> str:
    number = f"{rules.title} {len(state.history) + 1}"
    if not state.history:
        return number
    last = state.history[-1]
    return f"{number} (macro {last.macro:.4f}, temperature {state.temperature:.3g})"
