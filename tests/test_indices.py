"""Indices of centroids against scikit-learn, definitions and values worked out by hand."""

from __future__ import annotations

import dask.array as da
import numpy as np
import oracles
import pytest
import zarr
from sklearn import datasets, metrics
from sklearn.metrics import pairwise_distances

import silchunk
from silchunk import InputError, OverBudgetError, SilchunkWarning
from silchunk.errors import CoincidentCentroidsWarning
from silchunk.indices import (
    calinski_harabasz_score,
    davies_bouldin_score,
    simplified_silhouette_samples,
    simplified_silhouette_score,
)

EVERY = (
    davies_bouldin_score,
    calinski_harabasz_score,
    simplified_silhouette_samples,
    simplified_silhouette_score,
)
SEEDS = [
    *[(5.1, 3.5, 1.4, 0.2), (4.9, 3, 1.4, 0.2), (5, 3.3, 1.4, 0.2)],
    *[(4.9, 2.4, 3.3, 1), (6.6, 2.9, 4.6, 1.3)],
    *[(6.5, 3, 5.5, 1.8), (7.7, 3.8, 6.7, 2.2), (7.2, 3.2, 6, 1.8), (6.4, 2.8, 5.6, 2.1)],
]
SEED_LABELS = [0] * 3 + [1] * 2 + [2] * 4


def blobs(n, d, n_clusters, seed=0, n_alone=0):
    """Points and labels, the last ``n_alone`` clusters having one point each."""
    X, labels = datasets.make_blobs(n, d, centers=n_clusters - n_alone, random_state=seed)
    labels[:n_alone] = n_clusters - n_alone + np.arange(n_alone)
    return X, labels


def davies_bouldin(X, labels):
    """By the definition, one pair of clusters at a time."""
    own = [X[labels == c] for c in np.unique(labels)]
    means = [part.mean(axis=0) for part in own]
    S = [np.linalg.norm(part - m, axis=1).mean() for part, m in zip(own, means, strict=True)]
    clusters = range(len(own))
    similarities = [
        [(S[i] + S[j]) / np.linalg.norm(means[i] - means[j]) for j in clusters if j != i]
        for i in clusters
    ]
    return np.mean([max(row) for row in similarities])


def simplified(X, labels, metric="euclidean"):
    """By the definition, one point at a time."""
    classes = np.unique(labels).tolist()
    points = X / np.linalg.norm(X, axis=1)[:, None] if metric == "cosine" else X
    centroids = np.array([points[labels == c].mean(axis=0) for c in classes])
    D = pairwise_distances(X, centroids, metric=metric)
    values = np.zeros(len(X))
    for i, label in enumerate(labels):
        own = classes.index(label)
        a, b = D[i, own], np.delete(D[i], own).min()
        if (labels == label).sum() > 1:
            values[i] = (b - a) / max(a, b)
    return values


@pytest.mark.parametrize(
    ("n", "d", "n_clusters", "n_alone"),
    [(60, 1, 2, 0), (300, 4, 5, 2), (500, 40, 200, 100), (9000, 3, 7, 1), (40, 3, 39, 30)],
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_scikit_learn(n, d, n_clusters, n_alone, dtype):
    X, labels = blobs(n, d, n_clusters, n, n_alone)
    X = X.astype(dtype)
    exact = X.astype(np.float64)  # in float32, scikit-learn loses digits and we do not
    found = davies_bouldin_score(X, labels)
    assert found == pytest.approx(davies_bouldin(exact, labels), rel=1e-12)
    # By a matrix product, scikit-learn has single points some 1e-8 away from themselves.
    reference = metrics.davies_bouldin_score(exact, labels)
    assert found == pytest.approx(reference, rel=1e-6 if n_alone else 1e-11)
    assert calinski_harabasz_score(X, labels) == pytest.approx(
        metrics.calinski_harabasz_score(exact, labels), rel=1e-11
    )


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "cosine"])
def test_simplified_silhouette_by_definition(metric):
    X, labels = blobs(400, 3, 6, n_alone=2)
    expected = simplified(X, labels, metric)
    samples = simplified_silhouette_samples(X, labels, metric=metric)
    np.testing.assert_allclose(samples, expected, rtol=0, atol=1e-9)
    micro = simplified_silhouette_score(X, labels, metric=metric)
    assert micro == pytest.approx(expected.mean(), abs=1e-10)
    macro = simplified_silhouette_score(X, labels, metric=metric, average="macro")
    by_cluster = [expected[labels == c].mean() for c in range(6)]
    assert macro == pytest.approx(np.mean(by_cluster), abs=1e-10)


