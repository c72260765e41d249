"""Silhouettes against their definition and scikit-learn, in every way that they are computed."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from silhouette_inputs import blobs, definition, run_only, ways_taken
from sklearn.metrics import silhouette_samples as reference_samples

import silchunk
from silchunk import SlowMetricWarning, silhouette_samples, silhouette_score, silhouette_table
from silchunk.silhouette_jobs import ByCentroids, ByCoordinates, ByPairs, ByRows

METRICS = {
    "euclidean": {},
    "sqeuclidean": {},
    "cosine": {},
    "manhattan": {},
    "chebyshev": {},
    "minkowski": {"p": 3},
}
SCIPY = {"manhattan": "cityblock"}
# Every way with a metric that it is for.
WAYS = [
    (ByPairs(), "euclidean"),
    (ByPairs(), "chebyshev"),
    (ByRows(), "euclidean"),
    (ByRows(), "manhattan"),
    (ByCoordinates(), "manhattan"),
    (ByCentroids(directions=False), "sqeuclidean"),
    (ByCentroids(directions=True), "cosine"),
]
WEIGHTED_WAYS = [(way, metric) for way, metric in WAYS if not isinstance(way, ByPairs)]


def distances(X, metric):
    X = np.asarray(X, np.float64)
    D = cdist(X, X, SCIPY.get(metric, metric), **METRICS[metric])
    np.fill_diagonal(D, 0)
    return D


def samples(X, labels, metric="euclidean", **options):
    return silhouette_samples(X, labels, metric=metric, metric_params=METRICS[metric], **options)


# The definition, then scikit-learn.


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("dtype", "atol"), [(np.float64, 1e-12), (np.float32, 3e-6)])
def test_definition(metric, dtype, atol):
    for n_clusters, alone in ((2, 0), (5, 2), (40, 25)):
        X, labels = blobs(90, 3, n_clusters, alone=alone, seed=n_clusters, dtype=dtype)
        expected = definition(distances(X, metric), labels)
        np.testing.assert_allclose(samples(X, labels, metric), expected.s, rtol=0, atol=atol)


@pytest.mark.parametrize("n", [63, 64, 65, 255, 256, 257, 1023, 1024, 1025, 1300])
def test_lengths_that_no_tile_divides(n, monkeypatch):
    X, labels = blobs(n, 2, 7, alone=1, seed=n)
    for way, metric in WAYS:
        run_only(monkeypatch, way)
        expected = reference_samples(distances(X, metric), labels, metric="precomputed")
        np.testing.assert_allclose(samples(X, labels, metric), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n_clusters", [2, 3, 17, 40])
def test_distance_matrices(n_clusters, tmp_path):
    X, labels = blobs(300, 3, n_clusters, alone=n_clusters // 4)
    D = distances(X, "euclidean")
    expected = reference_samples(D, labels, metric="precomputed")
    stored = silchunk.build_distances(X, tmp_path / "d.zarr")
    for matrix in (stored, tmp_path / "d.zarr"):
        np.testing.assert_allclose(silhouette_samples(matrix, labels), expected, atol=1e-6)
    found = silhouette_samples(D, labels, metric="precomputed")
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    np.save(tmp_path / "d.npy", D)
    for matrix in (tmp_path / "d.npy", da.from_array(D, chunks=(70, 110))):
        assert np.array_equal(silhouette_samples(matrix, labels, metric="precomputed"), found)


def canberra(u, v):
    return float(np.sum(np.abs(u - v) / (np.abs(u) + np.abs(v))))


@pytest.mark.parametrize("scheduler", ["threads", "synchronous"])
def test_a_callable(scheduler):  # scikit-learn#24903
    X, labels = blobs(80, 3, 4)
    D = [[canberra(u, v) for v in X] for u in X]
    with pytest.warns(SlowMetricWarning, match="callable metric 'canberra' runs serially"):
        found = silhouette_samples(X, labels, metric=canberra, scheduler=scheduler)
    np.testing.assert_allclose(found, definition(D, labels).s, rtol=0, atol=1e-12)


def not_quite_zero(u, v):
    return float(np.abs(u - v).max()) + 1e-8  # from a point to itself as well


@pytest.mark.parametrize("way", [ByPairs(), ByRows()])
def test_the_distance_to_itself_counts_for_nothing(way, monkeypatch):
    run_only(monkeypatch, way)
    X, labels = blobs(70, 2, 4)
    D = [[not_quite_zero(u, v) for v in X] for u in X]
    with pytest.warns(SlowMetricWarning):
        table = silhouette_table(X, labels, metric=not_quite_zero)
    np.testing.assert_allclose(table.a, definition(D, labels).a, rtol=0, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_ties_and_equal_points(data):
    n = data.draw(st.integers(3, 20))
    coordinates = st.lists(st.integers(0, 3), min_size=2, max_size=2)
    X = np.array(data.draw(st.lists(coordinates, min_size=n, max_size=n)), float)
    n_clusters = data.draw(st.integers(2, n - 1))
    labels = [*range(n_clusters), *data.draw(
        st.lists(st.integers(0, n_clusters - 1), min_size=n - n_clusters, max_size=n - n_clusters)
    )]  # fmt: skip
    for metric in ("euclidean", "sqeuclidean", "manhattan", "chebyshev"):
        expected = definition(distances(X, metric), labels)
        found = silhouette_table(X, labels, metric=metric)
        np.testing.assert_allclose(found.samples, expected.s, rtol=0, atol=1e-12)
        np.testing.assert_allclose(found.b, expected.b, rtol=1e-12, atol=1e-12)


# The ways.


@pytest.mark.parametrize(("way", "metric"), WAYS)
def test_every_way_gives_the_same(way, metric, monkeypatch):
    X, labels = blobs(700, 4, 9, alone=2)
    run_only(monkeypatch, ByRows())
    by_rows = samples(X, labels, metric)
    run_only(monkeypatch, way)
    np.testing.assert_allclose(samples(X, labels, metric), by_rows, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("metric", "n_clusters", "taken"),
    [
        ("euclidean", 10, ["ByPairs"]),
        ("euclidean", 60, ["ByRows"]),  # 10 points each: too many clusters in a panel
        ("minkowski", 10, ["ByPairs"]),
        ("manhattan", 10, ["ByCoordinates"]),
        ("sqeuclidean", 60, ["ByCentroids"]),
        ("cosine", 60, ["ByCentroids"]),
    ],
)
def test_the_way_that_suits_is_taken(metric, n_clusters, taken, monkeypatch):
    X, labels = blobs(600, 3, n_clusters)
    found = ways_taken(monkeypatch)
    expected = reference_samples(distances(X, metric), labels, metric="precomputed")
    np.testing.assert_allclose(samples(X, labels, metric), expected, rtol=0, atol=1e-12)
    assert found == taken


@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
def test_small_memory_takes_another_way_to_the_same(metric, monkeypatch):
    import numba  # noqa: F401 (where it is there, every plan counts it)

    X, labels = blobs(6000, 2, 30)
    found = ways_taken(monkeypatch)
    much = samples(X, labels, metric, memory="4GiB")
    little = samples(X, labels, metric, memory="237MiB")
    assert found == ["ByPairs" if metric == "euclidean" else "ByCoordinates", "ByRows"]
    np.testing.assert_allclose(little, much, rtol=0, atol=1e-12)


def test_a_point_of_weight_zero_may_be_anywhere():
    X, labels = blobs(600, 2, 2)
    weights = np.full(600, 1e10)
    expected = samples(X, labels, "manhattan", sample_weight=weights)
    X[17], weights[17] = 1e299, 0
    found = samples(X, labels, "manhattan", sample_weight=weights)
    assert np.isnan(found[17])
    there = np.arange(600) != 17
    np.testing.assert_allclose(found[there], expected[there], rtol=0, atol=0.01)  # one point less


@pytest.mark.parametrize("metric", METRICS)
def test_the_same_bits_in_any_schedule(metric):
    X, labels = blobs(1300, 3, 6)
    expected = samples(X, labels, metric, scheduler="synchronous")
    assert np.array_equal(samples(X, labels, metric, scheduler="threads"), expected)
    for workers in (1, 3):
        with dask.config.set(num_workers=workers):
            assert np.array_equal(samples(X, labels, metric), expected)


def test_the_same_bits_however_points_are_stored(tmp_path):
    X, labels = blobs(1300, 5, 12)
    names = np.array([f"cluster {label}" for label in labels])
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "labels.npy", names)
    stored = zarr.create_array(tmp_path / "x.zarr", shape=X.shape, chunks=(170, 2), dtype=X.dtype)
    stored[:] = X
    codes = zarr.create_array(tmp_path / "l.zarr", shape=1300, chunks=170, dtype=np.int32)
    codes[:] = labels
    lazy = da.from_array(X, chunks=(300, 3))
    for metric in METRICS:
        expected = samples(X, labels, metric)
        for points in (X.tolist(), tmp_path / "x.npy", str(tmp_path / "x.zarr"), stored, lazy):
            assert np.array_equal(samples(points, labels, metric), expected)
    for codes_of_any_kind in (tmp_path / "l.zarr", codes, da.from_array(labels, chunks=77)):
        assert np.array_equal(samples(X, codes_of_any_kind), samples(X, labels))
    by_name = samples(X, tmp_path / "labels.npy")  # clusters in another order
    np.testing.assert_allclose(by_name, samples(X, labels), rtol=0, atol=1e-12)


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("metric", METRICS)
def test_a_cluster_of_workers(metric, client):
    X, labels = blobs(1300, 3, 6)
    expected = samples(X, labels, metric)
    np.testing.assert_allclose(
        samples(X, labels, metric, scheduler=client), expected, rtol=0, atol=1e-12
    )
    if metric != "manhattan":  # which goes by coordinates on one machine alone
        assert np.array_equal(samples(X, labels, metric, scheduler=client), expected)


@pytest.mark.cluster
@pytest.mark.slow
def test_weights_matrices_and_samples_on_a_cluster_of_workers(client, tmp_path):
    X, labels = blobs(500, 3, 6)
    weights = np.arange(500) % 4
    stored = silchunk.build_distances(X, tmp_path / "d.zarr")
    for points, options in (
        (X, {"sample_weight": weights}),
        (X, {"sample_weight": weights, "metric": "cosine"}),
        (X, {"sample_size": 70, "random_state": 0}),
        (stored, {}),
        (stored, {"sample_size": 70, "random_state": 0}),
    ):
        local = silhouette_table(points, labels, **options)
        assert np.array_equal(
            silhouette_table(points, labels, scheduler=client, **options).samples,
            local.samples,
            equal_nan=True,
        )


# What must not matter.


@pytest.mark.parametrize(("way", "metric"), WAYS)
def test_order_of_points(way, metric, monkeypatch):
    run_only(monkeypatch, way)
    X, labels = blobs(400, 3, 8, alone=1)
    order = np.random.default_rng(1).permutation(400)
    np.testing.assert_allclose(
        samples(X[order], labels[order], metric),
        samples(X, labels, metric)[order],
        rtol=0,
        atol=1e-12,
    )


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine"])
def test_names_of_labels(metric):
    X, labels = blobs(400, 3, 8)
    expected = samples(X, labels, metric)
    for names in (
        [f"cluster {label}" for label in labels],
        labels * 1000 - 300,  # gaps, negative
        labels.astype(float) + 0.5,
        [(label, "x") for label in labels.tolist()],
    ):
        assert np.array_equal(samples(X, names, metric), expected)
    backwards = samples(X, -labels - 2, metric)
    np.testing.assert_allclose(backwards, expected, rtol=0, atol=1e-12)


# Weights are copies of points.


@pytest.mark.parametrize(("way", "metric"), WEIGHTED_WAYS)
def test_weights(way, metric, monkeypatch):
    run_only(monkeypatch, way)
    X, labels = blobs(60, 3, 6, alone=2)
    weights = np.random.default_rng(0).integers(0, 4, 60)
    weights[labels == 0] = 0  # a cluster that is gone
    weights[labels == 4] = 1  # a point alone
    weights[labels == 5] = 3  # a point with its copies
    copies = np.repeat(np.arange(60), weights)
    expected = definition(distances(X, metric)[np.ix_(copies, copies)], labels[copies])
    table = silhouette_table(X, labels, metric=metric, sample_weight=weights)
    for found, column in (
        (table.a, expected.a),
        (table.b, expected.b),
        (table.samples, expected.s),
    ):
        np.testing.assert_allclose(found[copies], column, rtol=0, atol=1e-11)
        assert np.array_equal(np.isnan(found[weights == 0]), np.ones((weights == 0).sum(), bool))
    nearest = [table.nearest[i] for i in copies]
    assert nearest == expected.nearest
    assert table.micro == pytest.approx(expected.s.mean(), abs=1e-12)


def test_weights_of_a_matrix():
    X, labels = blobs(60, 3, 4)
    weights = np.arange(60) % 3
    copies = np.repeat(np.arange(60), weights)
    D = distances(X, "euclidean")
    expected = definition(D[np.ix_(copies, copies)], labels[copies])
    found = silhouette_samples(D, labels, metric="precomputed", sample_weight=weights)
    np.testing.assert_allclose(found[copies], expected.s, rtol=0, atol=1e-12)


def test_weights_of_one_and_half():
    X, labels = blobs(200, 3, 4)
    by_weight = silhouette_samples(X, labels, sample_weight=np.ones(200))
    np.testing.assert_allclose(by_weight, silhouette_samples(X, labels), rtol=0, atol=1e-12)
    # Four copies in two clusters, though only two points are there.
    assert silhouette_samples([[0.0], [1.0]], [0, 1], sample_weight=[2, 2]).tolist() == [1.0, 1.0]
    half = silhouette_table(X, labels, sample_weight=np.full(200, 0.5))
    counts = np.bincount(labels) / 2
    D = distances(X, "euclidean")
    own = [D[i, labels == labels[i]].sum() / 2 / (counts[labels[i]] - 1) for i in range(200)]
    np.testing.assert_allclose(half.a, own, rtol=1e-12)


# Noise.


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("noise", ["cluster", "drop", "singleton"])
def test_noise(noise, metric):
    X, labels = blobs(200, 3, 5)
    labels = labels - 1
    kept = np.full(200, True)
    meant = labels.copy()
    if noise == "drop":
        kept = labels >= 0
    elif noise == "singleton":
        meant[labels < 0] = 10 + np.arange((labels < 0).sum())
    D = distances(X, metric)[np.ix_(kept, kept)]
    expected = reference_samples(D, meant[kept], metric="precomputed")
    found = samples(X, labels, metric, noise=noise)
    np.testing.assert_allclose(found[kept], expected, rtol=0, atol=1e-12)
    assert np.isnan(found[~kept]).all()


def test_the_mean_of_samples():
    X, labels = blobs(300, 3, 5)
    values = silhouette_samples(X, labels)
    assert silhouette_score(X, labels) == pytest.approx(values.mean(), abs=1e-14)
    of_clusters = np.mean([values[labels == c].mean() for c in range(5)])
    assert silhouette_score(X, labels, average="macro") == pytest.approx(of_clusters, abs=1e-14)
    assert type(silhouette_score(X, labels)) is float
