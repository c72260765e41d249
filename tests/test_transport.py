"""Bounds of the best placement against brute force, linear programming and each other."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog
from scipy.special import logsumexp, softmax

from silchunk.errors import InputError
from silchunk.transport import Terms, block_terms, exact_multipliers, smallest_dual

GAP = 1e-6
TABLES = ["uniform", "ties", "identical rows", "constant columns", "zeros", "equal columns", "tiny"]
WEIGHTS = ["average", "macro", "extreme"]


def random_table(kind, n, n_classes, rng):
    shape = (n, n_classes)
    if kind == "uniform":
        return rng.random(shape)
    if kind == "ties":
        return rng.integers(0, 4, shape) / 3
    if kind == "identical rows":
        return np.tile(rng.random(n_classes), (n, 1))
    if kind == "constant columns":
        return np.where(np.arange(n_classes) % 2 == 0, rng.random(n_classes), rng.random(shape))
    if kind == "zeros":
        return np.zeros(shape)
    if kind == "equal columns":
        return np.tile(rng.random((n, 1)), (1, n_classes))
    return rng.random(shape) ** 30


def random_problem(kind, weighting, n, n_classes, seed):
    """(table, weights, capacities), some capacities usually much larger than others."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(n_classes, 0.5))
    capacities = 1 + rng.multinomial(n - n_classes, shares)
    if weighting == "average":
        weights = np.ones(n_classes)
    elif weighting == "macro":
        weights = n / (n_classes * capacities)
    else:
        weights = 10.0 ** rng.uniform(-4, 4, n_classes)
    return random_table(kind, n, n_classes, rng), weights, capacities


@st.composite
def problems(draw, most_points=80, most_classes=6):
    n_classes = draw(st.integers(1, most_classes))
    n = draw(st.integers(n_classes, most_points))
    seed = draw(st.integers(0, 2**32 - 1))
    kind, weighting = draw(st.sampled_from(TABLES)), draw(st.sampled_from(WEIGHTS))
    return random_problem(kind, weighting, n, n_classes, seed)


def blob_problem(n, sizes):
    """What points of three Gaussian blobs score at most in clusters of the given sizes."""
    rng = np.random.default_rng(n)
    points = rng.normal(size=(n, 2)) + 6 * rng.normal(size=(3, 2))[rng.integers(0, 3, n)]
    squares = ((points[:, np.newaxis] - points) ** 2).sum(axis=2)
    sums = np.cumsum(np.sort(np.sqrt(squares), axis=1), axis=1)  # the point itself comes first
    table = np.zeros((n, len(sizes)))
    for j, size in enumerate(sizes):
        if size > 1:
            own = sums[:, size - 1]
            table[:, j] = 1 - own / (size - 1) / ((sums[:, -1] - own) / (n - size))
    return table, np.array(sizes)


def evaluator(table, weights):
    return lambda multipliers, temperature: block_terms(table, weights, multipliers, temperature)


def best_of_all(table, weights, capacities):
    """The best placement by trying each of them, in rational numbers."""
    places = [j for j, capacity in enumerate(capacities) for _ in range(capacity)]
    score = [[Fraction(u) * Fraction(w) for u, w in zip(r, weights, strict=True)] for r in table]
    best = max(
        sum(score[i][j] for i, j in enumerate(placed)) for placed in set(permutations(places))
    )
    return best / len(table)


