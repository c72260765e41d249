"""Dunn's index and its generalisations against double loops over the definitions."""

from __future__ import annotations

import dask.array as da
import numpy as np
import oracles
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

import silchunk
from silchunk import errors
from silchunk.dunn import dunn_score, generalized_dunn_score
from silchunk.errors import InputError, SlowMetricWarning, ZeroDiameterWarning
from silchunk.kernels import dunn as kernel

SEPARATIONS = ("single", "complete", "average", "hausdorff", "centroid", "average_to_centroid")
DIAMETERS = ("complete", "average", "centroid")
OF_MEANS = ("centroid", "average_to_centroid")
KINDS = [{"separation": s, "diameter": d} for s in SEPARATIONS for d in DIAMETERS]
KINDS_OF_DISTANCES = [kind for kind in KINDS if not set(OF_MEANS) & set(kind.values())]

# Three clusters of flowers.
FLOWERS = np.array(
    [
        *[[5.1, 3.5, 1.4, 0.2], [4.9, 3, 1.4, 0.2], [5, 3.3, 1.4, 0.2]],
        *[[4.9, 2.4, 3.3, 1], [6.6, 2.9, 4.6, 1.3]],
        *[[6.5, 3, 5.5, 1.8], [7.7, 3.8, 6.7, 2.2], [7.2, 3.2, 6, 1.8], [6.4, 2.8, 5.6, 2.1]],
    ]
)
SPECIES = [0, 0, 0, 1, 1, 2, 2, 2, 2]


def members(labels):
    return [[i for i, own in enumerate(labels) if own == label] for label in sorted(set(labels))]


def witnesses(D, labels):
    """Separation and diameter with their points, the first of equals in a double loop."""
    separation, apart, diameter, wide = np.inf, None, -1.0, None
    for i in range(len(D)):
        for j in range(i + 1, len(D)):
            if labels[i] != labels[j] and D[i][j] < separation:
                separation, apart = D[i][j], (i, j)
            if labels[i] == labels[j] and D[i][j] > diameter:
                diameter, wide = D[i][j], (i, j)
    return separation, apart, diameter, wide


def dunn(D, labels):
    return witnesses(D, labels)[0] / witnesses(D, labels)[2]


def separation_of(kind, D, X, s, t):
    between = [D[i][j] for i in s for j in t]
    if kind == "single":
        return min(between)
    if kind == "complete":
        return max(between)
    if kind == "average":
        return sum(between) / len(between)
    if kind == "hausdorff":
        there = [min(D[i][j] for j in t) for i in s]
        return max(*there, *[min(D[i][j] for i in s) for j in t])
    mean_s, mean_t = X[s].mean(axis=0), X[t].mean(axis=0)
    if kind == "centroid":
        return np.linalg.norm(mean_s - mean_t)
    there = [np.linalg.norm(X[i] - mean_t) for i in s]
    return sum(there + [np.linalg.norm(X[j] - mean_s) for j in t]) / (len(s) + len(t))


def diameter_of(kind, D, X, s):
    if len(s) == 1:
        return 0.0
    within = [D[i][j] for i in s for j in s if i != j]
    if kind == "complete":
        return max(within)
    if kind == "average":
        return sum(within) / (len(s) * (len(s) - 1))
    mean = X[s].mean(axis=0)
    return 2 * sum(np.linalg.norm(X[i] - mean) for i in s) / len(s)


def generalized_dunn(D, X, labels, separation, diameter):
    clusters = members(labels)
    pairs = [(s, t) for a, s in enumerate(clusters) for t in clusters[:a]]
    least = min(separation_of(separation, D, X, s, t) for s, t in pairs)
    return least / max(diameter_of(diameter, D, X, s) for s in clusters)


