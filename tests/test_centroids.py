"""Moments of clusters and what follows from them, against double loops over all distances."""

from __future__ import annotations

import pickle

import numpy as np
import oracles
import pytest
from scipy.spatial.distance import cdist

from silchunk import InputError
from silchunk.centroids import (
    CentroidDistances,
    CentroidSums,
    Moments,
    grid_ranges,
    mean_distances,
    moments,
)
from silchunk.kernels.silhouette import NEAREST, A, B, S
from silchunk.labels import StoredVector
from silchunk.plan import GRID_ROWS
from silchunk.prepare import Arguments, Needs, prepared
from silchunk.rows import ArrayRows

LEFT_OUT = -1


def clustered(n, d, n_clusters, seed=0, dtype=np.float64):
    """Points in blobs that overlap, codes of which every one occurs, and some left out."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(-1, n_clusters, n)
    codes[:n_clusters] = np.arange(n_clusters)
    X = rng.normal(size=(n, d)) + 2.0 * rng.normal(size=(n_clusters + 1, d))[codes]
    return X.astype(dtype), codes


def found_moments(X, codes, sample_weight=None, directions=False, **arguments):
    metric = "cosine" if directions else "euclidean"
    n_clusters = int(codes[:].max()) + 1 if isinstance(codes, np.ndarray) else arguments.pop("K")
    needs = Needs(outputs=0, row_results=4, clusters=n_clusters)
    with prepared(X, Arguments(metric, **arguments), needs_of=lambda n: needs) as job:
        found = moments(job, codes, n_clusters, sample_weight, directions=directions)
        return found, mean_distances(job, codes, found, sample_weight)


def silhouettes(X, codes, found, rows=None):
    start, stop = rows or (0, len(X))
    return CentroidSums(ArrayRows(X), codes, found)(start, stop)


def by_definition(X, codes, metric):
    """(n, 4): a, b, s and the nearest other cluster from the matrix of distances."""
    D = cdist(X.astype(np.float64), X.astype(np.float64), metric)
    expected = np.full((len(X), 4), np.nan)
    for i in np.flatnonzero(codes >= 0):
        others = {c: D[i, codes == c].mean() for c in range(codes.max() + 1) if c != codes[i]}
        nearest = min(others, key=others.get)
        own = (codes == codes[i]) & (np.arange(len(X)) != i)
        expected[i, [B, S, NEAREST]] = others[nearest], 0.0, nearest
        if own.any():
            a, b = D[i, own].mean(), others[nearest]
            expected[i, [A, S]] = a, (b - a) / max(a, b)
    return expected


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine"])
@pytest.mark.parametrize(("n", "d", "n_clusters"), [(40, 1, 3), (300, 5, 4), (301, 33, 250)])
def test_silhouettes_by_definition(n, d, n_clusters, metric, dtype):
    X, codes = clustered(n, d, n_clusters, dtype=dtype)
    found, _ = found_moments(X, codes, directions=metric == "cosine")
    expected = by_definition(X, codes, metric)
    given = silhouettes(X, codes, found)
    # In one dimension all directions are ±1: ties, and distances of 0.
    columns = [B, S] if (metric, d) == ("cosine", 1) else [A, B, S, NEAREST]
    np.testing.assert_allclose(given[:, columns], expected[:, columns], rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("directions", [False, True])
def test_moments_by_definition(directions):
    X, codes = clustered(500, 6, 5)
    weights = np.random.default_rng(1).uniform(0.5, 3.0, len(X))
    found, distances = found_moments(X, codes, weights, directions)
    points = X / np.linalg.norm(X, axis=1)[:, None] if directions else X
    for c in range(5):
        own, weight = points[codes == c], weights[codes == c]
        mean = np.average(own, axis=0, weights=weight)
        squares = ((own - mean) ** 2).sum(axis=1)
        assert found.weights[c] == pytest.approx(weight.sum(), rel=1e-14)
        np.testing.assert_allclose(found.means[c], mean, rtol=1e-12, atol=1e-14)
        assert found.spreads[c] == pytest.approx(np.average(squares, weights=weight), rel=1e-12)
        expected = np.average(np.sqrt(squares), weights=weight)
        assert distances[c] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine"])
def test_weights_are_copies(metric):
    X, codes = clustered(120, 4, 3)
    weights = np.random.default_rng(2).integers(1, 4, len(X))
    copies = np.repeat(np.arange(len(X)), weights)
    found, _ = found_moments(X, codes, weights, metric == "cosine")
    expected = by_definition(X[copies], codes[copies], metric)
    given = silhouettes(X, codes, found)
    np.testing.assert_allclose(given[copies], expected, rtol=1e-11, atol=1e-13)


def test_points_of_no_weight_or_no_cluster_count_for_nothing():
    X, codes = clustered(200, 3, 4)
    weights = np.ones(200)
    weights[50:90] = 0.0
    without = codes.copy()
    without[50:90] = LEFT_OUT
    found, distances = found_moments(X, codes, weights)
    expected, expected_distances = found_moments(X, without)
    kept = codes[without >= 0]
    assert np.array_equal(found.weights, np.bincount(kept))
    np.testing.assert_array_equal(found.means, expected.means)
    np.testing.assert_array_equal(found.spreads, expected.spreads)
    np.testing.assert_array_equal(distances, expected_distances)
    assert np.isnan(silhouettes(X, without, found)[without < 0]).all()


def test_rows_do_not_depend_on_the_range_they_are_read_in():
    X, codes = clustered(700, 7, 6)
    found, _ = found_moments(X, codes)
    whole = silhouettes(X, codes, found)
    parts = [silhouettes(X, codes, found, rows) for rows in ((0, 256), (256, 512), (512, 700))]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("n", [GRID_ROWS - 1, GRID_ROWS + 1, 3 * GRID_ROWS + 17])
def test_blocks_of_the_grid_add_up(n):
    X, codes = clustered(n, 2, 7)
    found, distances = found_moments(X, codes)
    for c in range(7):
        own = X[codes == c]
        np.testing.assert_allclose(found.means[c], own.mean(axis=0), rtol=1e-12, atol=1e-14)
        assert found.spreads[c] == pytest.approx(own.var(axis=0).sum(), rel=1e-12)
        expected = np.linalg.norm(own - own.mean(axis=0), axis=1).mean()
        assert distances[c] == pytest.approx(expected, rel=1e-12)


def test_same_bits_for_every_plan(tmp_path):
    X, codes = clustered(30_000, 3, 5)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "codes.npy", codes)
    expected, expected_distances = found_moments(X, codes, scheduler="synchronous")
    for given in (
        found_moments(X, codes, scheduler="threads"),
        found_moments(tmp_path / "x.npy", codes, memory="246MiB"),
        found_moments(X, StoredVector(str(tmp_path / "codes.npy")), K=5),
    ):
        for name in ("weights", "means", "spreads"):
            assert np.array_equal(getattr(given[0], name), getattr(expected, name))
        assert np.array_equal(given[1], expected_distances)


def test_every_range_of_a_pass_begins_on_the_grid():
    X, _ = clustered(30_000, 3, 5)
    with prepared(X, Arguments(), needs_of=lambda n: Needs(clusters=5)) as job:
        given = grid_ranges(job)
    assert [start % GRID_ROWS for start, _ in given] == [0] * len(given)
    assert [stop for _, stop in given[:-1]] == [start for start, _ in given[1:]]
    assert (given[0][0], given[-1][1]) == (0, 30_000)


@pytest.mark.parametrize("shift", [2.0**27, -(2.0**40)])
def test_far_from_the_origin_means_are_rounded_and_nothing_else_is_lost(shift):
    X, codes = clustered(2000, 3, 4)
    X = np.round(X * 256) / 256  # so that shifted points are exact
    found, distances = found_moments(X, codes)
    far, far_distances = found_moments(X + shift, codes)
    unit = np.spacing(abs(shift))  # of a mean: up to two of them in each of three features
    np.testing.assert_allclose(far.spreads, found.spreads, rtol=1e-12, atol=12 * unit**2)
    np.testing.assert_allclose(far_distances, distances, atol=6 * unit)
    expected, given = silhouettes(X, codes, found), silhouettes(X + shift, codes, far)
    np.testing.assert_allclose(given[:, S], expected[:, S], atol=64 * unit)


def test_clusters_of_coincident_points_have_no_spread():
    X = np.repeat([[0.1, 1e8 + 0.3], [0.7, -1e8]], 6000, axis=0)
    codes = np.repeat([0, 1], 6000)
    found, distances = found_moments(X, codes)
    assert np.array_equal(found.means, X[[0, -1]])
    assert found.spreads.tolist() == distances.tolist() == [0.0, 0.0]


def test_directions_of_tiny_and_of_huge_points():
    X, codes = clustered(100, 4, 3)
    expected = silhouettes(X, codes, found_moments(X, codes, directions=True)[0])
    scaled = X * np.where(np.arange(100) % 2, 2.0**-1000, 2.0**1000)[:, None]
    rows = ArrayRows(scaled)
    directions = Moments(*_moments_of_directions(X, codes), directions=True)
    given = CentroidSums(rows, codes, directions)(0, 100)
    np.testing.assert_allclose(given, expected, rtol=1e-11, atol=1e-13)


def _moments_of_directions(X, codes):
    points = X / np.linalg.norm(X, axis=1)[:, None]
    own = [points[codes == c] for c in range(codes.max() + 1)]
    means = np.array([part.mean(axis=0) for part in own])
    spreads = np.array([part.var(axis=0).sum() for part in own])
    return np.bincount(codes[codes >= 0]).astype(float), means, spreads


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "cosine"])
def test_simplified_silhouettes_by_definition(metric):
    X, codes = clustered(300, 4, 5)
    codes[codes == 4] = LEFT_OUT
    codes[4] = 4  # alone
    centroids = np.array([X[codes == c].mean(axis=0) for c in range(5)])
    weights = np.bincount(codes[codes >= 0]).astype(float)
    if metric == "cosine":
        centroids /= np.linalg.norm(centroids, axis=1)[:, None]
    given = CentroidDistances(ArrayRows(X), codes, centroids, weights, metric)(0, 300)
    D = cdist(X, centroids, metric)
    for i in range(300):
        if codes[i] < 0:
            assert np.isnan(given[i]).all()
            continue
        others = [c for c in range(5) if c != codes[i]]
        nearest = min(others, key=lambda c: D[i, c])
        a, b = D[i, codes[i]], D[i, nearest]
        expected = [np.nan, b, 0.0, nearest] if i == 4 else [a, b, (b - a) / max(a, b), nearest]
        np.testing.assert_allclose(given[i], expected, rtol=1e-11)


def test_coincident_centroids_leave_no_silhouette():
    X = np.zeros((4, 2))
    found, _ = found_moments(X, np.array([0, 0, 1, 1]))
    given = silhouettes(X, np.array([0, 0, 1, 1]), found)
    assert given.tolist() == [[0, 0, 0, 1]] * 2 + [[0, 0, 0, 0]] * 2


def test_tasks_travel():
    X, codes = clustered(50, 2, 3)
    found, _ = found_moments(X, codes)
    task = CentroidSums(ArrayRows(X), codes, found)
    sent = pickle.loads(pickle.dumps(task))
    np.testing.assert_array_equal(sent(0, 50), task(0, 50))


def test_sums_that_overflow_are_refused():
    X = oracles.two_groups(4) * 1e155
    with pytest.raises(InputError, match="too large for float64"):
        found_moments(X, np.repeat([0, 1], 50))
    X = np.array([[1e160], [1e160], [-1e160], [-1e160]])  # no spread, and far apart
    with pytest.raises(InputError, match="too large for float64"):
        found_moments(X, np.array([0, 0, 1, 1]))
