"""Sampled bounds: what is drawn, and what comes of it."""

from __future__ import annotations

import math

import dask
import numpy as np
import oracles
import pytest
import sampling_inputs
import zarr
from sampling_inputs import check_against_all_rows, points
from scipy import stats

import silchunk
from silchunk import (
    InputError,
    OverBudgetError,
    silhouette_bounds,
    silhouette_upper_bound,
    silhouette_upper_bound_samples,
    streaming,
)
from silchunk.confidence import standard_error
from silchunk.draws import draw_rows

# pytest looks for fixtures among the names of a module.
sampled_values = sampling_inputs.sampled_values


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


def test_a_sampled_bound_is_close_where_the_whole_is_known():
    X = points(1500, 3)
    bound = silhouette_bounds(X).asw
    found = silhouette_upper_bound(X, sample_size=500, random_state=0)
    assert abs(found.estimate - bound) < 5 * found.standard_error
    assert bound < found.upper_limit < bound + 0.05