def test_simplified_is_not_the_silhouette():
    X, labels = oracles.two_groups(4), np.repeat([0, 1], 50)
    assert simplified_silhouette_score(X, labels) == pytest.approx(0.665687, abs=5e-7)
    assert metrics.silhouette_score(X, labels) == pytest.approx(0.545253, abs=5e-7)


def test_seeds():
    found = davies_bouldin_score(SEEDS, SEED_LABELS)
    expected = metrics.davies_bouldin_score(SEEDS, SEED_LABELS)
    assert found == pytest.approx(expected, rel=1e-12)


def test_coincident_centroids():
    X = [[-1, 0], [1, 0], [0, -1], [0, 1], [5, 5], [6, 6]]
    labels = ["h", "h", "v", "v", "far", "far"]
    with pytest.warns(CoincidentCentroidsWarning, match="labelled 'h' and 'v' coincide: their"):
        found = davies_bouldin_score(X, labels)
    assert found == pytest.approx(0.2194740, abs=5e-8)
    assert found == pytest.approx(metrics.davies_bouldin_score(X, labels), rel=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_centroids_that_differ_by_rounding_coincide(seed):
    rng = np.random.default_rng(seed)
    first, half = rng.normal(size=(7, 3)) + 50, rng.normal(size=3)
    second = first.mean(axis=0) + [-half, half]
    third = rng.normal(size=(4, 3))
    X, labels = np.concatenate([first, second, third]), np.repeat([0, 1, 2], [7, 2, 4])
    with pytest.warns(CoincidentCentroidsWarning, match="labelled 0 and 1 coincide"):
        found = davies_bouldin_score(X, labels)
    similarities = [
        davies_bouldin(X[labels != left_out], labels[labels != left_out]) for left_out in (1, 0)
    ]
    expected = (sum(similarities) + max(similarities)) / 3
    assert found == pytest.approx(expected, rel=1e-12)


def test_many_pairs_of_coincident_centroids_are_counted():
    X = [[0.0], [0.0], [0.0], [0.0], [0.0], [0.0], [1.0], [2.0]]
    with pytest.warns(CoincidentCentroidsWarning, match="0 and 1 coincide, as do.*2 more pairs"):
        davies_bouldin_score(X, [0, 0, 1, 1, 2, 2, 3, 3])


def test_tight_clusters():
    X, labels = np.repeat([[0.1, 0.2], [3.0, 4.0], [0.7, -2.0]], 5, axis=0), np.repeat([0, 1, 2], 5)
    assert davies_bouldin_score(X, labels) == metrics.davies_bouldin_score(X, labels) == 0.0
    assert calinski_harabasz_score(X, labels) == 1.0
    whole = np.round(X)  # whose means scikit-learn gets exactly
    assert metrics.calinski_harabasz_score(whole, labels) == 1.0
    assert simplified_silhouette_samples(X, labels).tolist() == [1.0] * 15


def test_units_make_no_difference():
    X, labels = blobs(100, 3, 4)
    for index in (davies_bouldin_score, calinski_harabasz_score, simplified_silhouette_score):
        # A power of two changes no digit.
        assert index(X * 2.0**-60, labels) == index(X, labels) == index(X * 2.0**60, labels)


@pytest.mark.parametrize("shift", [1e8, -1e8])
def test_far_from_the_origin(shift):
    X, labels = blobs(2000, 3, 4)
    near = (X + shift) - shift  # what is left of the points there, exactly
    for index in (davies_bouldin_score, calinski_harabasz_score, simplified_silhouette_score):
        assert index(X + shift, labels) == pytest.approx(index(near, labels), rel=1e-7)


def test_labels_of_any_kind_and_in_any_order():
    X, labels = blobs(300, 3, 5)
    names = np.array(["e", "a", "d", "b", "c"])[labels]
    order = np.random.default_rng(0).permutation(300)
    for index in (davies_bouldin_score, calinski_harabasz_score, simplified_silhouette_score):
        expected = index(X, labels)
        assert index(X, names) == pytest.approx(expected, rel=1e-13)
        assert index(X, list(names)) == index(X, names)
        assert index(X[order], labels[order]) == pytest.approx(expected, rel=1e-12)


def test_noise():
    X, labels = blobs(200, 2, 4)
    labels = labels - 1
    kept = labels >= 0
    for index, reference in (
        (davies_bouldin_score, metrics.davies_bouldin_score),
        (calinski_harabasz_score, metrics.calinski_harabasz_score),
    ):
        dropped = index(X, labels, noise="drop")
        assert dropped == pytest.approx(reference(X[kept], labels[kept]), rel=1e-9)
        alone = np.where(kept, labels, 3 + np.arange(200))
        assert index(X, labels, noise="singleton") == pytest.approx(reference(X, alone), rel=1e-6)
        with pytest.warns(SilchunkWarning, match="labels have -1 for 50 points"):
            assert index(X, labels) == index(X, labels, noise="cluster")
    samples = simplified_silhouette_samples(X, labels, noise="drop")
    assert np.array_equal(np.isnan(samples), ~kept)
    expected = simplified(X[kept], labels[kept])
    np.testing.assert_allclose(samples[kept], expected, atol=1e-10)
    for average in ("micro", "macro"):
        assert simplified_silhouette_score(
            X, labels, noise="drop", average=average
        ) == pytest.approx(
            simplified_silhouette_score(X[kept], labels[kept], average=average), rel=1e-12
        )


@pytest.mark.parametrize("index", EVERY)
def test_same_bits_however_points_are_stored(index, tmp_path):
    X, labels = blobs(20_000, 3, 5)
    expected = index(X, labels, scheduler="synchronous")
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "labels.npy", labels)
    stored = zarr.create_array(tmp_path / "x.zarr", shape=X.shape, chunks=(700, 2), dtype=X.dtype)
    stored[:] = X
    for points in (
        X,
        tmp_path / "x.npy",
        str(tmp_path / "x.zarr"),
        stored,
        da.from_array(X, chunks=(3000, 2)),
    ):
        assert np.array_equal(index(points, labels, scheduler="threads"), expected)
        assert np.array_equal(index(points, tmp_path / "labels.npy", memory="240MiB"), expected)


