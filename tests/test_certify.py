"""Certified bounds against exact arithmetic: never below, by any margin, and hardly above."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import numpy as np
import oracles
import pytest

from silchunk import (
    InputError,
    SilchunkWarning,
    build_distances,
    macro_silhouette_upper_bound,
    numerical_slack,
    silhouette_bounds,
    silhouette_upper_bound,
    silhouette_upper_bound_samples,
    streaming,
)
from silchunk.bound_jobs import bound_job
from silchunk.constraints import size_range
from silchunk.kernels import bound as kernel
from silchunk.kernels.bound import quotient_error
from silchunk.prepare import Arguments, prepared
from silchunk.reduction import Wanted
from silchunk.rounding import certified

UNIT = Fraction(1, 2**53)


# Small matrices, every clustering.

SMALL_KINDS = ("uniform", "ties", "zeros", "spread", "tiny against huge", "thirds")


def small_matrix(n, kind, dtype):
    rng = np.random.default_rng([n, SMALL_KINDS.index(kind)])
    A = {
        "uniform": lambda: rng.random((n, n)),
        "ties": lambda: rng.integers(0, 4, (n, n)).astype(float),
        "zeros": lambda: rng.random((n, n)) * (rng.random((n, n)) < 0.4),
        "spread": lambda: rng.random((n, n)) ** 30,
        "tiny against huge": lambda: 10.0 ** rng.choice([-30, -7, 0, 30], (n, n)) * (1 / 3),
        "thirds": lambda: rng.integers(1, 4, (n, n)) / 3,
    }[kind]()
    D = np.triu(A, 1).astype(dtype)
    return D + D.T


@cache
def clusterings(n, kind, dtype):
    """(sizes, exact average width, exact mean of cluster means) of every clustering."""
    D = oracles.exact(small_matrix(n, kind, dtype))
    found = []
    for labels in oracles.partitions(n):
        values = oracles.silhouettes(D, labels)
        members = [
            [v for v, own in zip(values, labels, strict=True) if own == c] for c in {*labels}
        ]
        macro = sum(sum(m) / len(m) for m in members) / len(members)
        found.append((tuple(sorted(map(len, members))), Fraction(sum(values), n), macro))
    return found


small = pytest.mark.parametrize(
    ("n", "kind", "dtype"),
    [(n, k, d) for n in (2, 3, 5, 6) for k in SMALL_KINDS for d in ("float32", "float64")]
    + [(7, k, "float64") for k in ("uniform", "ties", "tiny against huge")],
)


@small
def test_small_matrices_in_rationals(n, kind, dtype):
    D = small_matrix(n, kind, dtype)
    rational = oracles.exact(D)
    options = {"metric": "precomputed", "certify": True}
    whole = silhouette_bounds(D, **options)
    assert whole.certified
    sizes = list(range(1, n // 2 + 1))
    together = silhouette_upper_bound(D, min_cluster_size=sizes, **options)
    for m in sizes:
        exact = [oracles.point_bound(rational, i, m) for i in range(n)]
        samples = silhouette_upper_bound_samples(D, min_cluster_size=m, **options)
        for value, limit in zip(exact, samples, strict=True):
            assert value <= Fraction(float(limit))
            assert Fraction(float(limit)) - value <= Fraction(1, 10**13)
        mean = oracles.upper_bound(rational, m)
        assert mean == Fraction(sum(exact), n)
        for limit in (
            silhouette_upper_bound(D, min_cluster_size=m, **options),
            together[m - 1],
            whole.at(m),
            silhouette_bounds(D, min_cluster_size=[m], **options).asw[0],
        ):
            assert mean <= Fraction(float(limit)) <= mean + Fraction(1, 10**13)
        best = max((asw for s, asw, _ in clusterings(n, kind, dtype) if s[0] >= m), default=-1)
        assert best <= Fraction(float(together[m - 1]))


@small
def test_small_matrices_with_a_number_of_clusters(n, kind, dtype):
    D = small_matrix(n, kind, dtype)
    rational = oracles.exact(D)
    options = {"metric": "precomputed", "certify": True}
    for clusters in range(2, n + 1):
        whole = silhouette_bounds(D, n_clusters=clusters, **options)
        for m in range(1, n // clusters + 1):
            largest = n - (clusters - 1) * m
            exact = [oracles.point_bound(rational, i, m, largest) for i in range(n)]
            constraints = {"min_cluster_size": m, "n_clusters": clusters}
            samples = silhouette_upper_bound_samples(D, **constraints, **options)
            limits = [Fraction(float(limit)) for limit in samples]
            assert all(value <= limit for value, limit in zip(exact, limits, strict=True))
            limit = Fraction(silhouette_upper_bound(D, **constraints, **options))
            best = max(
                asw for s, asw, _ in clusterings(n, kind, dtype) if s[0] >= m and len(s) == clusters
            )
            assert best <= Fraction(sum(exact), n) <= min(limit, Fraction(whole.at(m)))


@small
def test_small_matrices_with_fixed_sizes(n, kind, dtype):
    D = small_matrix(n, kind, dtype)
    options = {"metric": "precomputed", "certify": True}
    found = clusterings(n, kind, dtype)
    for sizes in {s for s, _, _ in found}:
        asw = max(value for s, value, _ in found if s == sizes)
        macro = max(value for s, _, value in found if s == sizes)
        sized = silhouette_bounds(D, cluster_sizes=sizes, **options).sized
        assert asw <= min(Fraction(sized.asw), Fraction(sized.asw_rearrangement))
        assert macro <= min(Fraction(sized.macro), Fraction(sized.macro_rearrangement))
        for method in ("assignment", "rearrangement"):
            given = {"cluster_sizes": sizes, "method": method, **options}
            assert asw <= Fraction(silhouette_upper_bound(D, **given))
            assert macro <= Fraction(macro_silhouette_upper_bound(D, **given))


def test_fixed_sizes_are_tight_where_a_clustering_attains_them():
    D = np.array([[0, 0, 1, 1], [0, 0, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0]], float)
    options = {"cluster_sizes": [2, 2], "metric": "precomputed", "certify": True}
    assert silhouette_upper_bound(D, **options) == 1.0
    assert macro_silhouette_upper_bound(D, **options) == 1.0


# Long rows, in integers.


def integers(row):
    """The same numbers as Python integers, times one power of two."""
    pairs = [float(value).as_integer_ratio() for value in row]
    common = max(denominator for _, denominator in pairs)  # all are powers of two
    return [numerator * (common // denominator) for numerator, denominator in pairs]


def exact_quotients(row):
    """q(k) for k = 1 … n-1 as pairs (a, b) of integers, q = a/b; the row ascends from the point."""
    row = integers(row)
    n = len(row)
    if not row[-1]:
        return [(1, 1)] * (n - 1)
    own = [0]
    for value in row[1:]:
        own.append(own[-1] + value)
    pairs = [(own[k - 1] * (n - k), (own[-1] - own[k - 1]) * (k - 1)) for k in range(2, n)]
    return [(1, 1), *pairs]


def exact_bound(quotients, smallest, largest):
    """1 - min q(k) over k in [smallest, largest]."""
    least = quotients[smallest - 1]
    for a, b in quotients[smallest:largest]:
        if a * least[1] < least[0] * b:
            least = a, b
    return 1 - Fraction(*least)


def test_the_integer_oracle_is_the_rational_one():
    D = small_matrix(7, "spread", "float64")
    for i in range(7):
        quotients = exact_quotients(np.sort(D[i]))
        for m in (1, 2, 3):
            expected = oracles.point_bound(oracles.exact(D), i, m)
            assert exact_bound(quotients, m, 7 - m) == expected


def values_of(kind, n, dtype):
    """n - 1 distances that are hard to add up."""
    rng = np.random.default_rng([n, len(kind)])
    count = n - 1
    low, high = (1e-300, 1e300) if dtype == "float64" else (1e-45, 3e38)
    info = np.finfo(dtype)
    eps = float(info.eps)
    one = np.ones(count)
    last = np.where(np.arange(count) == count - 1, 1.0, 0.0)
    return {
        "uniform": lambda: rng.random(count),
        "ties": lambda: rng.integers(1, 4, count) / 3,
        "zeros": lambda: rng.random(count) * (rng.random(count) < 0.3),
        "all equal": lambda: one * (1 + eps),
        "all a third": lambda: one / 3,
        "one, all others zero": lambda: last,
        "one huge among equal": lambda: one + last * high / 4,
        "one tiny among equal": lambda: np.where(last, low, 1 / 3),
        "half tiny, half huge": lambda: np.where(np.arange(count) % 2, low, high / n),
        "geometric": lambda: np.geomspace(low, high, count),
        "geometric, steep at the end": lambda: np.geomspace(low, high, count**2)[::count],
        "subnormal": lambda: rng.integers(1, 2**20, count) * float(info.smallest_subnormal),
        "subnormal against huge": lambda: np.where(
            rng.random(count) < 0.9, float(info.smallest_subnormal) * 3, high
        ),
        "half units lost": lambda: np.where(rng.random(count) < 0.01, 1.0, 2.0**-53),
        "half units rounded up": lambda: np.where(rng.random(count) < 0.01, 1.0, 1.01 * 2.0**-53),
        "close to one": lambda: 1 + rng.integers(0, 4, count) * eps,
        "odd last digits": lambda: 1.5 + (2 * rng.integers(0, 1000, count) + 1) * eps,
        "powers of two": lambda: 2.0 ** rng.integers(-60, 60, count),
        "heavy tail": lambda: rng.pareto(0.3, count).clip(0, high / n),
    }[kind]().astype(dtype)


ROW_KINDS = (
    "uniform",
    "ties",
    "zeros",
    "all equal",
    "all a third",
    "one, all others zero",
    "one huge among equal",
    "one tiny among equal",
    "half tiny, half huge",
    "geometric",
    "geometric, steep at the end",
    "subnormal",
    "subnormal against huge",
    "half units lost",
    "half units rounded up",
    "close to one",
    "odd last digits",
    "powers of two",
    "heavy tail",
)
long_rows = pytest.mark.parametrize(
    ("n", "dtype"),
    [(n, dtype) for n in (256, 257, 300, 1000) for dtype in ("float32", "float64")]
    + [pytest.param(3000, t, marks=pytest.mark.slow) for t in ("float32", "float64")],
)


def sorted_row(kind, n, dtype):
    return np.concatenate([np.zeros(1, dtype), np.sort(values_of(kind, n, dtype))])[None, :]


def computed_bound(row, smallest, largest):
    out = np.empty(1)
    kernel.point_bounds(kernel.whole(row), smallest, largest, out)
    return out


@pytest.mark.parametrize("kind", ROW_KINDS)
@long_rows
def test_long_rows(kind, n, dtype):
    row = sorted_row(kind, n, dtype)
    quotients = exact_quotients(row[0])
    ranges = {(1, n - 1), (2, n - 2), (n // 2, n - n // 2), (n - 2, n - 1), (1, n // 4)}
    ranges.add((n // 3, n - n // 3))
    for smallest, largest in ranges:
        exact = exact_bound(quotients, smallest, largest)
        plain = computed_bound(row, smallest, largest)
        # The quotient is as exact as is said, and so is 1 minus it.
        error = abs(Fraction(plain[0]) - exact)
        assert error <= Fraction(quotient_error(n)) * (1 - exact) + UNIT / 2
        assert error <= Fraction(numerical_slack(n))
        limit = Fraction(certified(plain, n, 0.0)[0])
        assert exact <= limit <= exact + Fraction(1, 10**13)


@pytest.mark.parametrize("kind", ROW_KINDS)
@long_rows
def test_every_quotient_of_long_rows(kind, n, dtype):
    row = sorted_row(kind, n, dtype)
    out = np.empty((1, n - 1))
    kernel.size_bounds(kernel.whole(row), np.arange(1, n), out)
    limits = certified(out, n, 0.0)[0].tolist()
    relative = Fraction(quotient_error(n))
    for value, limit, (a, b) in zip(out[0].tolist(), limits, exact_quotients(row[0]), strict=True):
        # |(1 - value) - a/b| ≤ relative · a/b + 2⁻⁵⁴, the last for 1 minus it.
        numerator, denominator = value.as_integer_ratio()
        error = abs((denominator - numerator) * b - a * denominator) * 2**54
        allowed = denominator * (a * 2**54 * relative + b)
        assert error <= allowed
        numerator, denominator = limit.as_integer_ratio()
        assert (b - a) * denominator <= numerator * b


# A matrix whose largest distance has lost digits is refused.
MATRIX_KINDS = [kind for kind in ROW_KINDS if kind != "subnormal"]


def circulant(kind, n, dtype):
    """A symmetric matrix each of whose rows holds the same hard values, in other orders."""
    half = values_of(kind, n // 2 + 2, dtype)
    np.random.default_rng(n).shuffle(half)
    apart = np.abs(np.arange(n)[:, None] - np.arange(n))
    return np.concatenate([np.zeros(1, dtype), half])[np.minimum(apart, n - apart)]


def toeplitz(kind, n, dtype):
    """A symmetric matrix whose rows all hold other values."""
    values = np.concatenate([np.zeros(1, dtype), values_of(kind, n, dtype)])
    return values[np.abs(np.arange(n)[:, None] - np.arange(n))]


def rounded_up(value):
    """A value's next multiple of 2⁻³⁰⁰, so that hundreds of them can be added."""
    return Fraction(-((-value.numerator << 300) // value.denominator), 2**300)


QUICK = ("ties", "all equal", "geometric", "subnormal against huge", "half units lost")


@pytest.mark.parametrize(
    "kind",
    [k if k in QUICK else pytest.param(k, marks=pytest.mark.slow) for k in MATRIX_KINDS],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("build", [circulant, toeplitz])
def test_whole_matrices(build, dtype, kind):
    n = 300
    D = build(kind, n, dtype)
    assert np.array_equal(D, D.T)
    sizes = [1, 2, 70, 150]
    quotients = [exact_quotients(np.sort(row)) for row in D]
    exact = [[rounded_up(exact_bound(q, m, n - m)) for m in sizes] for q in quotients]
    options = {"metric": "precomputed", "min_cluster_size": sizes}
    result = silhouette_bounds(D, certify=True, **options)
    plain = silhouette_bounds(D, **options)
    slacks = []
    for row, limits, values in zip(exact, result.samples, plain.samples, strict=True):
        for value, limit, uncertified in zip(row, limits.tolist(), values.tolist(), strict=True):
            assert value <= Fraction(limit)
            assert abs(Fraction(uncertified) - value) <= Fraction(numerical_slack(n))
            slacks.append(float(Fraction(limit) - value))
    assert np.median(slacks) <= 1e-13
    for column, m in enumerate(sizes):
        mean = sum(row[column] for row in exact) / n
        alone = silhouette_upper_bound(D, metric="precomputed", min_cluster_size=m, certify=True)
        for limit in (result.at(m), alone):
            assert mean <= Fraction(limit) <= mean + Fraction(2, 10**13)
        assert abs(Fraction(plain.at(m)) - mean) <= Fraction(numerical_slack(n))


def test_slack_for_any_n():
    slacks = [numerical_slack(n) for n in (2, 10, 1000, 10**6, 10**9)]
    assert slacks == sorted(slacks)
    assert 0 < slacks[0] < slacks[-1] < 1e-13


# A store, exact for what it holds, and for what it was rounded from.


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_stores(tmp_path, dtype):
    X = np.random.default_rng(0).standard_normal((70, 3))
    D = build_distances(X, tmp_path / "d.zarr", dtype=dtype)
    rows = D.rows(0, 70)
    assert rows.dtype == dtype
    exact = [exact_bound(exact_quotients(np.sort(row)), 1, 69) for row in rows]
    limits = silhouette_upper_bound_samples(D, certify=True).tolist()
    assert all(v <= Fraction(limit) for v, limit in zip(exact, limits, strict=True))
    compact = build_distances(X, tmp_path / "compact.zarr", dtype=dtype, keep_bits=6)
    limits = silhouette_upper_bound_samples(compact, certify=True).tolist()
    assert all(v <= Fraction(limit) for v, limit in zip(exact, limits, strict=True))


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


def test_a_float64_matrix_is_not_certified_in_float32(tmp_path):
    D = small_matrix(6, "uniform", "float64")
    options = {"metric": "precomputed", "certify": True, "dtype": "float32"}
    with pytest.raises(InputError, match="works in float64"):
        silhouette_upper_bound(D, **options)
    single = D.astype(np.float32)
    exact = oracles.upper_bound(oracles.exact(single))
    assert exact <= Fraction(silhouette_upper_bound(single, **options))


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