def clustered(n=60, d=3, k=4, seed=0):
    """Points and labels; the last cluster is a single point."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, k - 1, n)
    labels[:k] = range(k)
    return rng.normal(size=(n, d)) + 3.0 * labels[:, None], labels


def across_panels(n=700):
    """More points than a panel has rows."""
    X, labels = clustered(n, 2, 6, seed=1)
    X[-5:] += 400.0  # the extremes are between panels
    return X, labels


def slow_manhattan(x, y):
    return float(np.abs(x - y).sum())


def check_every_kind(X, D, labels, kinds, source, rel=1e-12, **options):
    assert dunn_score(source, labels, **options) == pytest.approx(dunn(D, labels), rel=rel)
    for kind in kinds:
        found = generalized_dunn_score(source, labels, **kind, **options)
        assert found == pytest.approx(generalized_dunn(D, X, labels, **kind), rel=rel), kind


# Against the definitions.


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize(("n", "k"), [(3, 2), (9, 8), (60, 4), (60, 30)])
def test_euclidean(n, k, offset):
    X, labels = clustered(n, 3, k)
    X = np.round(X * 8) / 8 + offset
    # A mean is rounded in the place of its last digit.
    rel = 1e-12 if offset == 0 else 1e-9
    check_every_kind(X, oracles.distances(X, np.float64), labels, KINDS, X, rel)


@pytest.mark.parametrize("metric", ["manhattan", "cosine", "sqeuclidean", "canberra"])
def test_other_metrics(metric):
    X, labels = clustered()
    D = cdist(X, X, "cityblock" if metric == "manhattan" else metric)
    check_every_kind(X, D, labels, KINDS_OF_DISTANCES, X, metric=metric)


def test_a_callable():
    X, labels = clustered(20)
    D = cdist(X, X, "cityblock")
    with pytest.warns(SlowMetricWarning, match="slow_manhattan"):
        check_every_kind(X, D, labels, KINDS_OF_DISTANCES[-1:], X, metric=slow_manhattan)


def test_matrices(tmp_path):
    X, labels = clustered()
    D = cdist(X, X, "cityblock")
    options = {"metric": "precomputed"}
    check_every_kind(X, D, labels, KINDS_OF_DISTANCES, D, **options)
    np.save(tmp_path / "D.npy", D)
    check_every_kind(X, D, labels, KINDS_OF_DISTANCES[:3], tmp_path / "D.npy", **options)
    store = silchunk.build_distances(
        X, tmp_path / "D.silchunk", metric="manhattan", dtype="float64"
    )
    check_every_kind(X, D, labels, KINDS_OF_DISTANCES, store)
    check_every_kind(X, D, labels, KINDS_OF_DISTANCES[:3], str(tmp_path / "D.silchunk"))


def test_many_panels():
    X, labels = across_panels()
    D = oracles.distances(X, np.float64)
    expected = witnesses(D, labels)
    for source, metric in ((X, "euclidean"), (D, "precomputed")):
        found = dunn_score(source, labels, metric=metric, return_witnesses=True)
        assert (found.separation_points, found.diameter_points) == (expected[1], expected[3])
        assert found.separation == pytest.approx(expected[0], rel=1e-12)
        assert found.diameter == pytest.approx(expected[2], rel=1e-12)
    check_every_kind(X, D, labels, KINDS[7::3], X)


def test_more_clusters_than_rows_of_a_panel():
    X, _ = clustered(640)
    labels = np.arange(640) // 2
    check_every_kind(X, oracles.distances(X, np.float64), labels, KINDS[-2:-1], X)


def test_float32():
    X, labels = clustered()
    X = X.astype(np.float32)
    D = oracles.distances(X, np.float64)
    for kind in KINDS:
        expected = generalized_dunn(D, X.astype(np.float64), labels, **kind)
        assert generalized_dunn_score(X, labels, **kind) == pytest.approx(expected, rel=2e-6)
        exact = generalized_dunn_score(X, labels, dtype="float64", **kind)
        assert exact == pytest.approx(expected, rel=1e-12)


def test_cases_by_hand():
    points = [[0, 0], [0.5, 0], [1, 0], [0.5, 1]]
    found = dunn_score(points, [0, 0, 0, 1], return_witnesses=True)
    assert found.score == found.separation == found.diameter == 1.0
    assert found.separation_points == (1, 3)
    assert found.diameter_points == (0, 2)
    assert "Dunn index 1\n  separation 1, from point 1 to point 3 of another" in repr(found)
    expected = dunn(oracles.distances(FLOWERS, np.float64), SPECIES)
    assert dunn_score(FLOWERS, SPECIES) == pytest.approx(expected, rel=1e-12)
    assert generalized_dunn_score(FLOWERS, SPECIES) == dunn_score(FLOWERS, SPECIES)


# Witnesses.


def check_witnesses(found, D, labels):
    shown = found.separation, found.separation_points, found.diameter, found.diameter_points
    assert shown == witnesses(D, labels)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_lowest_witnesses_among_ties(data):
    n = data.draw(st.integers(3, 40))
    k = data.draw(st.integers(2, min(5, n - 1)))
    rest = st.lists(st.integers(0, k - 1), min_size=n - k, max_size=n - k)
    labels = data.draw(st.permutations([*range(k), *data.draw(rest)]))
    levels = data.draw(st.integers(2, 4))
    D = np.random.default_rng(n).integers(1, levels, (n, n)).astype(float)
    D = np.triu(D, 1) + np.triu(D, 1).T
    found = dunn_score(D, labels, metric="precomputed", return_witnesses=True)
    check_witnesses(found, D, labels)
    assert found.score == found.separation / found.diameter


@pytest.mark.parametrize("metric", ["manhattan", "precomputed"])
def test_lowest_witnesses_in_several_panels(metric):
    X = np.random.default_rng(3).integers(0, 4, (600, 2)).astype(float)
    labels = np.random.default_rng(4).integers(0, 3, 600)
    D = cdist(X, X, "cityblock")
    source = D if metric == "precomputed" else X
    found = dunn_score(source, labels, metric=metric, return_witnesses=True)
    check_witnesses(found, D, labels)


def test_lowest_witnesses_of_a_matrix_that_is_not_quite_symmetric():
    D = np.where(np.eye(600), 0.0, 2.0)
    D[3, 5] = D[5, 3] = D[500, 0] = 3.0
    D[3, 6] = D[6, 3] = D[501, 0] = 1.0
    labels = np.repeat([0, 1, 0, 1], [6, 494, 1, 99])
    options = {"metric": "precomputed", "validate": False}
    found = dunn_score(D, labels, return_witnesses=True, **options)
    assert (found.separation_points, found.diameter_points) == ((0, 501), (0, 500))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_zeros_with_a_sign_are_zeros(dtype):
    distances = np.array([[0.0, -0.0, 0.0, -0.0], [-0.0, 0.0, -0.0, 0.0]], dtype)
    rows, codes, clusters = np.array([0, 1]), np.array([0, 0]), np.array([0, 1])
    values, pairs = np.array([np.inf, -1.0], dtype), np.zeros((2, 2), np.int64)
    kernel.update_extremes(
        distances, rows, codes, np.arange(4), clusters, np.array([0, 2, 4]), values, pairs
    )
    assert values.tolist() == [0.0, 0.0]
    assert pairs.tolist() == [[0, 2], [0, 1]]


# Labels and noise.


def test_names_of_clusters_do_not_matter():
    X, labels = clustered()
    names = np.array(["pear", "apple", "fig", "nut"])[labels]
    order = np.random.default_rng(0).permutation(len(X))
    for kind in KINDS:
        value = generalized_dunn_score(X, labels, **kind)
        assert generalized_dunn_score(X, names.tolist(), **kind) == pytest.approx(value, rel=1e-13)
        permuted = generalized_dunn_score(X[order], labels[order], **kind)
        assert permuted == pytest.approx(value, rel=1e-12)
    assert dunn_score(X, names) == dunn_score(X, labels)


def test_noise():
    X, labels = clustered()
    noisy = np.where(np.arange(60) % 7 == 5, -1, labels)
    kept = np.flatnonzero(noisy >= 0)
    for kind in KINDS:
        found = generalized_dunn_score(X, noisy, noise="drop", **kind)
        expected = generalized_dunn_score(X[kept], noisy[kept], **kind)
        assert found == pytest.approx(expected, rel=1e-12)
    D = oracles.distances(X, np.float64)
    alone = np.where(noisy < 0, 100 + np.arange(60), noisy)
    assert dunn_score(X, noisy, noise="singleton") == pytest.approx(dunn(D, alone), rel=1e-12)
    assert dunn_score(X, noisy, noise="cluster") == pytest.approx(dunn(D, noisy), rel=1e-12)
    found = dunn_score(X, noisy, noise="drop", return_witnesses=True)
    _, apart, _, wide = witnesses(D[np.ix_(kept, kept)], noisy[kept])
    assert found.separation_points == tuple(kept[list(apart)])
    assert found.diameter_points == tuple(kept[list(wide)])


def test_panels_of_nothing_but_noise():
    X, labels = across_panels()
    labels[200:600] = -1
    kept = labels >= 0
    assert dunn_score(X, labels, noise="drop") == dunn_score(X[kept], labels[kept])
    found = generalized_dunn_score(X, labels, noise="drop", **KINDS[-2])
    expected = generalized_dunn_score(X[kept], labels[kept], **KINDS[-2])
    assert found == pytest.approx(expected, rel=1e-12)


# The same bits wherever it is computed.


@pytest.mark.parametrize("matrix", [False, True])
def test_input_budget_and_scheduler_make_no_difference(matrix, tmp_path):
    X, labels = across_panels(1100)
    source, options = (cdist(X, X), {"metric": "precomputed"}) if matrix else (X, {})
    np.save(tmp_path / "X.npy", source)
    np.save(tmp_path / "labels.npy", labels)
    stored = zarr.create_array(str(tmp_path / "X.zarr"), data=source, chunks=(130, source.shape[1]))
    ways = [
        (source, labels, {"scheduler": "synchronous"}),
        (source, da.from_array(labels, chunks=100), {"memory": "300MiB"}),
        (str(tmp_path / "X.npy"), str(tmp_path / "labels.npy"), {"memory": "280MiB"}),
        (stored, labels, {}),
    ]
    for kind in KINDS_OF_DISTANCES if matrix else [*KINDS[::3], KINDS[-1]]:
        values = {
            generalized_dunn_score(data, own, **kind, **options, **more) for data, own, more in ways
        }
        assert len(values) == 1, kind


def test_sums_do_not_depend_on_the_length_of_panels(tmp_path):
    X = np.random.default_rng(0).random((600, 2))
    D = cdist(X, X)
    long = zarr.create_array(str(tmp_path), data=D, chunks=D.shape)
    options = {"metric": "precomputed", "separation": "average", "diameter": "average"}
    for k in range(2, 12):
        labels = np.random.default_rng(k).integers(0, k, 600)
        value = generalized_dunn_score(D, labels, **options)
        assert generalized_dunn_score(long, labels, **options) == value


@pytest.mark.slow
def test_on_a_cluster(client):
    X, labels = across_panels()
    for kind in (KINDS[0], KINDS[-2]):
        here = generalized_dunn_score(X, labels, **kind)
        assert generalized_dunn_score(X, labels, scheduler=client, **kind) == here


# Degenerate and wrong input.


def test_clusters_of_equal_points():
    apart, together = [[0.0], [0.0], [1.0], [1.0]], [[0.0]] * 4
    for points, score in ((apart, np.inf), (together, 0.0)):
        with pytest.warns(ZeroDiameterWarning, match=f"is taken as {score:g}"):
            found = dunn_score(points, [0, 0, 1, 1], return_witnesses=True)
        assert (found.score, found.diameter, found.diameter_points) == (score, 0.0, (0, 1))
        assert found.separation_points == (0, 2)
        kind = {"separation": "centroid", "diameter": "average"}
        with pytest.warns(ZeroDiameterWarning, match="diameter 0"):
            assert generalized_dunn_score(points, [0, 0, 1, 1], **kind) == score
    assert dunn_score([[0.0], [2.0], [0.0], [1.0]], [0, 0, 1, 1]) == 0.0


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0] * 9, "name 1 cluster among 9 points; from 2 to n - 1 = 8"),
        (range(9), "name 9 clusters among 9 points"),
        (SPECIES[:8], "one entry for each of the 9 points"),
        ([*SPECIES[:8], np.nan], "None or NaN"),
    ],
)
def test_wrong_labels(labels, message):
    for score in (dunn_score, generalized_dunn_score):
        with pytest.raises(InputError, match=message):
            score(FLOWERS, labels)


def test_wrong_kinds():
    assert issubclass(InputError, ValueError)
    with pytest.raises(InputError, match="separation must be one of single, .*got 'ward'"):
        generalized_dunn_score(FLOWERS, SPECIES, separation="ward")
    with pytest.raises(InputError, match="diameter must be one of complete, .*got 'single'"):
        generalized_dunn_score(FLOWERS, SPECIES, diameter="single")


def test_means_need_points_and_euclidean_distance(tmp_path):
    D = cdist(FLOWERS, FLOWERS)
    store = silchunk.build_distances(FLOWERS, tmp_path / "store")
    for kind in ({"separation": "centroid"}, {"diameter": "centroid"}):
        for source, metric, got in (
            (FLOWERS, "manhattan", "metric='manhattan'"),
            (FLOWERS, slow_manhattan, "metric='a callable'"),
            (D, "precomputed", "metric='precomputed'"),
            (store, "euclidean", "a stored matrix"),
        ):
            with pytest.raises(InputError, match=f'need points and metric="euclidean"; got {got}'):
                generalized_dunn_score(source, SPECIES, metric=metric, **kind)
    value = generalized_dunn_score(FLOWERS, SPECIES, separation="centroid")
    assert generalized_dunn_score(FLOWERS, SPECIES, separation="centroid", metric="l2") == value


def test_tables_of_clusters_count_in_the_plan():
    X, labels = np.random.default_rng(0).random((9000, 1)), np.arange(9000) // 2
    with pytest.raises(errors.OverBudgetError, match="allows 300 MiB"):
        generalized_dunn_score(X, labels, separation="average", memory="300MiB")
