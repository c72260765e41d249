"""Silhouettes from samples: draws of every cluster, estimates without bias, errors that hold."""

from __future__ import annotations

import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2
from silhouette_inputs import L6, blobs
from sklearn.metrics import pairwise_distances

import silchunk
from silchunk import InputError, SampledScore, draws, silhouette_score, silhouette_table
from silchunk.labels import read_labels
from silchunk.plan import plan_panels

SIZES = st.lists(st.integers(1, 300), min_size=2, max_size=12)


def least(sizes):
    return int(np.minimum(sizes, 2).sum())


# Draws.


@settings(max_examples=200, deadline=None)
@given(SIZES, st.data())
def test_allocation(sizes, data):
    sizes = np.array(sizes)
    total = data.draw(st.integers(least(sizes), int(sizes.sum())))
    counts = draws.allocation(total, sizes)
    wanted = total * sizes / sizes.sum()
    assert counts.sum() == total
    assert (counts >= np.minimum(2, sizes)).all()
    assert (counts <= sizes).all()
    if (wanted >= np.minimum(2, sizes)).all():  # none gets more than its share
        assert (np.abs(counts - wanted) < 1).all()
    raised = wanted < 2
    assert (counts[raised] <= 2).all()
    assert (counts[~raised] <= np.ceil(wanted[~raised])).all()


@settings(max_examples=50, deadline=None)
@given(SIZES, st.data())
def test_draws(sizes, data):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    labels = np.random.default_rng(data.draw(st.integers(0, 99))).permutation(labels)
    total = data.draw(st.integers(max(2, least(sizes)), len(labels)))
    read = read_labels(labels, len(labels))
    drawn = draws.draw_stratified(total, 0, read)
    assert (np.diff(drawn) > 0).all()  # ascending, none twice
    assert drawn[0] >= 0
    assert drawn[-1] < len(labels)
    counts = np.bincount(labels[drawn], minlength=len(sizes))
    assert np.array_equal(counts, draws.allocation(total, np.array(sizes)))
    assert np.array_equal(draws.draw_stratified(total, 0, read), drawn)


@pytest.mark.parametrize("block", [1 << 20, 7])
def test_every_point_of_a_cluster_is_as_likely(block, monkeypatch):
    monkeypatch.setattr(draws, "BLOCK_CODES", block)
    labels = np.random.default_rng(0).permutation(np.repeat([0, 1, -1], [20, 40, 9]))
    read = read_labels(labels, 69, noise="drop")
    times = np.zeros(69)
    random = np.random.default_rng(1)
    for _ in range(2000):
        times[draws.draw_stratified(15, random, read)] += 1
    assert (times[labels == -1] == 0).all()
    for cluster, size, count in ((0, 20, 5), (1, 40, 10)):
        share = count / size
        expected = 2000 * share
        some = times[labels == cluster]
        # Of draws without replacement, whose counts hang together.
        statistic = ((some - expected) ** 2).sum() / (expected * (1 - share)) * (size - 1) / size
        low, high = chi2.ppf([1e-4, 1 - 1e-4], size - 1)
        assert low < statistic < high


def test_draws_do_not_depend_on_blocks(monkeypatch):
    read = read_labels(np.arange(500) % 7, 500)
    expected = draws.draw_stratified(60, 3, read)
    monkeypatch.setattr(draws, "BLOCK_CODES", 11)
    assert np.array_equal(draws.draw_stratified(60, 3, read), expected)


# Estimates.


def test_each_point_is_held_against_all_others(tmp_path):
    X, labels = blobs(700, 3, 6, alone=1)
    stored = silchunk.build_distances(X, tmp_path / "d.zarr")
    D = pairwise_distances(X)
    for points, metric in (
        (X, "euclidean"),
        (X, "manhattan"),
        (X, "sqeuclidean"),
        (D, "precomputed"),
        (stored, "euclidean"),
    ):
        exact = silhouette_table(points, labels, metric=metric)
        table = silhouette_table(points, labels, metric=metric, sample_size=90, random_state=0)
        assert len(table.points) == 90
        for name in ("samples", "a", "b"):
            found, expected = getattr(table, name), getattr(exact, name)[table.points]
            np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)
        assert table.nearest == [exact.nearest[i] for i in table.points]
        assert table.clusters.sizes.tolist() == exact.clusters.sizes.tolist()
        micro = sum(
            (labels == c).mean() * table.samples[labels[table.points] == c].mean() for c in range(6)
        )
        assert table.micro == pytest.approx(micro, abs=1e-13)


def test_a_sample_that_skips_panels(tmp_path):
    X, labels = blobs(1300, 2, 3)
    D = pairwise_distances(X)
    for seed in range(5):  # six points in six panels of 256 rows
        table = silhouette_table(D, labels, metric="precomputed", sample_size=6, random_state=seed)
        exact = silhouette_table(X, labels).samples[table.points]
        np.testing.assert_allclose(table.samples, exact, rtol=0, atol=1e-10)


