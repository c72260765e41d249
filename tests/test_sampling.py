"""Sampled bounds: their rows, their limits, rows that are never held, and memory."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from fractions import Fraction

import dask
import numpy as np
import oracles
import pytest
import zarr
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from sklearn import datasets

import silchunk
from silchunk import (
    InputError,
    OverBudgetError,
    bound_jobs,
    confidence,
    plan,
    silhouette_bounds,
    silhouette_upper_bound,
    silhouette_upper_bound_samples,
    streaming,
)
from silchunk.confidence import standard_error, upper_limit
from silchunk.kernels import streamed
from silchunk.sampling import draw_rows

N = 1000
POPULATIONS = {
    "bernoulli": (np.random.default_rng(0).random(N) < 0.05).astype(float),
    "uniform": np.random.default_rng(1).random(N),
    "two points": np.where(np.arange(N) < 300, 0.2, 0.7),
    "constant": np.full(N, 0.9),
    "few large": np.where(np.arange(N) < 20, 1.0, 0.01),
}
COVERAGE = 0.9


def most_failures(trials, level=1e-4):
    """As many as are still likely where the limit holds with the confidence that it says."""
    return stats.binom.isf(level, trials, 1 - COVERAGE)


def bernstein_limit(values, n, alpha):
    """Empirical Bernstein-Serfling limit, Bardenet & Maillard 2015, doi:10.3150/14-BEJ605."""
    s = len(values)
    rho = 1 - (s - 1) / n if s <= n / 2 else (1 - s / n) * (1 + 1 / s)
    log = math.log(5 / alpha)
    kappa = 7 / 3 + 3 / math.sqrt(2)
    return values.mean() + values.std() * math.sqrt(2 * rho * log / s) + kappa * log / s


# Limits.


@pytest.mark.parametrize("name", POPULATIONS)
@pytest.mark.parametrize("s", [2, 10, 50, 400, 999])
def test_limits_lie_where_they_must(name, s):
    population = POPULATIONS[name]
    for seed in range(5):
        values = np.random.default_rng(seed).choice(population, s, replace=False)
        limits = [upper_limit(values, N, c) for c in (0.999, 0.95, 0.9, 0.5, 0.01)]
        assert (np.diff(limits) <= 0).all()
        assert limits[0] > limits[-1] or s > N / 2
        assert min(limits) >= values.sum() / N - 1e-15
        # What was not drawn is 1 at most.
        assert max(limits) <= min(1.0, (values.sum() + N - s) / N + 1e-15)
    whole = np.random.default_rng(0).permutation(population)
    assert upper_limit(whole, N, 0.9) == pytest.approx(population.mean(), abs=1e-15)


@pytest.mark.parametrize("name", POPULATIONS)
@pytest.mark.parametrize("s", [50, 500])
def test_limits_hold_as_often_as_they_say(name, s):
    population, trials = POPULATIONS[name], 400
    mean = math.fsum(population) / N
    failures = 0
    for seed in range(trials):
        values = np.random.default_rng(seed).choice(population, s, replace=False)
        failures += upper_limit(values, N, COVERAGE) < mean - 1e-12
    assert failures <= most_failures(trials)


def test_the_test_of_coverage_can_fail():
    # A limit that forgets half of its width does not pass it.
    population = POPULATIONS["bernoulli"]
    failures = 0
    for seed in range(400):
        values = np.random.default_rng(seed).choice(population, 50, replace=False)
        failures += (upper_limit(values, N, COVERAGE) + values.mean()) / 2 < population.mean()
    assert failures > most_failures(400)


def test_limits_get_closer_and_are_closer_than_simpler_ones():
    population, alpha = POPULATIONS["uniform"], 1 - COVERAGE
    distances = []
    for s in (20, 50, 100, 200, 400, 800):
        rows = [np.random.default_rng(seed).choice(population, s, False) for seed in range(100)]
        ours = np.mean([upper_limit(values, N, COVERAGE) for values in rows])
        theirs = np.mean([min(1.0, bernstein_limit(values, N, alpha)) for values in rows])
        distances.append(ours - population.mean())
        assert ours < theirs
        # Not far above what a normal distribution would give, which may fail more often.
        width = stats.norm.isf(alpha) * population.std() * math.sqrt((1 - s / N) / s)
        assert distances[-1] < 2.5 * width
    assert (np.diff(distances) < 0).all()
    assert distances[0] > 4 * distances[-1]


def test_the_order_of_the_draw_is_what_the_limit_rests_on():
    values = np.r_[np.zeros(40), np.ones(10)]
    shuffled = np.random.default_rng(0).permutation(values)
    assert upper_limit(values, N, 0.9) != upper_limit(shuffled, N, 0.9)
    assert standard_error(values, N) == pytest.approx(standard_error(shuffled, N), rel=1e-14)


@settings(max_examples=200, deadline=None)
@given(
    hnp.arrays(np.float64, st.integers(2, 60), elements=st.floats(0, 1)),
    st.integers(0, 10**9),
    st.floats(0.01, 0.999),
)
@example(np.zeros(5), 0, 0.9)
@example(np.zeros(5), 1, 0.9)
@example(np.ones(5), 100, 0.9)
def test_any_values_have_a_limit(values, more, level):
    n = len(values) + more
    limit = upper_limit(values, n, level)
    assert values.sum() / n - 1e-12 <= limit <= (values.sum() + more) / n + 1e-12
    assert limit <= 1.0
    rising = upper_limit(np.minimum(values + 0.1, 1), n, level) if not more else limit
    assert rising >= limit


def test_standard_errors():
    values = np.array([0.1, 0.4, 0.4, 0.9])
    expected = np.std(values, ddof=1) / 2 * math.sqrt(1 - 4 / 10)
    assert standard_error(values, 10) == pytest.approx(expected, rel=1e-14)
    assert standard_error(values, 4) == 0.0
    assert standard_error(np.full(5, 0.5), 100) == 0.0
    assert confidence.standard_error(values[:1], 10) == math.inf


# Draws.


@pytest.mark.parametrize(
    "state", [7, np.uint32(7), np.random.default_rng, np.random.RandomState, None]
)
def test_draws_have_no_row_twice(state):
    for s in (2, 17, 40):
        rows = draw_rows(s, state(7) if callable(state) else state, 40)
        assert rows.shape == (s,)
        assert len(set(rows.tolist())) == s
        assert set(rows.tolist()) <= set(range(40))


@pytest.mark.parametrize("kind", [np.random.default_rng, np.random.RandomState])
def test_every_row_is_as_likely_at_every_place(kind):
    draws = np.array([draw_rows(5, kind(seed), 12) for seed in range(3000)])
    for column in draws.T:
        assert stats.chisquare(np.bincount(column, minlength=12)).pvalue > 1e-6
    pairs = np.bincount(draws[:, 0] * 12 + draws[:, 1], minlength=144)
    pairs = np.delete(pairs, np.arange(12) * 13)  # no row twice
    assert stats.chisquare(pairs).pvalue > 1e-6


def test_draws_follow_their_seed():
    assert np.array_equal(draw_rows(9, 3, 99), draw_rows(9, np.random.default_rng(3), 99))
    assert not np.array_equal(draw_rows(9, 3, 99), draw_rows(9, 4, 99))
    generator = np.random.default_rng(3)
    assert not np.array_equal(draw_rows(9, generator, 99), draw_rows(9, generator, 99))
    assert not np.array_equal(draw_rows(20, None, 99), draw_rows(20, None, 99))


# Sampled bounds.


@pytest.fixture
def sampled_values(monkeypatch):
    """The values (s, sizes) of the sampled rows, as they were drawn, of every call so far."""
    seen = []
    reduce_all = bound_jobs.reduce_all

    def watched(*args):
        reduced = reduce_all(*args)
        seen.append(reduced.samples.copy())
        return reduced

    monkeypatch.setattr(bound_jobs, "reduce_all", watched)
    return seen


def points(n, d, dtype="f8", seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + 4 * rng.standard_normal((5, d))[rng.integers(0, 5, n)]
    return (X + 10).astype(dtype)  # away from 0 for cosine


def check_against_all_rows(X, full, sampled_values, *, s=60, seed=5, atol=1e-14, **options):
    """A sampled bound against the point bounds of all rows."""
    n = len(full)
    found = silhouette_upper_bound(X, sample_size=s, random_state=seed, **options)
    rows = draw_rows(s, seed, n)
    values = full.reshape(n, -1)[rows]
    np.testing.assert_allclose(sampled_values[-1], values, rtol=0, atol=atol)
    np.testing.assert_allclose(np.ravel(found.estimate), values.mean(axis=0), rtol=0, atol=atol)
    errors = values.std(axis=0, ddof=1) * math.sqrt((1 - s / n) / s)
    np.testing.assert_allclose(np.ravel(found.standard_error), errors, rtol=1e-9, atol=1e-14)
    limits = [upper_limit(column, n, found.confidence) for column in values.T]
    np.testing.assert_allclose(np.ravel(found.upper_limit), limits, rtol=0, atol=1e-12)
    assert (found.n, found.sample_size) == (n, s)
    return found


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    "metric", ["euclidean", "sqeuclidean", "cosine", "manhattan", "chebyshev", "canberra"]
)
@pytest.mark.parametrize("n", [61, 700, 1100])
def test_sampled_rows_are_those_of_all_rows(n, metric, dtype, sampled_values):
    X = points(n, 7, dtype)
    full = silhouette_upper_bound_samples(X, metric=metric)
    found = check_against_all_rows(X, full, sampled_values, metric=metric)
    assert found.metric == metric
    assert isinstance(found.estimate, float)
    assert found.standard_error > 0
    assert full.mean() <= found.upper_limit  # as it is with nearly all seeds


def test_several_sizes_and_numbers_of_clusters(sampled_values):
    X = points(300, 3)
    for options in (
        {"min_cluster_size": [1, 20, 150]},
        {"min_cluster_size": list(range(1, 11))},
        {"min_cluster_size": [5, 60], "n_clusters": 5},
        {"min_cluster_size": 40, "n_clusters": 3},
    ):
        full = silhouette_upper_bound_samples(X, **options)
        found = check_against_all_rows(X, full, sampled_values, **options)
        sizes = options["min_cluster_size"]
        assert found.n_clusters == options.get("n_clusters")
        assert found.min_cluster_size == (tuple(sizes) if isinstance(sizes, list) else sizes)
        if isinstance(sizes, list):
            for of in (found.estimate, found.standard_error, found.upper_limit):
                assert of.shape == (len(sizes),)
            assert (np.diff(found.estimate) <= 0).all()
        for m in np.ravel(sizes):
            whose = "any clustering" if m == 1 else f"of {m} or more points"
            assert f"{whose}: about" in repr(found)
    with pytest.raises(InputError, match="from 1 to n/5 = 60 .*; got 61"):
        silhouette_upper_bound(X, sample_size=9, n_clusters=5, min_cluster_size=61)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_every_kind_of_input(dtype, tmp_path, sampled_values):
    X = points(700, 3, dtype)
    np.save(tmp_path / "x.npy", X)
    chunked = zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(90, 3))
    for source in (tmp_path / "x.npy", str(tmp_path / "x.zarr"), chunked):
        check_against_all_rows(source, silhouette_upper_bound_samples(X), sampled_values)
    # Lists are float64, whatever they hold; distances may be rounded to float32 all the same.
    options = {"dtype": X.dtype.name}
    full = silhouette_upper_bound_samples(X.tolist(), **options)
    check_against_all_rows(X.tolist(), full, sampled_values, **options)
    stored = silchunk.build_distances(X, tmp_path / "d.zarr", dtype=X.dtype)
    full = silhouette_upper_bound_samples(stored)
    for source in (stored, tmp_path / "d.zarr"):
        check_against_all_rows(source, full, sampled_values)
    D = oracles.distances(X, np.float64).astype(dtype)
    np.save(tmp_path / "d.npy", D)
    for m in (1, [1, 50]):
        options = {"metric": "precomputed", "min_cluster_size": m}
        full = silhouette_upper_bound_samples(D, **options)
        for source in (D, tmp_path / "d.npy"):
            check_against_all_rows(source, full, sampled_values, **options)
    # Two rows, next to each other or far apart.
    for seed in range(6):
        check_against_all_rows(D, full, sampled_values, s=2, seed=seed, **options)


@pytest.mark.parametrize("metric", ["euclidean", "precomputed"])
def test_a_sample_of_all_points_is_the_bound(metric):
    X = points(300, 3)
    X = X if metric == "euclidean" else oracles.distances(X, np.float64)
    for sizes in (1, [1, 30]):
        options = {"metric": metric, "min_cluster_size": sizes}
        bound = silhouette_upper_bound(X, **options)
        found = silhouette_upper_bound(X, sample_size=300, random_state=0, **options)
        assert found.estimate == pytest.approx(bound, abs=1e-14)
        assert found.upper_limit == pytest.approx(bound, abs=1e-14)
        assert np.ravel(found.standard_error).tolist() == [0.0] * np.size(sizes)


def test_estimates_are_unbiased_and_their_errors_honest():
    X = points(200, 2)
    full, s = silhouette_upper_bound_samples(X), 60
    drawn = np.array([full[draw_rows(s, seed, 200)] for seed in range(3000)])
    estimates = drawn.mean(axis=1)
    spread = estimates.std()
    assert abs(estimates.mean() - full.mean()) < 4.5 * spread / math.sqrt(3000)
    # The factor 1 - s/n is 0.7: it must not be left out.
    squares = np.mean([standard_error(values, 200) ** 2 for values in drawn])
    assert squares == pytest.approx(spread**2, rel=0.12)
    # These are the estimates that come out.
    for seed in range(20):
        found = silhouette_upper_bound(X, sample_size=s, random_state=seed)
        assert found.estimate == pytest.approx(estimates[seed], abs=1e-14)
        assert found.standard_error == pytest.approx(standard_error(drawn[seed], 200), rel=1e-12)


@pytest.mark.slow
def test_limits_hold_for_real_data():
    X = datasets.load_digits().data[:1500]
    full = silhouette_upper_bound_samples(X)
    bound, trials = silhouette_upper_bound(X), 200
    limits = [
        silhouette_upper_bound(X, sample_size=60, random_state=r, confidence=COVERAGE).upper_limit
        for r in range(trials)
    ]
    assert sum(limit < bound for limit in limits) <= most_failures(trials)
    # And they tell something: the bounds of the points are all in [0, 1].
    assert np.mean(limits) - bound < 0.1
    for r in range(5):
        expected = upper_limit(full[draw_rows(60, r, 1500)], 1500, COVERAGE)
        assert limits[r] == pytest.approx(expected, abs=1e-12)


def test_random_states():
    X = points(150, 2)

    def estimate(state):
        return silhouette_upper_bound(X, sample_size=20, random_state=state).estimate

    assert estimate(8) == estimate(8) == estimate(np.random.default_rng(8))
    assert estimate(np.int64(8)) == estimate(8)
    assert estimate(np.random.RandomState(8)) == estimate(np.random.RandomState(8))
    assert len({estimate(None), estimate(None), estimate(9), estimate(8)}) == 4
    generator = np.random.default_rng(8)
    assert estimate(generator) == estimate(8)
    assert estimate(generator) != estimate(8)  # it goes on where it was


def same(one, other):
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("estimate", "standard_error", "upper_limit")
    )


@pytest.mark.parametrize(
    ("metric", "dtype"),
    [
        ("euclidean", "f4"),
        ("euclidean", "f8"),
        ("cosine", "f8"),
        ("manhattan", "f8"),
        ("canberra", "f8"),
    ],
)
@pytest.mark.parametrize("held", [1 << 16, 600])
def test_budget_and_threads_do_not_change_a_bit(metric, dtype, held, monkeypatch, sampled_values):
    monkeypatch.setattr(streaming, "HELD_VALUES", held)
    X = points(1500, 9, dtype)
    options = {"metric": metric, "sample_size": 90, "random_state": 1}
    options |= {"min_cluster_size": [1, 200], "n_clusters": 3}
    whole = silhouette_upper_bound(X, **options)
    done = 0
    for memory in ("290MiB", "330MiB", "400MiB", "500MiB", "4GiB"):
        for workers in (1, 3):
            with dask.config.set(num_workers=workers):
                try:
                    found = silhouette_upper_bound(X, memory=memory, **options)
                except OverBudgetError:
                    continue  # of metrics that take more
            assert same(found, whole)
            assert np.array_equal(sampled_values[-1], sampled_values[0])
            done += 1
    assert done >= 4
    alone = silhouette_upper_bound(X, scheduler="synchronous", **options)
    assert same(alone, whole)


@pytest.mark.cluster
def test_a_cluster_gives_the_same_bits(client, tmp_path):
    X = points(1500, 9, "f4")
    np.save(tmp_path / "x.npy", X)
    D = oracles.distances(X[:300], np.float64)
    options = {"sample_size": 40, "random_state": 1}
    whole = silhouette_upper_bound(X, **options)
    for source in (X, tmp_path / "x.npy"):
        assert same(silhouette_upper_bound(source, scheduler=client, **options), whole)
    options["metric"] = "precomputed"
    found = silhouette_upper_bound(D, scheduler=client, **options)
    assert same(found, silhouette_upper_bound(D, **options))


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "precomputed"])
def test_certified_values_are_a_little_higher(metric, sampled_values):
    X = points(200, 3)
    X = oracles.distances(X, np.float64) if metric == "precomputed" else X
    options = {"metric": metric, "sample_size": 30, "random_state": 2}
    plain = silhouette_upper_bound(X, **options)
    certified = silhouette_upper_bound(X, certify=True, **options)
    assert certified.certified > plain.certified
    assert (sampled_values[1] > sampled_values[0]).all()
    np.testing.assert_allclose(sampled_values[1], sampled_values[0], rtol=0, atol=1e-11)
    assert plain.estimate < certified.estimate
    assert plain.upper_limit < certified.upper_limit
    full = silhouette_upper_bound_samples(X, metric=metric, certify=True)
    rows = draw_rows(30, 2, 200)
    np.testing.assert_allclose(sampled_values[1][:, 0], full[rows], rtol=0, atol=1e-14)


def test_results_explain_themselves():
    X = points(1200, 2)
    found = silhouette_upper_bound(X, sample_size=100, random_state=0, confidence=0.99)
    assert repr(found).splitlines() == [
        "Silhouette upper bound of 1,200 points (euclidean distance), from 100 of them",
        f"  any clustering: about {found.estimate:.6f} (standard error "
        f"{found.standard_error:.6f}), with confidence 0.99 <= "
        f"{math.ceil(found.upper_limit * 1e6) / 1e6:.6f}",
    ]
    limit = found.upper_limit
    assert found.wcre(0.5) == pytest.approx((limit - 0.5) / limit)
    assert found.wcre(limit) == 0.0
    several = silhouette_upper_bound(
        X, sample_size=100, random_state=0, n_clusters=4, min_cluster_size=[1, 300]
    )
    first = several.upper_limit[0]
    assert several.wcre(0.25) == pytest.approx((first - 0.25) / first)
    assert "4 clusters of 300 or more points: about" in repr(several)
    with pytest.raises(
        InputError, match="above the upper limit .* same metric .euclidean.*any clustering"
    ):
        found.wcre(min(1.0, limit + 0.01))
    with pytest.raises(InputError, match=r"lies in \[-1, 1\]; got 2"):
        found.wcre(2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sample_size": 0}, "sample_size must be from 2 to n = 6; got 0"),
        ({"sample_size": 1}, "sample_size must be from 2 to n = 6; got 1"),
        ({"sample_size": 7}, "sample_size must be from 2 to n = 6; got 7"),
        ({"sample_size": -3}, "sample_size must be from 2 to n = 6; got -3"),
        ({"sample_size": 2.5}, "sample_size takes an integer; got 2.5"),
        ({"sample_size": 3.0}, "sample_size takes an integer; got 3.0"),
        ({"sample_size": True}, "sample_size takes an integer; got True"),
        ({"sample_size": "3"}, "sample_size takes an integer; got '3'"),
        ({"confidence": 0}, "confidence must be between 0 and 1, .*; got 0"),
        ({"confidence": 1}, "confidence must be between 0 and 1, .*; got 1"),
        ({"confidence": 1.0}, "confidence must be between 0 and 1, .*; got 1.0"),
        ({"confidence": 95}, "confidence must be between 0 and 1, .*; got 95"),
        ({"confidence": -0.5}, "confidence must be between 0 and 1, .*; got -0.5"),
        ({"confidence": math.nan}, "confidence must be between 0 and 1, .*; got nan"),
        ({"confidence": "x"}, "confidence must be between 0 and 1, .*; got 'x'"),
        ({"confidence": None}, "confidence must be between 0 and 1, .*; got None"),
        ({"random_state": "x"}, "random_state must be None, an integer or a generator; got 'x'"),
        ({"random_state": -1}, "random_state must be None, an integer or a generator; got -1"),
        ({"random_state": 1.5}, "random_state must be None, an integer or a generator; got 1.5"),
        ({"min_cluster_size": 4}, "min_cluster_size must be from 1 to n/2 = 3 .*; got 4"),
        ({"n_clusters": 7}, "n_clusters must be from 2 to n = 6.*; got 7"),
    ],
)
def test_wrong_arguments(options, message, tmp_path):
    np.save(tmp_path / "x.npy", np.full((6, 2), np.nan))  # no pass over the data lets it through
    with pytest.raises(InputError, match=message):
        silhouette_upper_bound(tmp_path / "x.npy", **{"sample_size": 3, **options})


# Rows that are never held.


def cloud(kind, n):
    rng = np.random.default_rng(n)
    if kind == "gaussian":
        return rng.standard_normal((n, 3))
    if kind == "blobs":
        return points(n, 2)
    if kind == "ties":
        return rng.integers(0, 3, (n, 2)).astype(float)
    if kind == "duplicates":
        return rng.standard_normal((5, 2))[rng.integers(0, 5, n)]
    if kind == "one apart":
        return np.r_[np.zeros((n - 1, 1)), [[3.0]]]
    return np.exp(6 * rng.standard_normal((n, 2)))


CLOUDS = ["gaussian", "blobs", "ties", "duplicates", "one apart", "spread"]


@pytest.mark.parametrize("held", [600, 30])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("kind", CLOUDS)
@pytest.mark.parametrize("n", [601, 1537, 3000])
def test_streamed_rows_equal_held_ones(n, kind, dtype, held, monkeypatch, sampled_values):
    X = cloud(kind, n).astype(dtype)
    asked = [
        {"min_cluster_size": [1, 2, n // 7, n // 2]},
        {"min_cluster_size": [1, n // 9, n // 3], "n_clusters": 3},
        {"n_clusters": n},
        {"min_cluster_size": n // 20, "n_clusters": 20},
    ]
    begun = []

    class Watched(streaming._Row):
        def _begin(self, *arguments):
            begun.append(self)
            super()._begin(*arguments)

    for options in asked:
        full = silhouette_upper_bound_samples(X, **options)
        with monkeypatch.context() as patch:
            patch.setattr(streaming, "HELD_VALUES", held)
            patch.setattr(streaming, "_Row", Watched)
            check_against_all_rows(X, full, sampled_values, s=20, atol=1e-13, **options)
    assert len(set(begun)) == 20 * len(asked), "all rows were to be streamed"


@pytest.mark.parametrize("metric", ["cosine", "manhattan", "canberra"])
def test_streamed_rows_of_other_metrics(metric, monkeypatch, sampled_values):
    X = points(1100, 4)
    full = silhouette_upper_bound_samples(X, metric=metric)
    monkeypatch.setattr(streaming, "HELD_VALUES", 50)
    check_against_all_rows(X, full, sampled_values, atol=1e-13, metric=metric)


def test_all_points_alike(monkeypatch):
    X = np.full((700, 2), 3.0)
    monkeypatch.setattr(streaming, "HELD_VALUES", 30)
    found = silhouette_upper_bound(X, sample_size=10, min_cluster_size=[1, 350], random_state=0)
    assert found.estimate.tolist() == [0.0, 0.0]
    assert found.standard_error.tolist() == [0.0, 0.0]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "dtype"), [("gaussian", "f4"), ("ties", "f8"), ("spread", "f8")])
def test_more_points_than_a_row_is_held_of(kind, dtype, sampled_values):
    n, s = plan.HELD_VALUES + 4000, 12
    X = cloud(kind, n).astype(dtype)
    sizes = [1, 50, n // 3]
    silhouette_upper_bound(
        X, sample_size=s, random_state=5, n_clusters=3, min_cluster_size=sizes, dtype="float64"
    )
    exact = X.astype(np.longdouble)
    for row, values in zip(draw_rows(s, 5, n), sampled_values[0], strict=True):
        d = np.sort(np.sqrt(((exact - exact[row]) ** 2).sum(axis=1)))
        own = np.cumsum(d)[1:-1]
        rest = np.cumsum(d[::-1])[::-1][2:]
        k = np.arange(2, n)
        quotients = (own / (k - 1)) / (rest / (n - k))
        for m, value in zip(sizes, values, strict=True):
            within = quotients[(k >= m) & (k <= n - 2 * m)]
            assert value == pytest.approx(float(1 - min(1, within.min())), abs=1e-12)


# The kernels behind them.


def least_quotients(row, ranges):
    """By the definition, in rational numbers; ``row`` has a zero for the point itself."""
    ordered = [Fraction(float(v)) for v in np.sort(row)]
    n = len(ordered)
    before = [Fraction(0)]
    for value in ordered:
        before.append(before[-1] + value)
    found = []
    for first, last in ranges:
        least = Fraction(1)
        for k in range(max(first, 2), min(last, n - 1) + 1):
            rest = before[n] - before[k]
            if rest:
                least = min(least, before[k] / (k - 1) / (rest / (n - k)))
        found.append(float(least))
    return found


def stream(row, ranges, held, edges, step):
    """The least quotients by the kernels, never more than ``held`` values at once; and passes."""
    n = len(row)
    smallest, largest = np.array(ranges, np.int64).T.copy()
    least = np.ones(len(ranges))
    in_question = np.ones(len(edges) + 1, np.uint8)
    blocks = [row[first : first + step] for first in range(0, n, step)]
    for passes in range(1, 200):
        counts = np.zeros(len(edges) + 1, np.int64)
        sums, lost = np.zeros(len(edges) + 1), np.zeros(len(edges) + 1)
        for block in blocks:
            streamed.add_to_bins(np.sort(block), edges, counts, sums, lost)
        of = np.searchsorted(edges, row, side="right")
        assert np.array_equal(counts, np.bincount(of, minlength=len(edges) + 1))
        expected = np.bincount(of, row.astype(float), len(edges) + 1)
        np.testing.assert_allclose(sums, expected, rtol=1e-12, atol=1e-320)
        wanted = in_question
        count = streamed.mark_bins(
            n, edges, row.max(), counts, sums, smallest, largest, least, wanted
        )
        assert count == counts[wanted == 1].sum()
        if count == 0:
            return least, passes
        if count <= held:
            break
        edges, in_question = streamed.finer_bins(edges, wanted, float(row.max()))
        assert (np.diff(edges) > 0).all()
        assert edges.dtype == row.dtype
        assert in_question.shape == (len(edges) + 1,)
    else:
        raise AssertionError("bins are refined without end")
    intervals = streamed.intervals_of(edges, wanted)
    kept, filled = np.empty(count, row.dtype), 0
    for block in blocks:
        filled = streamed.collect(block, intervals, kept, filled)
    assert filled == count
    kept.sort()
    assert np.array_equal(kept, np.sort(row[wanted[np.searchsorted(edges, row, "right")] == 1]))
    streamed.least_of_bins(n, kept, counts, sums, wanted, smallest, largest, least)
    return least, passes + 1


VALUES = st.one_of(
    st.sampled_from([0.0, 1.0, 2.0, 3.0]),
    st.floats(0, 10, width=32),
    st.floats(1, 1 + 2.0**-21, width=32),
    st.sampled_from([2.0**-149, 2.0**-140, 2.0**-126, 2.0**120, 1e-5]),
)


@st.composite
def streams(draw):
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    alphabet = draw(st.lists(VALUES, min_size=1, max_size=30))
    others = draw(st.lists(st.sampled_from(alphabet), min_size=2, max_size=90))
    row = np.array([0.0, *others], dtype)
    if dtype == np.float64 and draw(st.booleans()):
        row = np.where(row < 2.0**-140, row * 2.0**-925, row)  # down to the least float64
    n = len(row)
    ranges = []
    for _ in range(draw(st.integers(1, 3))):
        k = draw(st.integers(2, n))
        m = draw(st.integers(1, n // k))
        ranges.append((m, n - (k - 1) * m))
    sample = np.sort(row[: draw(st.integers(2, n))])
    return row, ranges, draw(st.integers(1, n)), streamed.first_edges(sample)


def zeros_and(*others, dtype=np.float64):
    row = np.array([0.0, *others], dtype)
    return row, [(1, len(row) - 1)], 1, row[:1].copy()


@settings(max_examples=400, deadline=None)
@given(streams(), st.integers(1, 100))
@example(zeros_and(*[1.0] * 50), 7)
@example(zeros_and(*[1.0] * 50, dtype=np.float32), 7)
@example(zeros_and(*[0.0] * 20, 1.0), 7)
@example(zeros_and(*[2.0**-149] * 20, 1.0, dtype=np.float32), 7)
@example(zeros_and(*[5e-324] * 20, 1e300), 7)
@example(zeros_and(*np.geomspace(1e-300, 1e300, 60)), 100)
@example(zeros_and(*np.nextafter(1.0, [0.0, 2.0] * 10)), 100)
def test_streamed_quotients_are_their_definition(problem, step):
    row, ranges, held, edges = problem
    if row.max() == 0:
        return  # such rows are done before
    least, passes = stream(row, ranges, held, edges, step)
    np.testing.assert_allclose(least, least_quotients(row, ranges), rtol=0, atol=1e-13)
    assert passes <= 70  # each halves what a bin spans of the floating-point numbers


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", CLOUDS)
def test_few_passes_are_enough(kind, dtype):
    n = 20_000
    X = cloud(kind, n)
    row = np.sqrt(((X - X[0]) ** 2).sum(axis=1)).astype(dtype)
    ranges = [(1, n - 1), (n // 10, n - n // 5)]
    sample = np.sort(row[: n // 5])
    least, passes = stream(row, ranges, 2000, streamed.first_edges(sample), 1000)
    ordered = np.sort(row).astype(np.longdouble)
    k = np.arange(2, n)
    rest = np.cumsum(ordered[::-1])[::-1][2:]
    quotients = (np.cumsum(ordered)[1:-1] / (k - 1)) / (rest / (n - k))
    for (first, last), found in zip(ranges, least, strict=True):
        within = quotients[(k >= first) & (k <= last)]
        assert found == pytest.approx(float(min(1, within.min())), abs=1e-13)
    assert passes <= 11  # a bin is cut into some 2⁷ parts, of 2⁶⁴ numbers at most


# Memory.


def planned(n, **options):
    options = {"width": 8, "itemsize": 4, "budget_bytes": 2 << 30, "concurrency": 2, **options}
    return plan.plan_panels(n=n, from_points=True, **options)


def test_the_plan_does_not_depend_on_the_number_of_points():
    for s in (8, 64, 1000, 50_000):
        few, many = (planned(n, sampled_rows=s) for n in (10**5, 10**9))
        assert few.peak_bytes == many.peak_bytes <= few.budget_bytes
        assert few.panels() == many.panels()
        assert few.panels()[0][0] == 0
        assert few.panels()[-1][1] == s
    assert planned(10**6, sampled_rows=64).peak_bytes < planned(10**6, sampled_rows=1000).peak_bytes
    with pytest.raises(OverBudgetError, match="one panel of 64 rows.*allows 100 MiB"):
        planned(10**6, sampled_rows=64, budget_bytes=100 << 20)


MEASURE = """
import json, sys
import silchunk
from silchunk import plan
made, plans = plan.plan_panels, []
plan.plan_panels = lambda **options: plans.append(made(**options)) or plans[-1]
found = silchunk.silhouette_upper_bound(
    sys.argv[1], sample_size=64, random_state=0, memory="400MiB", metric=sys.argv[2]
)
lines = open("/proc/self/status").read().splitlines()
peak = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
print(json.dumps([peak, plans[0].peak_bytes, plans[0].budget_bytes, found.n]))
"""


def measure(path, metric):
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path), metric],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
def test_measured_peaks_do_not_depend_on_the_number_of_points(metric, tmp_path):
    rng = np.random.default_rng(0)
    peaks = []
    for n in (80_000, 100_000, 400_000):  # the first compiles what has not been compiled
        np.save(tmp_path / f"{n}.npy", rng.standard_normal((n, 4), dtype=np.float32))
        peak, expected, budget, found_n = measure(tmp_path / f"{n}.npy", metric)
        assert found_n == n
        assert peak <= expected <= budget
        peaks.append(peak)
    assert abs(peaks[2] - peaks[1]) < 24 << 20


def test_a_sampled_bound_is_close_where_the_whole_is_known():
    X = points(1500, 3)
    bound = silhouette_bounds(X).asw
    found = silhouette_upper_bound(X, sample_size=500, random_state=0)
    assert abs(found.estimate - bound) < 5 * found.standard_error
    assert bound < found.upper_limit < bound + 0.05