@pytest.mark.cluster
@pytest.mark.parametrize("index", EVERY)
def test_same_bits_on_a_cluster(index, client):
    X, labels = blobs(9000, 3, 5)
    assert np.array_equal(index(X, labels, scheduler=client), index(X, labels))


@pytest.mark.parametrize("index", EVERY)
def test_wrong_input(index, tmp_path):
    X, labels = blobs(60, 2, 3)
    with pytest.raises(InputError, match="name 1 cluster among 60 points; from 2 to n - 1 = 59"):
        index(X, [0] * 60)
    with pytest.raises(InputError, match="name 60 clusters among 60 points; from 2 to n - 1 = 59"):
        index(X, range(60))
    with pytest.raises(InputError, match="one entry for each of the 60 points"):
        index(X, labels[:-1])
    with pytest.raises(InputError, match="noise must be one of"):
        index(X, labels, noise="ignore")
    with pytest.raises(InputError, match="X has nan at row 7, column 1"):
        index(np.where(np.arange(120).reshape(60, 2) == 15, np.nan, X), labels)
    with pytest.raises(OverBudgetError, match="Raise memory="):
        index(X, labels, memory="1MiB")
    matrix = silchunk.build_distances(X, tmp_path / "d.zarr")
    for stored in (matrix, tmp_path / "d.zarr"):
        with pytest.raises(InputError, match="stored distance matrix.*centroids need points"):
            index(stored, labels)


@pytest.mark.parametrize("metric", ["manhattan", "precomputed", np.linalg.norm])
def test_metrics_without_centroids(metric):
    X, labels = blobs(60, 2, 3)
    with pytest.raises(InputError, match="one of euclidean, sqeuclidean, cosine"):
        simplified_silhouette_samples(X, labels, metric=metric)


def test_wrong_average():
    with pytest.raises(InputError, match="average must be 'micro' or 'macro'; got 'median'"):
        simplified_silhouette_score(oracles.X6, [0, 0, 0, 1, 1, 1], average="median")


def test_directions_that_do_not_exist():
    with pytest.raises(InputError, match="zero throughout row 2"):
        simplified_silhouette_samples([[1, 0], [0, 1], [0, 0]], [0, 0, 1], metric="cosine")
    opposite = [[1, 0], [-2, 0], [0, 1], [0, 3]]
    with pytest.raises(InputError, match="labelled 'x' cancel"):
        simplified_silhouette_samples(opposite, ["x", "x", "y", "y"], metric="cosine")