@pytest.fixture(scope="module")
def estimates():
    """Exact table, and sampled ones of many seeds, of clusters that differ in size and score."""
    r = np.random.default_rng(5)
    sizes = [150, 60, 25]
    centres = np.repeat([[0, 0], [3, 0], [0, 9]], sizes, axis=0)
    D = pairwise_distances(r.standard_normal((235, 2)) + centres)
    labels = np.repeat([0, 1, 2], sizes)
    options = {"metric": "precomputed", "validate": False}
    exact = silhouette_table(D, labels, **options)
    sampled = [
        silhouette_table(D, labels, sample_size=60, random_state=seed, **options)
        for seed in range(300)
    ]
    return exact, sampled


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_no_bias(estimates, average):
    exact, sampled = estimates
    scores = np.array([table.score(average) for table in sampled])
    error_of_the_mean = scores.std(ddof=1) / np.sqrt(len(scores))
    assert abs(scores.mean() - exact.score(average)) < 5 * error_of_the_mean
    assert error_of_the_mean < 0.01  # or the test would tell nothing


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_standard_errors(estimates, average):
    exact, sampled = estimates
    scores = [table.score(average) for table in sampled]
    errors = np.array([score.standard_error for score in scores])
    within = np.abs(np.array(scores) - exact.score(average)) < 2 * errors
    assert 0.9 < within.mean() < 0.99
    spread = np.array(scores).std(ddof=1)
    assert np.sqrt((errors**2).mean()) == pytest.approx(spread, rel=0.15)


def test_standard_errors_of_clusters(estimates):
    _, sampled = estimates
    means = np.array([table.clusters.means for table in sampled])
    errors = np.array([table.clusters.standard_errors for table in sampled])
    np.testing.assert_allclose(np.sqrt((errors**2).mean(axis=0)), means.std(axis=0), rtol=0.15)


def test_all_points_are_no_sample():
    X, labels = blobs(120, 2, 4, alone=1)
    for average in ("micro", "macro"):
        score = silhouette_score(X, labels, average=average, sample_size=120, random_state=0)
        assert isinstance(score, SampledScore)
        assert score.standard_error == 0.0
        assert score == pytest.approx(silhouette_score(X, labels, average=average), abs=1e-13)


def test_dropped_noise_is_never_drawn():
    X, labels = blobs(300, 2, 4)
    table = silhouette_table(X, labels - 1, noise="drop", sample_size=50, random_state=0)
    assert (labels[table.points] > 0).all()
    exact = silhouette_table(X, labels - 1, noise="drop")
    np.testing.assert_allclose(table.samples, exact.samples[table.points], rtol=0, atol=1e-12)
    assert table.score("micro").n == (labels > 0).sum()


def test_seeds():
    X, labels = blobs(300, 2, 4)

    def drawn(random_state):
        return silhouette_table(X, labels, sample_size=50, random_state=random_state).points

    assert np.array_equal(drawn(0), drawn(0))
    assert not np.array_equal(drawn(0), drawn(1))
    assert np.array_equal(drawn(np.random.default_rng(0)), drawn(0))
    assert np.array_equal(drawn(np.random.RandomState(4)), drawn(np.random.RandomState(4)))
    assert not np.array_equal(drawn(None), drawn(None))


@pytest.mark.parametrize("scheduler", ["threads", "synchronous"])
@pytest.mark.parametrize("memory", ["240MiB", "4GiB"])
def test_the_same_bits_in_any_schedule(scheduler, memory):
    X, labels = blobs(1300, 2, 4)
    options = {"sample_size": 300, "random_state": 0}
    expected = silhouette_table(X, labels, **options).samples
    found = silhouette_table(X, labels, scheduler=scheduler, memory=memory, **options)
    assert np.array_equal(found.samples, expected)


def test_memory_does_not_grow_with_the_number_of_points():
    def plan(n):
        return plan_panels(
            n=n,
            width=8,
            itemsize=8,
            budget_bytes=1 << 30,
            concurrency=2,
            from_points=True,
            sampled_rows=1000,
            clusters=30,
            outputs=0,
            row_results=34,
        )

    small, large = plan(10**5), plan(10**9)
    assert small.task_bytes == large.task_bytes
    assert small.peak_bytes == large.peak_bytes
    assert small.panels() == large.panels()


@pytest.mark.parametrize(
    ("sample_size", "message"),
    [
        (3, "sample_size is 3, but two points of each of the 2 clusters.*give 4 or more"),
        (1, "sample_size must be from 2 to n = 6; got 1"),
        (7, "sample_size must be from 2 to n = 6; got 7"),
        (4.0, "sample_size takes an integer; got 4.0"),
        (True, "sample_size takes an integer; got True"),
    ],
)
def test_wrong_sizes(sample_size, message):
    with pytest.raises(InputError, match=message):
        silhouette_score(oracles.X6, L6, sample_size=sample_size)


@pytest.mark.parametrize("random_state", ["seed", True, -1])
def test_wrong_seeds(random_state):
    with pytest.raises(InputError, match="random_state"):
        silhouette_score(oracles.X6, L6, sample_size=4, random_state=random_state)
