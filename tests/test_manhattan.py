"""Sums of Manhattan distances along sorted features against all distances, one by one."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction

import dask
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.spatial.distance import cdist
from sklearn.metrics import silhouette_samples

from silchunk import engine
from silchunk.cluster_sums import silhouettes_of
from silchunk.kernels import silhouette
from silchunk.manhattan import (
    FEATURES,
    manhattan_bytes,
    manhattan_sums,
    manhattan_task_bytes,
)
from silchunk.rows import ArrayRows, NpyRows

SYNCHRONOUS = engine.executor("synchronous")


def sums_of(X, codes, n_clusters=None, where=SYNCHRONOUS, **keywords):
    """(n, K); of points of any kind."""
    n_clusters = int(codes.max()) + 1 if n_clusters is None else n_clusters
    order = np.concatenate([np.flatnonzero(codes == c) for c in range(n_clusters)])
    edges = np.append(0, np.cumsum([np.sum(codes == c) for c in range(n_clusters)]))
    points = ArrayRows(X) if isinstance(X, np.ndarray) else X
    return manhattan_sums(points, order, edges, where=where, **keywords).T


def expected_sums(X, codes, n_clusters, weights=None):
    X = X.astype(np.float64)
    weights = np.ones(len(X)) if weights is None else weights
    sums = np.empty((len(X), n_clusters))
    for c in range(n_clusters):
        members = codes == c
        sums[:, c] = (cdist(X, X[members], "cityblock") * weights[members]).sum(axis=1)
    return sums


def points(kind, n, d, seed):
    rng = np.random.default_rng(seed)
    if kind == "normal":
        return rng.normal(size=(n, d))
    if kind == "ties":
        return rng.integers(-2, 3, (n, d)).astype(float)
    if kind == "constant":
        X = rng.normal(size=(n, d)) - 7
        X[:, ::2] = -3.25
        return X
    return rng.normal(size=(n, d)) ** 9  # tiny against large


def random_codes(n, n_clusters, seed, left_out=0.0):
    """Every cluster has a point."""
    rng = np.random.default_rng(seed)
    codes = np.append(np.arange(n_clusters), rng.integers(0, n_clusters, n - n_clusters))
    codes[n_clusters:][rng.random(n - n_clusters) < left_out] = -1
    return rng.permutation(codes).astype(np.int8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["normal", "ties", "constant", "spread"])
@pytest.mark.parametrize(
    ("n", "d", "n_clusters"),
    [
        (2, 1, 1),
        (2, 3, 2),
        (7, 1, 7),
        (50, FEATURES, 4),
        (51, FEATURES + 1, 5),
        (200, 2, 7),
        (300, 40, 40),
    ],
)
def test_all_distances(n, d, n_clusters, kind, dtype):
    X = points(kind, n, d, n).astype(dtype)
    codes = random_codes(n, n_clusters, d, left_out=0.2)
    sums = sums_of(X, codes, n_clusters)  # from points that have no cluster, too
    np.testing.assert_allclose(sums, expected_sums(X, codes, n_clusters), rtol=1e-12)


@pytest.mark.parametrize("code_dtype", [np.int8, np.int16, np.int32])
def test_many_clusters_of_one_point(code_dtype):
    X = points("normal", 90, 5, 0)
    codes = np.random.default_rng(1).permutation(90).astype(code_dtype)
    sums = sums_of(X, codes)
    np.testing.assert_allclose(sums[:, codes], cdist(X, X, "cityblock"), rtol=1e-14)
    assert not sums[np.arange(90), codes].any()


def test_duplicates_are_at_no_distance():
    X = np.repeat(points("spread", 6, 4, 3) + 1e5 / 3, 20, axis=0)
    codes = np.repeat(np.arange(6), 20)
    assert not sums_of(X, codes)[np.arange(120), codes].any()


def test_integers_are_points_too():
    X = np.random.default_rng(2).integers(-100, 100, (60, 3))
    codes = random_codes(60, 3, 2)
    assert np.array_equal(sums_of(X, codes), expected_sums(X, codes, 3))


def test_points_in_a_file(tmp_path):
    X = points("normal", 80, 20, 4).astype(np.float32)
    np.save(tmp_path / "X.npy", X)
    codes = random_codes(80, 5, 4, left_out=0.1)
    stored = NpyRows(str(tmp_path / "X.npy"), X.shape, X.dtype)
    assert np.array_equal(sums_of(stored, codes), sums_of(X, codes))


def test_everything_left_out():
    X = points("normal", 10, 2, 0)
    assert not sums_of(X, np.full(10, -1), 3).any()


def tight_and_far(seed=0):
    """Three tight clusters far from the origin, and one far from these."""
    rng = np.random.default_rng(seed)
    codes = random_codes(250, 4, seed)
    offsets = np.array([1e6, 1e6 + 0.5, -1e6, 1e9])
    return offsets[codes][:, None] + 1e-3 * rng.normal(size=(250, 6)), codes


def test_tight_clusters_far_from_the_origin():
    X, codes = tight_and_far()
    np.testing.assert_allclose(sums_of(X, codes), expected_sums(X, codes, 4), rtol=1e-9)


def test_an_outlier_in_a_cluster_of_its_own_kind():
    X, codes = tight_and_far(1)
    codes[codes == 3] = 0  # its tight points are a billion away from its others
    np.testing.assert_allclose(sums_of(X, codes), expected_sums(X, codes, 3), rtol=1e-12)


def exact_sums(X, codes, n_clusters):
    rational = [[Fraction(float(x)) for x in row] for row in X]
    return [
        [
            sum(
                abs(x - y)
                for other, code in zip(rational, codes, strict=True)
                if code == c
                for x, y in zip(row, other, strict=True)
            )
            for c in range(n_clusters)
        ]
        for row in rational
    ]


MOST_CLUSTERS = 5


@st.composite
def labelled_points(draw):
    n, d = draw(st.integers(2, 12)), draw(st.integers(1, 3))
    anything = st.floats(-1e150, 1e150)
    repeated = st.sampled_from([0.0, -0.0, 1.0, -1e-9, 1e9, 1e9 + 1e-6, 5e-324])
    X = draw(hnp.arrays(np.float64, (n, d), elements=anything | repeated))
    codes = draw(hnp.arrays(np.int8, n, elements=st.integers(-1, MOST_CLUSTERS - 1)))
    return X, codes


@settings(max_examples=150, deadline=None)
@given(labelled_points())
def test_error_is_as_small_as_promised(labelled):
    X, codes = labelled
    sums = sums_of(X, codes, MOST_CLUSTERS)
    exact = exact_sums(X, codes, MOST_CLUSTERS)
    sizes = np.bincount(codes[codes >= 0], minlength=MOST_CLUSTERS).tolist()
    for i in range(len(X)):
        for c, size in enumerate(sizes):
            slack = Fraction(2 * size + X.shape[1] + 10, 2**53) * exact[i][c]
            assert abs(Fraction(sums[i, c]) - exact[i][c]) <= slack


@settings(max_examples=50, deadline=None)
@given(labelled_points(), st.randoms(use_true_random=False))
def test_names_of_clusters_do_not_matter(labelled, random):
    X, codes = labelled
    renamed = random.sample(range(MOST_CLUSTERS), MOST_CLUSTERS)
    other = np.array([*renamed, -1], np.int8)[codes]  # -1 is the last, too
    sums = sums_of(X, other, MOST_CLUSTERS)[:, renamed]
    assert np.array_equal(sums_of(X, codes, MOST_CLUSTERS), sums)


@pytest.mark.parametrize("kind", ["normal", "ties", "spread"])
def test_weights_are_copies(kind):
    X = points(kind, 70, 18, 5)
    codes = random_codes(70, 6, 5, left_out=0.1)
    weights = np.random.default_rng(5).integers(1, 5, 70)
    sums = sums_of(X, codes, sample_weight=weights.astype(float))
    copied = sums_of(np.repeat(X, weights, axis=0), np.repeat(codes, weights))
    firsts = np.cumsum(weights) - weights
    np.testing.assert_allclose(sums, copied[firsts], rtol=1e-12)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_fractional_weights(scale):
    X, codes = tight_and_far(2)
    weights = scale * np.random.default_rng(6).random(250) ** 8
    weights[::7] = 0.0
    sums = sums_of(X, codes, sample_weight=weights)
    np.testing.assert_allclose(sums, expected_sums(X, codes, 4, weights), rtol=1e-9)


def test_weights_of_one_change_nothing():
    X, codes = points("normal", 60, 3, 7), random_codes(60, 3, 7)
    assert np.array_equal(sums_of(X, codes), sums_of(X, codes, sample_weight=np.ones(60)))


@pytest.mark.parametrize("n_workers", [1, 2, 5])
@pytest.mark.parametrize("weighted", [False, True])
def test_threads_do_not_change_a_bit(n_workers, weighted):
    X = points("ties", 300, 2 * FEATURES + 3, 8) / 3
    codes = random_codes(300, 9, 8, left_out=0.1)
    weights = np.random.default_rng(8).random(300) if weighted else None
    alone = sums_of(X, codes, sample_weight=weights)
    with dask.config.set(num_workers=n_workers):
        where = engine.executor("threads")
        assert np.array_equal(alone, sums_of(X, codes, where=where, sample_weight=weights))
        one = sums_of(X, codes, where=where, sample_weight=weights, concurrency=1)
    assert np.array_equal(alone, one)


@pytest.mark.parametrize("kind", ["normal", "ties", "constant"])
def test_silhouettes(kind):
    X = points(kind, 150, 7, 9)
    codes = random_codes(150, 9, 9)
    codes[codes == 8] = np.where(np.arange((codes == 8).sum()), 7, 8)  # one point is alone
    result = silhouettes_of(sums_of(X, codes), codes, np.bincount(codes).astype(float))
    expected = silhouette_samples(X, codes, metric="manhattan")
    np.testing.assert_allclose(result[:, silhouette.S], expected, rtol=0, atol=1e-10)


def test_progress_names_the_features():
    seen = []
    X, codes = points("normal", 20, FEATURES + 1, 0), random_codes(20, 3, 0)
    sums_of(X, codes, progress=lambda done, total: seen.append((done, total)))
    sorting = [(k + 1, FEATURES) for k in range(FEATURES)]
    adding = [(1, 3), (2, 3), (3, 3)]
    assert seen == [*sorting, *adding, (1, 1), *adding]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("d", "n_clusters", "workers", "share"),
    [(1, 1, 1, 1.0), (1, 20, 1, 0.05), (3, 2, 2, 0.5), (33, 2, 2, 0.9), (20, 30, 4, 0.6)],
)
def test_memory_is_as_planned(d, n_clusters, workers, share, dtype):
    n = 400_000 // d
    X = np.sort(points("normal", n, d, 0), axis=0).astype(dtype)
    codes = np.arange(n) // -(-n // n_clusters)  # of which the last lies beyond all others
    codes[: int(share * n)] = 0
    weights = np.ones(n)
    with dask.config.set(num_workers=workers):
        where = engine.executor("threads")
        tracemalloc.start()
        try:
            sums_of(X, codes, n_clusters, where, sample_weight=weights)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    held = manhattan_bytes(n, n_clusters, min(d, max(FEATURES, workers)))
    task = manhattan_task_bytes(n, int(np.bincount(codes).max()))
    small_objects = 1 << 19  # of Python and Dask, whatever n
    order = 8 * n
    assert peak < order + held + min(workers, max(d, n_clusters)) * task + small_objects
    assert peak > (order + held + task) / 2  # threads may take turns
