"""Fast paths of the kernels against plain ones and the definition."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import silchunk
from silchunk import numerical_slack, reduction, rounding
from silchunk.constraints import SizeRange
from silchunk.kernels import bound, curve, nearest
from silchunk.kernels.bound import BLOCK
from silchunk.kernels.exponential import LARGEST, exponentials

KINDS = ("gaussian", "blobs", "duplicates", "ties", "uniform", "spread", "outlier", "far")


def rows_of(kind, r, n, dtype, seed):
    """Rows of distances from one point each to n points; the point itself is among them."""
    rng = np.random.default_rng(seed)
    if kind == "gaussian":
        X = rng.standard_normal((n, 8))
    elif kind == "blobs":
        X = rng.uniform(-9, 9, (7, 5))[rng.integers(7, size=n)] + rng.standard_normal((n, 5))
    elif kind == "duplicates":
        X = rng.standard_normal((9, 3))[rng.integers(9, size=n)]
    elif kind == "ties":
        X = rng.integers(0, 4, (n, 2)).astype(float)
    elif kind == "uniform":
        X = rng.random((n, 2))
    elif kind == "spread":
        X = np.exp(6 * rng.standard_normal((n, 2)))
    elif kind == "outlier":  # best off with all others but one
        X = rng.standard_normal((n, 3))
        X[n // 2] = 1e4
    else:  # two thirds far away: the best size is beyond the half
        X = rng.standard_normal((n, 2)) + 40 * (rng.random((n, 1)) < 0.33)
    D = np.sqrt(((X[:r, None] - X[None]) ** 2).sum(axis=2)).astype(dtype)
    assert (D.min(axis=1) == 0).all()
    return D


def quotients(row):
    """q(k), k = 0 … n-1, of a sorted row, in extended precision; 1 where it is not defined."""
    n = len(row)
    row = row.astype(np.longdouble)
    own = np.cumsum(row)
    rest = np.cumsum(row[::-1])[::-1]
    k = np.arange(2, n)
    q = np.ones(n, np.longdouble)
    if row[-1] > 0:
        q[2:] = (own[k - 1] / (k - 1)) / (rest[k] / (n - k))
    return q


@pytest.fixture
def split_from_four(monkeypatch):
    """Split rows of any length."""
    monkeypatch.setattr(reduction, "SPLIT_FROM", 4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "n_clusters"), [(40, 2), (700, 2), (701, 3), (3000, 2), (3001, 5)])
def test_rows_sorted_in_part_equal_rows_sorted_whole(kind, n, n_clusters, dtype, split_from_four):
    D = rows_of(kind, 20, n, dtype, n)
    sorted_ = np.sort(D, axis=1)
    q = [quotients(row) for row in sorted_]
    slack = numerical_slack(n)
    for smallest in {1, 2, 1 + n // 50, 1 + n // 9}:
        largest = n - (n_clusters - 1) * smallest
        wanted = reduction.Wanted(SizeRange((smallest,), n_clusters))
        bounds = np.empty((20, 1))
        wanted.reduce(D.copy(), bounds, np.empty((20, 0)), np.empty(0))
        plain = np.empty(20)
        bound.point_bounds(bound.whole(sorted_), smallest, largest, plain)
        expected = [1 - float(row[smallest : largest + 1].min()) for row in q]
        np.testing.assert_allclose(bounds[:, 0], expected, rtol=0, atol=slack)
        np.testing.assert_allclose(bounds[:, 0], plain, rtol=0, atol=slack)
    length = n // n_clusters
    sizes = tuple(range(1, length + 1))
    wanted = reduction.Wanted(SizeRange(sizes, n_clusters), curve=True)
    bounds, total = np.empty((20, length)), np.zeros(length)
    wanted.reduce(D.copy(), bounds, np.empty((20, 0)), total)
    expected = [
        [1 - float(row[m : n - (n_clusters - 1) * m + 1].min()) for m in sizes] for row in q
    ]
    np.testing.assert_allclose(bounds, expected, rtol=0, atol=slack)
    np.testing.assert_allclose(total, bounds.sum(axis=0), rtol=1e-13)


@pytest.mark.parametrize("fitting", [0.5, 1, 3, 7])
@pytest.mark.parametrize("curve", [False, True])
def test_rows_of_which_few_fit_into_the_cache(fitting, curve, split_from_four, monkeypatch):
    D = rows_of("gaussian", 20, 700, np.float64, 0)
    wanted = reduction.Wanted(SizeRange((1, 4), 2), curve=curve)
    results = []
    for cached in (reduction.CACHED_BYTES, int(fitting * D[0].nbytes)):
        monkeypatch.setattr(reduction, "CACHED_BYTES", cached)
        bounds, total = np.empty((20, 2)), np.zeros(350 * curve)
        wanted.reduce(D.copy(), bounds, np.empty((20, 0)), total)
        results.append((bounds, total))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])


def test_what_is_below_needs_room():
    D = rows_of("gaussian", 20, 700, np.float64, 0)
    with pytest.raises(ValueError, match="values has shape"):
        nearest.split(D, 0.5, np.empty((3, 700)))


def test_most_rows_are_sorted_in_part():
    """The path that is meant to be fast is taken, and left where it does not pay."""
    whole = {}
    for kind in KINDS:
        D = rows_of(kind, 64, 9000, np.float32, 1)
        near = nearest.split(D, reduction.NEAREST_SHARE, np.empty_like(D))
        done = bound.point_bounds(near, 1, 8999, np.empty(64))
        whole[kind] = done < 64
    assert not whole["gaussian"]
    assert not whole["blobs"]
    assert whole["far"] or whole["outlier"]


@settings(max_examples=200, deadline=None)
@given(
    values=st.lists(
        st.one_of(
            st.floats(0, 10, width=32),
            st.sampled_from([0.0, 1.0, 2.0**-149, 3e38]),
        ),
        min_size=1,
        max_size=120,
    ),
    repeat=st.integers(1, 9),
    share=st.floats(0.05, 0.95),
    data=st.data(),
)
def test_what_is_told_of_a_part_holds_for_the_whole(values, repeat, share, data):
    row = np.array([0.0, *(values * repeat)], np.float32)
    n = len(row)
    order = data.draw(st.permutations(range(n))) if n < 60 else np.arange(n)
    D = row[np.array(order)][None].copy()
    near = nearest.split(D, share, np.empty_like(D))
    held = int(near.held[0])
    below = np.sort(D[0][D[0] < near.edges[0]])
    assert held == len(below)
    assert np.array_equal(near.values[0, :held], below)
    assert near.farthest[0] == D.max()
    rest = D[0][near.edges[0] <= D[0]].astype(np.float64)
    assert near.beyond[0] == pytest.approx(rest.sum(), rel=1e-14)
    if n < 3 or not row.any():
        return
    q = quotients(np.sort(D[0]))
    smallest = data.draw(st.integers(1, n // 2))
    out = np.empty(1)
    if bound.point_bounds(near, smallest, n - smallest, out):
        exact = min(1.0, float(q[smallest : n - smallest + 1].min()))
        assert 1 - out[0] == pytest.approx(exact, abs=numerical_slack(n))
    bounds, total = np.empty((1, n // 2)), np.zeros(n // 2)
    sizes = np.arange(1, n // 2 + 1)
    if curve.constraint_curve(near, sizes, 2, bounds, total):
        exact_curve = [min(1.0, float(q[m : n - m + 1].min())) for m in sizes]
        np.testing.assert_allclose(1 - bounds[0], exact_curve, atol=numerical_slack(n))


@pytest.mark.parametrize("n", [BLOCK - 1, BLOCK, BLOCK + 1, 4 * BLOCK, 5 * BLOCK + 7])
def test_every_size_of_a_row(n):
    for kind in KINDS:
        row = np.sort(rows_of(kind, 1, n, np.float64, n), axis=1)
        sizes = np.arange(1, n)
        out = np.empty((1, n - 1))
        bound.size_bounds(bound.whole(row), sizes, out)
        expected = 1 - np.minimum(quotients(row[0])[1:], 1).astype(float)
        np.testing.assert_allclose(out[0], expected, rtol=0, atol=numerical_slack(n))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gaussian", "blobs", "far"])
def test_long_rows_through_the_public_functions(kind):
    n = 9000
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n, 3))
    if kind == "blobs":
        X += 20 * rng.integers(0, 5, (n, 1))
    if kind == "far":
        X += 60 * (rng.random((n, 1)) < 0.3)
    X = X.astype(np.float32)
    result = silchunk.silhouette_bounds(X, min_cluster_size=[1, 40, 3000])
    some = slice(0, n, 1500)
    D = np.sqrt(((X[some, None].astype(float) - X[None]) ** 2).sum(axis=2))
    for column, m in enumerate((1, 40, 3000)):
        one = silchunk.silhouette_upper_bound_samples(X, min_cluster_size=m)
        np.testing.assert_allclose(result.samples[:, column], one, rtol=0, atol=numerical_slack(n))
        assert result.at(m) == pytest.approx(one.mean(), abs=numerical_slack(n))
        exact = [1 - float(quotients(np.sort(row))[m : n - m + 1].min()) for row in D]
        np.testing.assert_allclose(one[some], exact, atol=2e-6)


def exact_sum(values):
    """Sum of an array of few distinct values, in rationals."""
    distinct, counts = np.unique(values, return_counts=True)
    pairs = zip(distinct.tolist(), counts.tolist(), strict=True)
    return sum(Fraction(value) * count for value, count in pairs)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_left_of_a_large_sum_is_no_proof(seed):
    """All but two distances are equal, so the rest beyond nearly all points is a difference of two
    sums that agree in most of their digits; the least quotient is there."""
    n = 60_000
    rng = np.random.default_rng(seed)
    e = float(rng.uniform(0.25, 0.3))
    row = np.full(n, e)
    row[0], row[1 : int(0.52 * n)], row[-1] = 0, np.nextafter(e, 0), e * (1 + 1e-7)

    def quotient(k):
        return exact_sum(row[1:k]) / (k - 1) / (exact_sum(row[k:]) / (n - k))

    # The point itself and its nearest neighbour do a little worse than all but the farthest.
    row[1] = float(quotient(n - 1) * exact_sum(row[2:]) / (n - 2)) * (1 + 1.3e-12)
    exact = 1 - min(quotient(2), quotient(n - 1))
    shuffled = row[None].copy()
    shuffled[0, 1:] = rng.permutation(row[1:])
    bounds = np.empty((1, 1))
    wanted = reduction.Wanted(SizeRange((1,)))
    wanted.reduce(shuffled, bounds, np.empty((1, 0)), np.empty(0))
    assert exact - Fraction(bounds[0, 0]) <= Fraction(numerical_slack(n))
    assert exact <= Fraction(rounding.certified(bounds, n, 0.0)[0, 0])


@pytest.mark.parametrize("factor", [0.0, 1.0, -1.0, 40.0, LARGEST, -LARGEST])
def test_exponentials_are_within_a_unit_in_the_last_place(factor):
    values = np.concatenate([np.linspace(0, 1, 10_007), np.geomspace(1e-300, 1, 1000)])
    found = np.empty_like(values)
    exponentials(values, factor, found)
    exact = np.exp((factor * values).astype(np.longdouble))
    assert (np.abs(found - exact) <= np.spacing(exact.astype(float))).all()
