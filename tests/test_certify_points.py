"""Certified bounds of points and of sampled rows, against exact distances."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import oracles
import pytest

from silchunk import (
    InputError,
    SilchunkWarning,
    macro_silhouette_upper_bound,
    silhouette_upper_bound,
    silhouette_upper_bound_samples,
    streaming,
)
from silchunk.bound_jobs import bound_job
from silchunk.constraints import size_range
from silchunk.prepare import Arguments, prepared
from silchunk.reduction import Wanted

# Points.

PROVEN = ("euclidean", "sqeuclidean", "manhattan", "chebyshev", "nan_euclidean")
PLACES = ("around zero", "far", "tiny", "near duplicates", "very close pairs", "one outlier")
N_POINTS = 8


def points_at(place, d, dtype):
    rng = np.random.default_rng([d, PLACES.index(place)])
    Z = rng.standard_normal((N_POINTS, d))
    twice = np.repeat(Z[: N_POINTS // 2], 2, axis=0)
    return {
        "around zero": lambda: Z,
        "far": lambda: 1e8 + Z * (100 if dtype == "float32" else 1),
        "tiny": lambda: Z * (1e-30 if dtype == "float32" else 1e-140),
        "near duplicates": lambda: twice + 1e-9 * Z,
        "very close pairs": lambda: np.r_[1e-18 * Z[1:], np.ones((1, d))],
        "one outlier": lambda: np.r_[Z[1:], np.full((1, d), 1e7)],
    }[place]().astype(dtype)


def squared_or_plain(X, metric):
    """Exact distances in rationals, squared where the metric takes a root of them."""
    X = [[None if np.isnan(v) else Fraction(float(v)) for v in row] for row in X]

    def measure(x, y):
        apart = [abs(a - b) for a, b in zip(x, y, strict=True) if None not in (a, b)]
        if metric == "manhattan":
            return sum(apart)
        if metric == "chebyshev":
            return max(apart)
        whole = Fraction(len(x), len(apart)) if metric == "nan_euclidean" else 1
        return whole * sum(v * v for v in apart)

    return [[measure(x, y) if x is not y else Fraction(0) for y in X] for x in X]


def has_root(metric):
    return metric in ("euclidean", "nan_euclidean")


def root(value):
    """√value to 80 digits."""
    if not value:
        return value
    shift = 540 + value.denominator.bit_length() - value.numerator.bit_length()
    shift += shift % 2
    scaled = (value.numerator << shift) // value.denominator if shift > 0 else None
    assert scaled is not None, "a number of more than 540 bits"
    return Fraction(math.isqrt(scaled), 2 ** (shift // 2))


def exact_points_bounds(X, metric, smallest, largest):
    table = squared_or_plain(X, metric)
    D = [[root(v) if has_root(metric) else v for v in row] for row in table]
    return [oracles.point_bound(D, i, smallest, largest) for i in range(len(D))]


points = pytest.mark.parametrize(
    ("place", "d", "dtype"),
    [(p, d, t) for p in PLACES for d in (1, 3, 40) for t in ("float32", "float64")],
)


def test_roots():
    assert root(Fraction(9, 4)) == Fraction(3, 2)
    for value in (Fraction(2), Fraction(1, 3), Fraction(2**300, 3), Fraction(1, 2**1000)):
        assert abs(root(value) ** 2 / value - 1) < Fraction(1, 10**78)


@points
@pytest.mark.parametrize("metric", PROVEN)
def test_errors_of_distances_are_proven_ones(metric, place, d, dtype):
    X = points_at(place, d, dtype)
    if metric == "nan_euclidean" and d == 3:
        X[::3, 1] = np.nan
    with prepared(X, Arguments(metric=metric, certify=True)) as job:
        computed = np.empty((N_POINTS, N_POINTS))
        assert job.panels.dtype == np.float64
        job.panels.read(0, N_POINTS, computed)
        relative = Fraction(job.relative_error)
    assert 0 < relative < Fraction(1, 10**13)
    for row, exact_row in zip(computed.tolist(), squared_or_plain(X, metric), strict=True):
        for value, exact in zip(row, exact_row, strict=True):
            # Squares compare without a root.
            power = 2 if has_root(metric) else 1
            assert (1 - relative) ** power * exact <= Fraction(value) ** power
            assert Fraction(value) ** power <= (1 + relative) ** power * exact


@points
@pytest.mark.parametrize("metric", PROVEN)
def test_bounds_of_points(metric, place, d, dtype):
    X = points_at(place, d, dtype)
    if metric == "nan_euclidean" and d == 3:
        X[::3, 1] = np.nan
    for m, largest in ((1, N_POINTS - 1), (3, N_POINTS - 3)):
        exact = exact_points_bounds(X, metric, m, largest)
        options = {"metric": metric, "min_cluster_size": m, "certify": True}
        samples = silhouette_upper_bound_samples(X, **options).tolist()
        for value, limit in zip(exact, samples, strict=True):
            assert value <= Fraction(limit) <= value + Fraction(1, 10**12)
        mean = sum(exact) / N_POINTS
        limit = Fraction(silhouette_upper_bound(X, **options))
        assert mean <= limit <= mean + Fraction(1, 10**12)


@pytest.mark.parametrize("metric", PROVEN)
def test_points_and_sizes(metric):
    X = np.random.default_rng(3).standard_normal((6, 2)) / 3
    table = squared_or_plain(X, metric)
    D = [[root(v) if has_root(metric) else v for v in row] for row in table]
    best, best_macro = -1, -1
    for labels in oracles.partitions(6, 2):
        if sorted(map(labels.count, {*labels})) == [2, 4]:
            values = oracles.silhouettes(D, labels)
            few = [v for v, c in zip(values, labels, strict=True) if labels.count(c) == 2]
            best = max(best, sum(values) / 6)
            best_macro = max(best_macro, (sum(few) / 2 + (sum(values) - sum(few)) / 4) / 2)
    for method in ("assignment", "rearrangement"):
        options = {"cluster_sizes": [4, 2], "metric": metric, "method": method, "certify": True}
        assert best <= Fraction(silhouette_upper_bound(X, **options))
        assert best_macro <= Fraction(macro_silhouette_upper_bound(X, **options))


@pytest.mark.parametrize("metric", ["cosine", "canberra", "braycurtis"])
def test_metrics_that_are_not_proven(metric):
    X = np.random.default_rng(0).random((30, 4)) + 1
    with pytest.warns(SilchunkWarning, match=f"rounding error of {metric} distances is not proven"):
        bound = silhouette_upper_bound(X, metric=metric, certify=True)
    assert 0 <= bound - silhouette_upper_bound(X, metric=metric) <= 1e-12


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine", "canberra"])
def test_points_are_certified_in_float64_alone(metric, source):
    X = np.random.default_rng(0).random((10, 2)).astype(source)
    with pytest.raises(InputError, match="works in float64: leave out dtype"):
        silhouette_upper_bound(X, metric=metric, certify=True, dtype="float32")


# Samples of rows.


@pytest.mark.parametrize("metric", ["euclidean", "precomputed"])
def test_certified_samples_are_above_plain_ones(metric):
    X = np.random.default_rng(0).standard_normal((200, 3))
    X = oracles.distances(X, np.float64) if metric == "precomputed" else X
    options = {"metric": metric, "sample_size": 50, "random_state": 7, "min_cluster_size": [1, 40]}
    plain = silhouette_upper_bound(X, **options)
    raised = silhouette_upper_bound(X, certify=True, **options)
    assert raised.certified
    assert not plain.certified
    assert (raised.estimate > plain.estimate - 1e-16).all()
    assert (raised.estimate <= plain.estimate + 1e-12).all()


@pytest.mark.parametrize("held", [8, 100, 1 << 16])
@pytest.mark.parametrize("kind", ["uniform", "ties", "one far away", "geometric"])
def test_certified_sampled_rows(monkeypatch, kind, held):
    """Whole rows, and rows that are streamed in bins."""
    monkeypatch.setattr(streaming, "HELD_VALUES", held)
    n = 700
    rng = np.random.default_rng(0)
    X = {
        "uniform": lambda: rng.random(n),
        "ties": lambda: rng.integers(0, 5, n) / 3,
        "one far away": lambda: np.r_[rng.random(n - 1), 1e9],
        "geometric": lambda: np.geomspace(1e-9, 1e9, n),
    }[kind]()[:, None]
    rows = np.array([0, 1, 255, 256, 511, n - 1])
    sizes = [1, 200, 350]
    exact_points = [Fraction(float(v)) for v in X[:, 0]]
    arguments = Arguments(metric="chebyshev", certify=True)
    with bound_job(
        X, arguments, lambda n: Wanted(size_range(sizes, None, n)), rows_of=lambda n: rows
    ) as (_, reduced):
        samples = reduced.samples
    for i, limits in zip(rows, samples.tolist(), strict=True):
        apart = sorted(abs(v - exact_points[i]) for v in exact_points)
        own = [Fraction(0)]
        for value in apart[1:]:
            own.append(own[-1] + value)
        for m, limit in zip(sizes, limits, strict=True):
            least = Fraction(1)
            for k in range(max(m, 2), n - m + 1):
                rest = own[-1] - own[k - 1]
                least = min(least, own[k - 1] * (n - k) / (rest * (k - 1)))
            assert 1 - least <= Fraction(limit) <= 1 - least + Fraction(1, 10**12)
