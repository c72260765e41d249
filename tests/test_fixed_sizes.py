"""Bounds for fixed cluster sizes, against all clusterings and assignments."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import permutations

import dask
import dask.array as da
import numpy as np
import oracles
import pytest
import silhouette_upper_bound as reference
from constraint_inputs import (
    KINDS,
    METHODS,
    blobs,
    clusterings,
    matrix,
    quick_table,
    size_lists,
    table_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog
from sklearn.metrics import pairwise_distances, silhouette_samples

from silchunk import (
    macro_silhouette_upper_bound,
    numerical_slack,
    prepare,
    silhouette_bounds,
    silhouette_upper_bound,
    sized,
    transport,
)


def best_by_linear_programming(D, sizes, macro):
    """The best assignment of points to clusters, each with its size."""
    n, k = len(D), len(sizes)
    weights = 1 / (k * np.array(sizes)) if macro else np.full(k, 1 / n)
    solution = linprog(
        -(quick_table(D, sizes) * weights).ravel(),
        A_eq=sparse.vstack(
            [
                sparse.kron(sparse.eye(n), np.ones((1, k))),
                sparse.kron(np.ones((1, n)), sparse.eye(k)),
            ]
        ),
        b_eq=np.r_[np.ones(n), sizes],
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert solution.status == 0
    return -solution.fun


def asw(D, sizes, **options):
    return silhouette_upper_bound(D, metric="precomputed", cluster_sizes=sizes, **options)


def macro(D, sizes, **options):
    return macro_silhouette_upper_bound(D, sizes, metric="precomputed", **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7, 8])
def test_no_clustering_of_these_sizes_exceeds_the_bounds(n, kind):
    D = matrix(n, kind)
    slack = numerical_slack(n)
    for sizes in size_lists(n):
        alike = [(a, b) for of, a, b in clusterings(n, kind) if of == sizes]
        best_asw, best_macro = (max(scores) for scores in zip(*alike, strict=True))
        result = silhouette_bounds(D, metric="precomputed", cluster_sizes=list(sizes)).sized
        assert best_asw <= result.asw + slack
        assert best_macro <= result.macro + slack
        assert result.asw <= result.asw_rearrangement + 1e-12
        assert result.macro <= result.macro_rearrangement + 1e-12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [3, 5, 7])
def test_the_assignment_is_the_best_of_all(n, kind):
    D = matrix(n, kind)
    for sizes in size_lists(n):
        places = [cluster for cluster, size in enumerate(sizes) for _ in range(size)]
        table = table_of(oracles.exact(D), sizes)
        average, of_means = Fraction(0), Fraction(0)
        for placed in set(permutations(places)):
            scores = [table[i][c] for i, c in enumerate(placed)]
            average = max(average, sum(scores) / Fraction(n))
            shares = [s / sizes[c] for s, c in zip(scores, placed, strict=True)]
            of_means = max(of_means, sum(shares) / Fraction(len(sizes)))
        assert asw(D, sizes) == pytest.approx(float(average), abs=1e-12)
        assert macro(D, sizes) == pytest.approx(float(of_means), abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [[30, 30], [20, 20, 20], [40, 15, 4, 1], [2] * 30, [5, 3, 52]])
def test_the_assignment_is_that_of_linear_programming(sizes, kind):
    D = matrix(60, kind)
    assert asw(D, sizes) == pytest.approx(best_by_linear_programming(D, sizes, False), abs=1e-8)
    assert macro(D, sizes) == pytest.approx(best_by_linear_programming(D, sizes, True), abs=1e-8)


def test_more_points_than_are_solved_exactly(monkeypatch):
    sizes = [500, 300, 90, 10]
    assert sum(sizes) > transport.EXACT_POINTS
    X, _ = blobs(sizes, 3, 2, gap=2.0)
    result = silhouette_bounds(X, cluster_sizes=sizes).sized
    D = oracles.distances(X, np.float64)
    for bound, gap, of_means in (
        (result.asw, result.asw_gap, False),
        (result.macro, result.macro_gap, True),
    ):
        best = best_by_linear_programming(D, sizes, of_means)
        assert 0 <= gap <= sized.ASSIGNMENT_GAP
        assert best - 1e-9 <= bound <= best + gap + 1e-9
    monkeypatch.setattr(sized, "TABLE_ROWS", 64)  # in many blocks
    again = silhouette_bounds(X, cluster_sizes=sizes).sized
    assert again.asw == pytest.approx(result.asw, abs=2e-6)
    assert again.macro == pytest.approx(result.macro, abs=2e-6)
    assert again.macro_rearrangement == pytest.approx(result.macro_rearrangement, abs=1e-14)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [2, 5, 8, 60, 200])
def test_the_search_agrees_with_the_exact_solution(n, kind, monkeypatch):
    D = matrix(n, kind)
    lists = size_lists(n) if n <= 8 else [(n // 2, n - n // 2), (1, 2, 3, n - 6), (2,) * (n // 2)]
    exact = [(asw(D, sizes), macro(D, sizes)) for sizes in lists]
    monkeypatch.setattr(transport, "EXACT_POINTS", 0)
    for sizes, values in zip(lists, exact, strict=True):
        for found, best in zip((asw(D, sizes), macro(D, sizes)), values, strict=True):
            assert best - 1e-12 <= found <= best + 2e-6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [[2, 2], [5, 3], [2, 2, 2, 2, 2], [40, 15, 5], [130, 120, 10, 7]])
def test_the_rearrangement_is_that_of_the_reference_package(sizes, kind):
    D = matrix(sum(sizes), kind)
    if kind in ("ties", "zeros"):
        D = D + 0.5 * (1 - np.eye(len(D)))  # it divides by the distances
    expected = reference.upper_bound(D, sizes)
    assert asw(D, sizes, method="rearrangement") == pytest.approx(expected, abs=1e-13)
    expected = reference.upper_bound_macro_silhouette(D, sizes)
    assert macro(D, sizes, method="rearrangement") == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine"])
def test_three_blobs(metric):
    sizes = [300, 50, 20]
    X, labels = blobs(sizes, 5, 3)
    values = silhouette_samples(pairwise_distances(X, metric=metric), labels, metric="precomputed")
    true_macro = np.mean([values[labels == c].mean() for c in range(3)])
    assignment = macro_silhouette_upper_bound(X, sizes, metric=metric)
    rearrangement = macro_silhouette_upper_bound(X, sizes, metric=metric, method="rearrangement")
    assert true_macro <= assignment < rearrangement - 1e-3
    bounds = [
        silhouette_upper_bound(X, metric=metric, cluster_sizes=sizes, method=m) for m in METHODS
    ]
    assert values.mean() <= bounds[0] < bounds[1]
    unconstrained = silhouette_upper_bound(X, metric=metric, min_cluster_size=20)
    assert bounds[1] <= unconstrained + 1e-14


def test_a_clustering_that_attains_its_bounds():
    # Two places, three points at each: every silhouette is 1.
    X = [[0.0], [0.0], [0.0], [4.0], [4.0], [4.0]]
    for method in METHODS:
        assert silhouette_upper_bound(X, cluster_sizes=[3, 3], method=method) == 1.0
        assert macro_silhouette_upper_bound(X, [3, 3], method=method) == 1.0
    # The optimum of these six points, found by trying all clusterings, has two clusters of three.
    D = np.abs(oracles.X6 - oracles.X6.T)
    expected = max(np.mean(oracles.silhouettes(D, p)) for p in oracles.partitions(6, 3))
    assert asw(D, [3, 3]) == pytest.approx(expected, abs=1e-14)
    assert macro(D, [3, 3]) == pytest.approx(expected, abs=1e-14)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 12), min_size=2, max_size=6), st.data())
def test_what_changes_nothing(sizes, data):
    n = sum(sizes)
    X = np.random.default_rng(n).standard_normal((n, 2))
    result = silhouette_bounds(X, cluster_sizes=sizes).sized
    shuffled = data.draw(st.permutations(sizes))
    assert silhouette_bounds(X, cluster_sizes=shuffled).sized == result
    labels = np.array(data.draw(st.permutations(np.repeat(np.arange(len(sizes)), sizes))))
    assert silhouette_bounds(X, labels=labels).sized == result
    order = data.draw(st.permutations(range(n)))
    moved = silhouette_bounds(X[order] * 8, cluster_sizes=sizes).sized
    assert moved.asw == pytest.approx(result.asw, abs=1e-12)
    assert moved.macro == pytest.approx(result.macro, abs=1e-12)
    assert moved.macro_rearrangement == pytest.approx(result.macro_rearrangement, abs=1e-12)


@pytest.mark.parametrize(
    "labels",
    [
        ["b", "a", "b", "b", "c", "a"],
        [-1, 7, -1, -1, -5, 7],
        np.array([2.5, 0.0, 2.5, 2.5, -1.0, 0.0]),
        np.array([9, 8, 9, 9, 0, 8], np.uint8),
        ("x", "y", "x", "x", "", "y"),
    ],
)
def test_labels_stand_for_their_sizes(labels):
    sizes = [3, 2, 1]
    X = oracles.X6
    for method in METHODS:
        expected = silhouette_upper_bound(X, cluster_sizes=sizes, method=method)
        assert silhouette_upper_bound(X, labels=labels, method=method) == expected
        both = silhouette_upper_bound(X, cluster_sizes=[1, 3, 2], labels=labels, method=method)
        assert both == expected
        expected = macro_silhouette_upper_bound(X, sizes, method=method)
        assert macro_silhouette_upper_bound(X, labels=labels, method=method) == expected
        assert macro_silhouette_upper_bound(X, sizes, labels=labels, method=method) == expected
    result = silhouette_bounds(X, labels=labels)
    assert result.sized == silhouette_bounds(X, cluster_sizes=sizes).sized


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, 10, 15])
def test_equal_sizes_leave_nothing_to_assign(size):
    D = matrix(30, "uniform")
    sizes = [size] * (30 // size)
    expected = np.mean(table_of(D, [size]))
    for method in METHODS:
        for function in (asw, macro):
            assert function(D, sizes, method=method) == pytest.approx(expected, abs=1e-13)
    assert (expected == 0) == (size == 1)


def test_a_cluster_of_one_point_scores_zero():
    X, _ = blobs([1, 9], 2, 4)
    D = oracles.distances(X, np.float64)
    reached = np.sort([oracles.point_bound(D, i, 9, 9) for i in range(10)])[1:]
    assert silhouette_upper_bound(X, cluster_sizes=[1, 9]) == pytest.approx(reached.sum() / 10)
    assert macro_silhouette_upper_bound(X, [1, 9]) == pytest.approx(reached.mean() / 2)
    for method in METHODS:
        assert silhouette_upper_bound(X, cluster_sizes=[1] * 10, method=method) == 0.0
        assert macro_silhouette_upper_bound(X, [1] * 10, method=method) == 0.0
        assert macro_silhouette_upper_bound(np.zeros((6, 2)), [4, 2], method=method) == 0.0


def test_sized_bounds_are_those_of_the_single_functions():
    sizes = [7, 40, 7, 20, 1]
    X, labels = blobs(sizes, 3, 5)
    result = silhouette_bounds(X, cluster_sizes=sizes)
    assert result.sized.cluster_sizes == (40, 20, 7, 7, 1)
    assert result.sized.asw == silhouette_upper_bound(X, cluster_sizes=sizes)
    assert result.sized.macro == macro_silhouette_upper_bound(X, sizes)
    weaker = silhouette_upper_bound(X, cluster_sizes=sizes, method="rearrangement")
    assert result.sized.asw_rearrangement == weaker
    weaker = macro_silhouette_upper_bound(X, sizes, method="rearrangement")
    assert result.sized.macro_rearrangement == weaker
    assert 0 <= result.sized.asw_gap <= 1e-12
    assert 0 <= result.sized.macro_gap <= 1e-12
    # The other bounds are as without sizes.
    without = silhouette_bounds(X)
    assert without.sized is None
    assert np.array_equal(result.curve(), without.curve())
    assert np.array_equal(result.samples, without.samples)
    three = silhouette_bounds(X, labels=labels, n_clusters=5, min_cluster_size=[1, 3])
    assert three.sized == result.sized
    assert three.curve().shape == (75 // 5,)


def test_results_for_fixed_sizes_explain_themselves():
    X = np.random.default_rng(6).random((30, 2))
    result = silhouette_bounds(X, cluster_sizes=[2, 20, 8])
    line = next(line for line in repr(result).splitlines() if "20, 8, 2" in line)
    assert line == (
        "  clusters of 20, 8, 2 points: average silhouette width <= "
        f"{math.ceil(result.sized.asw * 1e6) / 1e6:.6f}, mean of cluster means <= "
        f"{math.ceil(result.sized.macro * 1e6) / 1e6:.6f}"
    )
    many = silhouette_bounds(X, cluster_sizes=[7, 1, 6, 2, 5, 3, 2, 2, 2])
    assert "clusters of 7, 6, 5, 3, 2, 2, 2, 2, ... points" in repr(many)
    assert "mean of cluster means" not in repr(silhouette_bounds(X))


@pytest.mark.parametrize("method", METHODS)
def test_certified_bounds_are_a_little_higher(method):
    sizes = [40, 17, 3]
    X, _ = blobs(sizes, 3, 7)
    for function in (
        lambda **options: silhouette_upper_bound(X, cluster_sizes=sizes, **options),
        lambda **options: macro_silhouette_upper_bound(X, sizes, **options),
    ):
        plain = function(method=method)
        assert plain < function(method=method, certify=True) < plain + 1e-11


N_MANY = 1500
MANY_SIZES = [*range(1, 54), N_MANY - 53 * 54 // 2]


@pytest.fixture(scope="module")
def many():
    """Points, and their bounds for many sizes, a search among them."""
    X = np.random.default_rng(8).standard_normal((N_MANY, 9)).astype(np.float32)
    return X, silhouette_bounds(X, cluster_sizes=MANY_SIZES).sized


def test_a_large_table_lies_in_a_file(many, monkeypatch):
    X, held = many
    paths = []

    class Watched(prepare.RowTable):
        def __init__(self, columns, path, n):
            super().__init__(columns, path, n)
            paths.append(path)

    monkeypatch.setattr(prepare, "RowTable", Watched)
    assert silhouette_bounds(X, cluster_sizes=MANY_SIZES).sized == held
    monkeypatch.setattr(prepare, "HELD_SHARE", 1 << 22)
    assert silhouette_bounds(X, cluster_sizes=MANY_SIZES).sized == held
    assert paths[0] is None
    assert paths[1].name == "table.npy"
    assert not paths[1].exists(), "it goes with the call"


def test_budget_and_threads_do_not_change_a_bit(many):
    X, whole = many
    plans = set()
    for memory in ("312MiB", "320MiB", "4GiB"):
        for workers in (1, 2, 3):
            with dask.config.set(num_workers=workers):
                result = silhouette_bounds(X, cluster_sizes=MANY_SIZES, memory=memory)
            plans.add((result.plan.panel_rows, result.plan.concurrency))
            assert result.sized == whole
    assert len({rows for rows, _ in plans}) > 1, "the budgets were to give different plans"
    alone = silhouette_bounds(X, cluster_sizes=MANY_SIZES, scheduler="synchronous")
    assert alone.sized == whole


@pytest.mark.cluster
def test_a_cluster_gives_the_same_bits(client, many, tmp_path):
    X, whole = many
    np.save(tmp_path / "x.npy", X)
    for given_X in (tmp_path / "x.npy", da.from_array(X, chunks=(400, 9))):
        found = silhouette_bounds(given_X, cluster_sizes=MANY_SIZES, scheduler=client)
        assert found.sized == whole
    found = macro_silhouette_upper_bound(X, MANY_SIZES, scheduler=client)
    assert found == whole.macro
