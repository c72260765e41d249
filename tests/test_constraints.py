"""Bounds for a number of clusters and for fixed cluster sizes, against all clusterings."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement, permutations

import dask
import dask.array as da
import numpy as np
import oracles
import pytest
import silhouette_upper_bound as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog
from sklearn.metrics import pairwise_distances, silhouette_samples

from silchunk import (
    InputError,
    macro_silhouette_upper_bound,
    numerical_slack,
    prepare,
    silhouette_bounds,
    silhouette_upper_bound,
    silhouette_upper_bound_samples,
    sized,
    transport,
)
from silchunk.errors import InputNotFoundError

KINDS = ["uniform", "ties", "zeros", "line"]
METHODS = ["assignment", "rearrangement"]


@cache
def matrix(n, kind):
    """Distances with few digits, so that their rational numbers are short."""
    rng = np.random.default_rng(100 * n + KINDS.index(kind))
    if kind == "line":
        points = np.round(rng.standard_normal(n) + 5 * (np.arange(n) % 3), 2)
        D = np.abs(points[:, None] - points)
    else:
        D = rng.integers(1, 1024, (n, n)) / 1024
        D = rng.integers(0, 4, (n, n)) / 1.0 if kind == "ties" else D
        D = D * (rng.random((n, n)) < 0.3) if kind == "zeros" else D
    D = np.triu(D, 1)
    return D + D.T


@cache
def clusterings(n, kind):
    """(ascending sizes, ASW, macro silhouette) of every clustering, in rational numbers."""
    rational = oracles.exact(matrix(n, kind))
    found = []
    for labels in oracles.partitions(n):
        values = oracles.silhouettes(rational, labels)
        members = [[v for v, of in zip(values, labels, strict=True) if of == c] for c in {*labels}]
        macro = sum(sum(cluster) / len(cluster) for cluster in members) / len(members)
        found.append((tuple(sorted(map(len, members))), sum(values) / n, macro))
    return found


@cache
def size_lists(n):
    """All lists of two or more cluster sizes, each ascending."""
    return [
        sizes
        for k in range(2, n + 1)
        for sizes in combinations_with_replacement(range(1, n), k)
        if sum(sizes) == n
    ]


def table_of(D, sizes):
    """What each point reaches in a cluster of each size (n, K)."""
    return [[oracles.point_bound(D, i, size, size) for size in sizes] for i in range(len(D))]


def quick_table(D, sizes):
    """The same by cumulative sums, for more points."""
    n = len(D)
    D = np.sort(D, axis=1)
    assert (D[:, 0] == 0).all()
    sums = np.cumsum(D, axis=1)
    table = np.zeros((n, len(sizes)))
    for j, size in enumerate(sizes):
        if size > 1:
            own = sums[:, size - 1] / (size - 1)
            table[:, j] = 1 - own / (D[:, size:].sum(axis=1) / (n - size))
    return table


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


def blobs(sizes, d, seed, gap=6.0):
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    X = rng.standard_normal((len(labels), d))
    return X + gap * rng.standard_normal((len(sizes), d))[labels], labels


def asw(D, sizes, **options):
    return silhouette_upper_bound(D, metric="precomputed", cluster_sizes=sizes, **options)


def macro(D, sizes, **options):
    return macro_silhouette_upper_bound(D, sizes, metric="precomputed", **options)


def test_the_helpers_know_all_clusterings():
    assert len(clusterings(5, "uniform")) == 51  # the Bell number of 5, less one
    assert {sizes for sizes, *_ in clusterings(6, "ties")} == set(size_lists(6))
    D = matrix(7, "line")
    np.testing.assert_allclose(quick_table(D, [1, 2, 4]), table_of(D, [1, 2, 4]), atol=1e-14)


# A number of clusters.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7])
def test_no_clustering_into_so_many_clusters_exceeds_the_bound(n, kind):
    D = matrix(n, kind)
    for k in range(2, n + 1):
        for m in range(1, n // k + 1):
            bound = silhouette_upper_bound(
                D, metric="precomputed", n_clusters=k, min_cluster_size=m
            )
            scores = [
                s for sizes, s, _ in clusterings(n, kind) if len(sizes) == k and sizes[0] >= m
            ]
            assert max(scores) <= bound + numerical_slack(n)
            rational = oracles.exact(D)
            exact = sum(oracles.point_bound(rational, i, m, n - (k - 1) * m) for i in range(n)) / n
            assert abs(float(exact) - bound) <= numerical_slack(n)


@pytest.mark.parametrize("kind", ["uniform", "line"])
@pytest.mark.parametrize("n", [40, 130, 600])
def test_bounds_for_a_number_of_clusters_are_their_definition(n, kind):
    D = matrix(n, kind)
    for k in (2, 3, 5, n):
        sizes = sorted({1, max(1, n // (2 * k)), n // k})
        expected = {m: definition(D, m, n - (k - 1) * m) for m in sizes}
        samples = silhouette_upper_bound_samples(
            D, metric="precomputed", n_clusters=k, min_cluster_size=sizes
        )
        np.testing.assert_allclose(samples.T, list(expected.values()), rtol=0, atol=1e-14)
        for m in sizes:
            bound = silhouette_upper_bound(
                D, metric="precomputed", n_clusters=k, min_cluster_size=m
            )
            assert bound == pytest.approx(expected[m].mean(), abs=1e-14)


def definition(D, smallest, largest):
    """Point bounds over sizes in [smallest, largest], by the oracle or, beyond it, by sums."""
    n = len(D)
    if n <= 40:
        return np.array([oracles.point_bound(D, i, smallest, largest) for i in range(n)])
    return quick_table(D, range(smallest, largest + 1)).max(axis=1).clip(0)


@pytest.mark.parametrize("k", [2, 3, 4, 7, 50, 100])
def test_the_curve_for_a_number_of_clusters(k):
    n = 100
    X, _ = blobs([50, 30, 20], 3, k)
    result = silhouette_bounds(X, n_clusters=k)
    curve = result.curve()
    assert curve.shape == (n // k,)
    assert (np.diff(curve) <= 0).all()
    for m in range(1, n // k + 1):
        one = silhouette_upper_bound(X, n_clusters=k, min_cluster_size=m)
        assert result.at(m) == curve[m - 1] == one
    D = oracles.distances(X, np.float64)
    expected = [definition(D, m, n - (k - 1) * m).mean() for m in range(1, n // k + 1)]
    np.testing.assert_allclose(curve, expected, rtol=0, atol=1e-13)
    unconstrained = silhouette_bounds(X).curve()
    if k == 2:
        assert np.array_equal(curve, unconstrained)
    else:
        assert (curve <= unconstrained[: n // k]).all()
        assert (curve < unconstrained[: n // k]).any() or n // k == 1


def test_more_clusters_leave_smaller_ranges():
    # Two groups of 60, each of which has all distances alike, as many features have it.
    X = np.random.default_rng(0).standard_normal((120, 50))
    X[:60, 0] += 15
    bounds = [silhouette_upper_bound(X, n_clusters=k, min_cluster_size=20) for k in range(2, 7)]
    assert (np.diff(bounds) <= 0).all()
    assert bounds[-1] < bounds[0] - 0.03  # not six of 20
    # n clusters are all of one point.
    assert silhouette_upper_bound(X, n_clusters=120) <= silhouette_upper_bound(X)
    assert silhouette_upper_bound([[0.0], [1.0], [5.0]], n_clusters=3) == 0.0


def test_results_for_a_number_of_clusters_explain_themselves():
    X, labels = blobs([10, 10, 10], 2, 1)
    result = silhouette_bounds(X, n_clusters=3, min_cluster_size=[2, 10])
    assert result.n_clusters == 3
    assert result.samples.shape == (30, 2)
    several = silhouette_upper_bound_samples(X, n_clusters=3, min_cluster_size=[2, 10])
    assert np.array_equal(result.samples, several)
    assert np.array_equal(result.asw, [result.at(2), result.at(10)])
    assert result.samples.mean(axis=0) == pytest.approx(result.asw, abs=1e-14)
    assert "3 clusters of 10 or more points: average silhouette width <=" in repr(result)
    score = silhouette_samples(X, labels).mean()
    assert score <= result.at(10)
    assert result.wcre(score) == pytest.approx((result.at(2) - score) / result.at(2))
    assert result.wcre(score, 10) == pytest.approx((result.at(10) - score) / result.at(10))
    with pytest.raises(InputError, match="no cluster smaller than asked for, in 3 clusters"):
        result.wcre(result.at(10) + 1e-3, 10)
    for m in (0, 11):
        with pytest.raises(InputError, match=f"from 1 to n/3 = 10 .* all must fit in; got {m}"):
            result.at(m)
    with pytest.raises(InputError, match="takes integers; got 2.0"):
        result.at(2.0)


# Fixed sizes.


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


# Refusals.


@pytest.fixture(scope="module")
def unread(tmp_path_factory):
    """Six points that no pass over the data would let through."""
    path = tmp_path_factory.mktemp("unread") / "x.npy"
    np.save(path, np.full((6, 2), np.nan))
    return path


def test_the_points_are_bad_where_they_are_read(unread):
    with pytest.raises(InputError, match="X has nan at row 0, column 0"):
        silhouette_upper_bound(unread, cluster_sizes=[4, 2])


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([4, 3], "cluster_sizes add up to 7, but X has 6 points"),
        ([4, 1], "cluster_sizes add up to 5, but X has 6 points"),
        ([2**62, 2**62], "add up to 9,223,372,036,854,775,808, but X has 6"),
        ([6], "cluster_sizes has 1 size; a silhouette needs two clusters"),
        ([], "cluster_sizes has 0 size"),
        ([6, 0], "no cluster can have 0 points"),
        ([7, -1], "no cluster can have -1 points"),
        ([4.0, 2.0], "cluster_sizes takes integers; got 4.0"),
        (np.array([4.0, 2.0]), "cluster_sizes takes integers; got 4.0"),
        ([5, True], "cluster_sizes takes integers; got True"),
        ([5, np.True_], "cluster_sizes takes integers; got .*True"),
        (["4", "2"], "cluster_sizes takes integers; got '4'"),
        ([4, None], "cluster_sizes takes integers; got None"),
        (6, "cluster_sizes must be a list of integers; got 6"),
        ("42", "cluster_sizes must be a list of integers; got '42'"),
        ([[4, 2]], "cluster_sizes must be a list of integers"),
        ({4, 2}, "cluster_sizes must be a list of integers"),
    ],
)
@pytest.mark.parametrize("method", METHODS)
def test_wrong_cluster_sizes(sizes, message, method, unread):
    with pytest.raises(InputError, match=message):
        silhouette_upper_bound(unread, cluster_sizes=sizes, method=method)
    with pytest.raises(InputError, match=message):
        macro_silhouette_upper_bound(unread, sizes, method=method)
    with pytest.raises(InputError, match=message):
        silhouette_bounds(unread, cluster_sizes=sizes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": [0, 1, 0, 1, 0]}, r"labels must have one entry for each of the 6 .*\(5,\)"),
        ({"labels": [[0]] * 3 + [[1]] * 3}, r"each of the 6 points; their shape is \(6, 1\)"),
        ({"labels": [None, 0, 0, 0, 1, 1]}, "labels have None or NaN"),
        ({"labels": [3] * 6}, "labels name one cluster only"),
        (
            {"labels": [0, 0, 0, 1, 1, 1], "cluster_sizes": [4, 2]},
            "cluster_sizes 4, 2 are not those of the labels, which have 3, 3",
        ),
        (
            {"labels": [0, 1, 2, 3, 4, 5], "cluster_sizes": [2, 1, 1, 1, 1]},
            "2, 1, 1, 1, 1 are not those of the labels, which have 1, 1, 1, 1, 1, 1",
        ),
    ],
)
def test_wrong_labels(options, message, unread):
    for function in (silhouette_upper_bound, macro_silhouette_upper_bound, silhouette_bounds):
        with pytest.raises(InputError, match=message):
            function(unread, **options)


def test_labels_that_are_a_file(unread, tmp_path):
    np.save(tmp_path / "labels.npy", list("aaabbb"))
    expected = macro_silhouette_upper_bound(oracles.X6, [3, 3])
    for path in (tmp_path / "labels.npy", str(tmp_path / "labels.npy")):
        assert macro_silhouette_upper_bound(oracles.X6, labels=path) == expected
    with pytest.raises(InputNotFoundError, match="labels: there is no file 'aabbcc'"):
        macro_silhouette_upper_bound(unread, labels="aabbcc")
    (tmp_path / "labels.npy").write_text("a b c")
    with pytest.raises(InputError, match=r"is not a readable \.npy file"):
        macro_silhouette_upper_bound(unread, labels=tmp_path / "labels.npy")


def test_neither_sizes_nor_labels(unread):
    with pytest.raises(InputError, match="give cluster_sizes, a list of how many points"):
        macro_silhouette_upper_bound(unread)


@pytest.mark.parametrize("method", ["best", "Assignment", None, ""])
def test_unknown_methods(method, unread):
    message = "method must be one of assignment, rearrangement; got"
    with pytest.raises(InputError, match=message):
        silhouette_upper_bound(unread, cluster_sizes=[4, 2], method=method)
    with pytest.raises(InputError, match=message):
        macro_silhouette_upper_bound(unread, [4, 2], method=method)


@pytest.mark.parametrize("given_as", [{"cluster_sizes": [4, 2]}, {"labels": [0, 0, 0, 0, 1, 1]}])
@pytest.mark.parametrize(
    "further",
    [
        {"min_cluster_size": 2},
        {"min_cluster_size": [1]},
        {"min_cluster_size": [1, 2]},
        {"n_clusters": 2},
        {"sample_size": 4},
        {"sample_size": 4, "n_clusters": 2},
    ],
)
def test_fixed_sizes_leave_nothing_else_to_ask_for(given_as, further, unread):
    with pytest.raises(InputError, match="with cluster_sizes .*leave these out"):
        silhouette_upper_bound(unread, **given_as, **further)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_clusters": 0}, "n_clusters must be from 2 to n = 6.*; got 0"),
        ({"n_clusters": 1}, "n_clusters must be from 2 to n = 6.*; got 1"),
        ({"n_clusters": 7}, "n_clusters must be from 2 to n = 6.*; got 7"),
        ({"n_clusters": -2}, "n_clusters must be from 2 to n = 6.*; got -2"),
        ({"n_clusters": 2.5}, "n_clusters takes an integer; got 2.5"),
        ({"n_clusters": 3.0}, "n_clusters takes an integer; got 3.0"),
        ({"n_clusters": True}, "n_clusters takes an integer; got True"),
        ({"n_clusters": "3"}, "n_clusters takes an integer; got '3'"),
        ({"n_clusters": [3]}, r"n_clusters takes an integer; got \[3\]"),
        (
            {"n_clusters": 3, "min_cluster_size": 3},
            "from 1 to n/3 = 2 for 6 points, since all must fit in; got 3",
        ),
        (
            {"n_clusters": 4, "min_cluster_size": [1, 2]},
            "from 1 to n/4 = 1 for 6 points, since all must fit in; got 2",
        ),
        ({"n_clusters": 3, "min_cluster_size": []}, "min_cluster_size is an empty list"),
    ],
)
def test_wrong_numbers_of_clusters(options, message, unread):
    for function in (silhouette_upper_bound, silhouette_upper_bound_samples, silhouette_bounds):
        with pytest.raises(InputError, match=message):
            function(unread, **options)


def test_integers_of_numpy_are_integers():
    X = oracles.X6
    for integer in (np.int32(3), np.uint8(3)):
        assert silhouette_upper_bound(X, n_clusters=integer) == silhouette_upper_bound(
            X, n_clusters=3
        )
    expected = silhouette_upper_bound(X, cluster_sizes=[4, 2])
    assert silhouette_upper_bound(X, cluster_sizes=np.array([4, 2], np.uint8)) == expected
    assert silhouette_upper_bound(X, cluster_sizes=(np.int64(2), 4)) == expected


def test_labels_need_no_order_but_have_to_tell_clusters_apart():
    expected = silhouette_upper_bound(oracles.X6, cluster_sizes=[3, 3])
    assert silhouette_upper_bound(oracles.X6, labels=[1j, 1j, 1, 1, "a", "a"]) != expected
    assert silhouette_upper_bound(oracles.X6, labels=[-1, -1, -1, "a", "a", "a"]) == expected
    for labels, message in (
        ([[1], [1, 2], 1, 1, 1, 1], "cannot be read as one label for each point"),
        (np.array([{}] * 6), "must be hashable"),
        ([0.0, 0.0, np.nan, 1.0, 1.0, 1.0], "labels have None or NaN"),
    ):
        with pytest.raises(InputError, match=message):
            silhouette_upper_bound(oracles.X6, labels=labels)


def test_an_array_of_sizes_beside_fixed_ones():
    with pytest.raises(InputError, match="follow from them"):
        silhouette_upper_bound(oracles.X6, cluster_sizes=[3, 3], min_cluster_size=np.array([1, 2]))