def best_by_linear_programming(table, weights, capacities):
    n, n_classes = table.shape
    each_row = sparse.kron(sparse.eye(n), np.ones((1, n_classes)))
    each_class = sparse.kron(np.ones((1, n)), sparse.eye(n_classes))
    solution = linprog(
        -(weights * table).ravel() / n,
        A_eq=sparse.vstack([each_row, each_class]),
        b_eq=np.r_[np.ones(n), capacities],
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    return -solution.fun


def rounding(bound):
    return 1e-12 * max(1.0, bound)


@pytest.mark.parametrize("temperature", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("kind", TABLES)
def test_terms_are_their_definition(kind, temperature):
    table, weights, _ = random_problem(kind, "macro", 50, 5, 0)
    multipliers = np.random.default_rng(1).normal(size=5)
    terms = block_terms(table, weights, multipliers, temperature)
    margins = weights * table - multipliers
    shares = softmax(margins / temperature, axis=1)
    assert terms.hard == pytest.approx(margins.max(axis=1).sum(), rel=1e-13)
    smooth = temperature * logsumexp(margins / temperature, axis=1).sum()
    assert terms.soft == pytest.approx(smooth, rel=1e-13)
    np.testing.assert_allclose(terms.mass, shares.sum(axis=0), atol=1e-12)
    value = (shares * weights * table).sum(axis=0)
    np.testing.assert_allclose(terms.value, value, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(terms.overlap, shares.T @ shares, atol=1e-12)


def test_at_temperature_zero_the_first_maximum_takes_all():
    table = np.array([[0.5, 1.0, 1.0], [0.75, 0.25, 0.0]])
    terms = block_terms(table, np.ones(3), np.zeros(3), 0.0)
    assert terms.hard == terms.soft == 1.75
    assert terms.mass.tolist() == [1, 1, 0]
    assert terms.value.tolist() == [0.75, 1, 0]
    assert terms.overlap.tolist() == np.diag([1, 1, 0]).tolist()


@pytest.mark.parametrize("temperature", [0.0, 0.05])
def test_terms_of_blocks_add_up(temperature):
    table, weights, _ = random_problem("uniform", "macro", 100, 4, 2)
    multipliers = np.array([0.1, -0.2, 0.3, 0.0])
    blocks = [
        block_terms(block, weights, multipliers, temperature) for block in np.split(table, [7, 60])
    ]
    total = blocks[0] + blocks[1] + blocks[2]
    assert isinstance(total, Terms)
    for added, whole in zip(
        total, block_terms(table, weights, multipliers, temperature), strict=True
    ):
        np.testing.assert_allclose(added, whole, rtol=1e-13)


@settings(max_examples=40, deadline=None)
@given(problems(most_points=6, most_classes=3))
def test_exact_bound_is_the_best_of_all_placements(problem):
    best = float(best_of_all(*problem))
    result = exact_multipliers(*problem)
    assert abs(result.bound - best) <= rounding(best)
    assert 0 <= result.gap <= rounding(best)


@pytest.mark.parametrize("weighting", WEIGHTS)
@pytest.mark.parametrize("kind", TABLES)
def test_exact_bound_is_that_of_linear_programming(kind, weighting):
    problem = random_problem(kind, weighting, 40, 4, 3)
    best = best_by_linear_programming(*problem)
    assert exact_multipliers(*problem).bound == pytest.approx(best, rel=1e-8, abs=1e-8)


@settings(max_examples=100, deadline=None)
@given(problems(), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1e-6, 1e-2, 1.0]))
def test_weak_duality_at_any_multipliers(problem, seed, temperature):
    table, weights, capacities = problem
    rng = np.random.default_rng(seed)
    best = exact_multipliers(*problem).bound
    multipliers = weights.max() * 10.0 ** rng.uniform(-4, 1) * rng.normal(size=len(weights))
    terms = block_terms(table, weights, multipliers, temperature)
    dual, primal = terms.dual(multipliers, capacities), terms.primal(capacities)
    assert primal - rounding(best) <= best <= dual + rounding(dual)
    assert terms.gap(multipliers, capacities) == dual - primal


@settings(max_examples=100, deadline=None)
@given(problems())
def test_smallest_dual_is_within_its_gap(problem):
    table, weights, capacities = problem
    best = exact_multipliers(*problem).bound
    gap = GAP * max(1.0, best)
    result = smallest_dual(evaluator(table, weights), capacities, weights, gap=gap)
    assert 0 <= result.gap <= gap
    assert -rounding(best) <= result.bound - best <= result.gap + rounding(best)


@settings(max_examples=40, deadline=None)
@given(problems(), st.integers(1, 12))
def test_a_search_that_is_stopped_says_how_far_it_came(problem, max_evaluations):
    table, weights, capacities = problem
    calls = []

    def evaluate(multipliers, temperature):
        calls.append(multipliers)
        return block_terms(table, weights, multipliers, temperature)

    result = smallest_dual(evaluate, capacities, weights, gap=0, max_evaluations=max_evaluations)
    assert result.evaluations == len(calls) <= max_evaluations
    best = exact_multipliers(*problem).bound
    assert -rounding(best) <= result.bound - best <= result.gap + rounding(best)
    at_values = block_terms(table, weights, result.values, 0.0).dual(result.values, capacities)
    assert abs(at_values - result.bound) <= rounding(best)
    seen = [block_terms(table, weights, values, 0.0).dual(values, capacities) for values in calls]
    assert result.bound <= min(seen) + rounding(best)


@pytest.mark.parametrize(
    "sizes", [(200, 201, 199), (1, 1, 598), (2, 3, 595), (30, 60, 110, 400), (*range(1, 30), 165)]
)
@pytest.mark.parametrize("macro", [False, True])
def test_gaussian_blobs(sizes, macro):
    distinct, multiplicity = np.unique(sizes, return_counts=True)
    table, distinct = blob_problem(600, distinct)
    capacities = distinct * multiplicity
    weights = 600 / (len(sizes) * distinct) if macro else np.ones(len(distinct))
    exact = exact_multipliers(table, weights, capacities)
    result = smallest_dual(evaluator(table, weights), capacities, weights, gap=GAP)
    assert result.gap <= GAP
    assert -1e-12 <= result.bound - exact.bound <= result.gap + 1e-12


@pytest.mark.parametrize("weighting", WEIGHTS[:2])
@pytest.mark.parametrize("kind", TABLES)
def test_many_rows_and_classes(kind, weighting):
    table, weights, capacities = random_problem(kind, weighting, 3000, 30, 5)
    result = smallest_dual(evaluator(table, weights), capacities, weights, gap=GAP)
    assert 0 <= result.gap <= GAP
    assert result.evaluations <= 100
    # What no search has touched: the table in its own order fills the classes as they come.
    placed = np.repeat(np.arange(30), capacities)
    assert result.bound >= (weights * table)[np.arange(3000), placed].mean() - 1e-12


def test_one_class_is_the_mean_of_its_column():
    table = np.random.default_rng(6).random((50, 1))
    weights, capacities = np.array([2.0]), np.array([50])
    found = smallest_dual(evaluator(table, weights), capacities, weights, gap=0)
    for result in (found, exact_multipliers(table, weights, capacities)):
        assert result.bound == pytest.approx(2 * table.mean(), abs=1e-14)
        assert result.values.tolist() == [0]
        assert result.evaluations == 1
        assert result.gap <= 1e-14


def test_identical_rows_score_the_mean_over_places():
    row, capacities = np.array([0.25, 0.5, 1.0]), np.array([100, 300, 600])
    table, weights = np.tile(row, (1000, 1)), np.ones(3)
    result = smallest_dual(evaluator(table, weights), capacities, weights, gap=GAP)
    assert abs(result.bound - row @ capacities / 1000) <= result.gap <= GAP


def test_a_table_of_zeros_is_bounded_by_zero():
    weights, capacities = np.array([3.0, 1.0]), np.array([10, 20])
    found = smallest_dual(evaluator(np.zeros((30, 2)), weights), capacities, weights, gap=0)
    for result in (found, exact_multipliers(np.zeros((30, 2)), weights, capacities)):
        assert result.bound == result.gap == 0


@pytest.mark.parametrize(
    ("capacities", "weights", "message"),
    [
        ([3, 2], [1.0, 1.0], "capacities add up to 5, but there are 6 rows"),
        ([6, 0], [1.0, 1.0], "a capacity is 0, must be at least 1"),
        ([3, 3], [1.0, 0.0], "a weight is 0.0, must be above 0"),
        ([3, 3], [1.0, np.nan], "a weight is nan, must be above 0"),
        ([3, 3], [1.0], "capacities of shape (2,) and weights of shape (1,) for 2 size classes"),
    ],
)
def test_what_does_not_fit_is_refused(capacities, weights, message):
    table, capacities, weights = np.ones((6, 2)), np.array(capacities), np.array(weights)
    message = message.replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(InputError, match=message):
        exact_multipliers(table, weights, capacities)
    with pytest.raises(InputError, match=message):
        smallest_dual(evaluator(table, weights), capacities, weights, gap=GAP)


def test_bad_limits_are_refused():
    table, weights, capacities = np.ones((6, 2)), np.ones(2), np.array([3, 3])
    evaluate = evaluator(table, weights)
    with pytest.raises(InputError, match="max_evaluations is 0, must be at least 1"):
        smallest_dual(evaluate, capacities, weights, gap=GAP, max_evaluations=0)
