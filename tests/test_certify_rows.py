"""Certified bounds of long rows, whole matrices and stores, in integers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import oracles
import pytest
from certify_inputs import small_matrix

from silchunk import (
    build_distances,
    numerical_slack,
    silhouette_bounds,
    silhouette_upper_bound,
    silhouette_upper_bound_samples,
)
from silchunk.kernels import bound as kernel
from silchunk.kernels.bound import quotient_error
from silchunk.rounding import certified

UNIT = Fraction(1, 2**53)


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
