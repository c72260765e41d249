"""Bounds of the best placement of n points into clusters of given sizes.

A table u (n, J) holds what point i scores at most in a cluster of the j-th distinct size, and
``capacities[j]`` points have room in clusters of that size, n in all. With weights w (1 for the
average over points), the best placement scores

    max_z (1/n) Σ_ij w_j u_ij z_ij     over z ≥ 0, Σ_j z_ij = 1, Σ_i z_ij = c_j,

a transportation problem. For any multipliers λ, its Lagrangian dual

    D(λ) = (1/n) [ Σ_i max_j (w_j u_ij - λ_j) + Σ_j c_j λ_j ]

is at least that (Geoffrion 1974, doi:10.1007/BFb0120690), and the smallest D equals it. What is
returned here is always D at some λ: an upper bound, however far the search went.

D needs sums over the rows of u alone, so u may be read in blocks, in or out of core. It is
piecewise linear; the search smooths its maxima to softmaxima, which is entropic regularisation of
the placement (Cuturi 2013, arXiv:1306.0895; Peyré & Cuturi, Computational Optimal Transport,
doi:10.1561/2200000073).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from silchunk.errors import InputError
from silchunk.kernels import transport as kernel

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

Vector = np.ndarray[Any, np.dtype[np.float64]]
Counts = np.ndarray[Any, np.dtype[np.int64]]

# `exact_multipliers` takes a moment up to here, whatever the table; it grows like n³.
EXACT_POINTS = 700

# Temperatures, chosen by the evaluations they take over many kinds of tables.
HOTTEST = 1 / 32  # of the largest weight
HOTTEST_OF_GAP = 1 / 4  # of the gap at zero multipliers, so that an easy table is not heated up
COOLING = 1 / 4
COLDEST = 1e-14  # of the hottest: multipliers have no more digits
# A stage has done its work once the gap is due to its temperature, and once even the smallest
# class is filled well enough for its multiplier to be extrapolated to the next one.
SETTLED_GAP = 1.2
SETTLED_MASS = 0.5
STAGE_STEPS = 50


class Terms(NamedTuple):
    """Sums over rows i at multipliers λ and temperature ε; those of blocks of rows add up.

    With a_ij = w_j u_ij - λ_j and p_i = softmax(a_i / ε), or at ε = 0 all on the first maximum:

    Attributes
    ----------
    hard : Σ_i max_j a_ij
    soft : Σ_i ε·logsumexp_j(a_ij / ε)
    mass : (J,) float64, Σ_i p_ij
    value : (J,) float64, Σ_i p_ij w_j u_ij
    overlap : (J, J) float64, Σ_i p_ij p_il
    """

    hard: float
    soft: float
    mass: Vector
    value: Vector
    overlap: Vector

    def __add__(self, other: Terms) -> Terms:  # type: ignore[override]
        return Terms(
            self.hard + other.hard,
            self.soft + other.soft,
            self.mass + other.mass,
            self.value + other.value,
            self.overlap + other.overlap,
        )

    def dual(self, multipliers: Vector, capacities: Counts) -> float:
        """D at the multipliers of these terms: an upper bound of the best placement."""
        return float((self.hard + capacities @ multipliers) / capacities.sum())

    def primal(self, capacities: Counts) -> float:
        """What a placement scores at least that fits: where p overfills a class, cut down to it.

        The points cut off go where there is room; their scores are not negative.
        """
        kept = capacities / np.maximum(self.mass, capacities)
        return float(self.value @ kept / capacities.sum())

    def gap(self, multipliers: Vector, capacities: Counts) -> float:
        """Between the two; up to rounding not negative."""
        return self.dual(multipliers, capacities) - self.primal(capacities)


Evaluate = Callable[[Vector, float], Terms]


@dataclass(frozen=True)
class Multipliers:
    """Multipliers of the size classes, and the bound that they prove.

    Attributes
    ----------
    values : (J,) float64, with Σ_j c_j λ_j = 0
    bound : float, D at ``values``: no placement scores more
    gap : float ≥ 0, to the score of a known placement: the best one is in [bound - gap, bound]
    evaluations : int, sums over all rows that were asked for
    """

    values: Vector
    bound: float
    gap: float
    evaluations: int


def block_terms(table: Vector, weights: Vector, multipliers: Vector, temperature: float) -> Terms:
    """Terms of a block of rows.

    Parameters
    ----------
    table : (r, J) float64, in [0, 1]
    weights, multipliers : (J,) float64
    temperature : float ≥ 0

    Notes
    -----
    Time O(r J), and O(r s²) for s classes that share a row; memory O(J²).
    """
    n_classes = len(weights)
    mass, value = np.zeros(n_classes), np.zeros(n_classes)
    overlap = np.zeros((n_classes, n_classes))
    hard, soft = kernel.dual_terms(
        table, weights, multipliers, float(temperature), mass, value, overlap
    )
    return Terms(hard, soft, mass, value, overlap + np.tril(overlap, -1).T)


def exact_multipliers(table: Vector, weights: Vector, capacities: Counts) -> Multipliers:
    """Multipliers at which D is smallest, for tables of few rows.

    Parameters
    ----------
    table : (n, J) float64, in [0, 1]
    weights : (J,) float64, > 0
    capacities : (J,) int64, ≥ 1, n in all

    Returns
    -------
    Multipliers
        With a gap of rounding errors, and one evaluation.

    Raises
    ------
    InputError
        If weights or capacities do not fit the table.

    Notes
    -----
    Time O(n³), mostly much less; memory 8 n² bytes.
    """
    n, n_classes = table.shape
    _check(capacities, weights, n_classes)
    _check_rows(n, capacities)
    scores = weights * table
    places = np.repeat(np.arange(n_classes), capacities)
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(scores[:, places], maximize=True)
    placed = places[columns]
    # A row placed in j wants a_ij - λ_j ≥ a_il - λ_l for all l: λ_j ≤ λ_l + its lead of j over l.
    leads = scores[rows, placed][:, np.newaxis] - scores
    least = np.array([leads[placed == j].min(axis=0) for j in range(n_classes)])
    # The largest such λ ≤ 0 are shortest paths. An optimal placement has no negative cycle but for
    # rounding, so J rounds are enough.
    multipliers = np.zeros(n_classes)
    for _ in range(n_classes):
        multipliers = (multipliers + least).min(axis=1)
    multipliers = _centred(multipliers, capacities)
    bound = block_terms(table, weights, multipliers, 0.0).dual(multipliers, capacities)
    primal = float(scores[rows, placed].sum() / n)
    return Multipliers(multipliers, bound, max(bound - primal, 0.0), 1)


def smallest_dual(
    evaluate: Evaluate,
    capacities: Counts,
    weights: Vector,
    *,
    gap: float,
    max_evaluations: int = 300,
) -> Multipliers:
    """Multipliers at which D is within ``gap`` of its smallest, for tables of any length.

    Parameters
    ----------
    evaluate : callable (multipliers, temperature) -> Terms
        Sum of `block_terms` over all rows. The bound is as good as these sums.
    capacities : (J,) int64, ≥ 1, n in all
    weights : (J,) float64, > 0
    gap : float ≥ 0
        Where to stop, on the scale of the bound.
    max_evaluations : int ≥ 1
        Where to stop at the latest.

    Returns
    -------
    Multipliers
        Best ones seen, with the gap that was reached.

    Raises
    ------
    InputError
        If weights and capacities do not fit each other or the rows evaluated.

    Notes
    -----
    Trust-region Newton steps at falling temperatures, each stage starting from the multipliers
    extrapolated from the last two. Each evaluation takes O(J³) besides ``evaluate``.
    """
    _check(capacities, weights, len(capacities))
    if max_evaluations < 1:
        raise InputError(f"max_evaluations is {max_evaluations}, must be at least 1")
    search = _Search(evaluate, capacities, gap, max_evaluations)
    with suppress(_EndedError):
        _cool(search, HOTTEST * float(weights.max()))
    return search.result()


def _cool(search: _Search, hottest: float) -> None:
    """Minimise at falling temperatures until the search ends."""
    multipliers = np.zeros(len(search.capacities))
    start = search(multipliers, 0.0)
    temperature = min(hottest, HOTTEST_OF_GAP * start.gap(multipliers, search.capacities))
    previous = None
    while temperature > COLDEST * hottest:
        found = _Stage(search, temperature, multipliers).minimiser()
        multipliers = found
        if previous is not None:
            # Minimisers are linear in the temperature while the ties among classes stay the same,
            # as they do in the end; and each step of it is `COOLING` times the one before.
            multipliers = found + COOLING * (found - previous)
        previous = found
        temperature *= COOLING


class _EndedError(Exception):
    """The search is at its gap, or out of evaluations."""


class _Search:
    """Counts evaluations and keeps the best bounds from both sides."""

    def __init__(
        self, evaluate: Evaluate, capacities: Counts, gap: float, max_evaluations: int
    ) -> None:
        self.evaluate = evaluate
        self.capacities = capacities
        self.gap = gap
        self.max_evaluations = max_evaluations
        self.evaluations = 0
        self.values = np.zeros(len(capacities))
        self.bound = np.inf
        self.primal = 0.0

    def __call__(self, multipliers: Vector, temperature: float) -> Terms:
        """Evaluate; raises `_EndedError` once it is enough."""
        terms = self.evaluate(multipliers, temperature)
        if self.evaluations == 0:
            _check_rows(round(float(terms.mass.sum())), self.capacities)
        self.evaluations += 1
        bound = terms.dual(multipliers, self.capacities)
        if bound < self.bound:
            self.bound, self.values = bound, multipliers
        self.primal = max(self.primal, terms.primal(self.capacities))
        if self.bound - self.primal <= self.gap or self.evaluations == self.max_evaluations:
            raise _EndedError
        return terms

    def result(self) -> Multipliers:
        gap = max(self.bound - self.primal, 0.0)  # rounding may cross the two
        return Multipliers(self.values, self.bound, gap, self.evaluations)


class _Stage:
    """The smoothed dual at one temperature ε, over x = (λ - origin) / ε and divided by ε."""

    def __init__(self, search: _Search, temperature: float, origin: Vector) -> None:
        self.search = search
        self.temperature = temperature
        self.origin = origin
        self.n = int(search.capacities.sum())
        self.evaluate(np.zeros(len(origin)))

    def multipliers(self, x: Vector) -> Vector:
        return _centred(self.origin + self.temperature * x, self.search.capacities)

    def evaluate(self, x: Vector) -> None:
        self.x = x.copy()
        self.terms = self.search(self.multipliers(x), self.temperature)

    def at(self, x: Vector) -> Terms:
        """Value, gradient and Hessian are asked for one by one, but of the last x."""
        if not np.array_equal(x, self.x):
            self.evaluate(x)
        return self.terms

    def value(self, x: Vector) -> tuple[float, Vector]:
        """The smoothed dual and its gradient."""
        terms, capacities = self.at(x), self.search.capacities
        dual = float(terms.soft + capacities @ self.multipliers(x)) / self.n
        return dual / self.temperature, (capacities - terms.mass) / self.n

    def hessian(self, x: Vector) -> Vector:
        terms = self.at(x)
        hessian: Vector = (np.diag(terms.mass) - terms.overlap) / self.n
        # All multipliers may move together, which changes nothing: keep them from it. And where
        # no row is shared the dual is linear: keep the matrix regular.
        hessian += np.trace(hessian) / len(x) + 1e-12 * np.eye(len(x))
        return hessian

    def settled(self, intermediate_result: OptimizeResult) -> None:
        """Callback of `minimize`, named as it must be: end the stage when it has done its work."""
        terms, capacities = self.terms, self.search.capacities
        multipliers = self.multipliers(self.x)
        softness = terms.hard - terms.value.sum() + terms.mass @ multipliers
        gap = terms.gap(multipliers, capacities)
        if gap * self.n <= SETTLED_GAP * softness and np.all(
            np.abs(terms.mass - capacities) <= SETTLED_MASS * capacities
        ):
            raise StopIteration

    def minimiser(self) -> Vector:
        from scipy.optimize import minimize

        found = minimize(
            self.value,
            self.x,
            jac=True,
            hess=self.hessian,
            method="trust-exact",
            callback=self.settled,
            options={
                "initial_trust_radius": 2.0,
                "max_trust_radius": 1000.0,
                "gtol": 1e-13,
                "maxiter": STAGE_STEPS,
            },
        )
        return self.multipliers(found.x)


def _centred(multipliers: Vector, capacities: Counts) -> Vector:
    """The same multipliers up to a constant, which D does not depend on, so that Σ_j c_j λ_j = 0.

    D is then the mean of the maxima, with nothing to cancel.
    """
    centred: Vector = multipliers - capacities @ multipliers / capacities.sum()
    return centred


def _check(capacities: Counts, weights: Vector, n_classes: int) -> None:
    if not np.shape(capacities) == np.shape(weights) == (n_classes,):
        raise InputError(
            f"capacities of shape {np.shape(capacities)} and weights of shape "
            f"{np.shape(weights)} for {n_classes} size classes"
        )
    if np.min(capacities) < 1:
        raise InputError(f"a capacity is {np.min(capacities)}, must be at least 1")
    if not np.min(weights) > 0:
        raise InputError(f"a weight is {np.min(weights)}, must be above 0")


def _check_rows(n: int, capacities: Counts) -> None:
    if n != capacities.sum():
        raise InputError(f"capacities add up to {capacities.sum()}, but there are {n} rows")
