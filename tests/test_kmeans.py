"""k-means against scikit-learn's, from the same start, and what holds of it by construction."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn import cluster as reference
from sklearn.exceptions import ConvergenceWarning

from silchunk import InputError
from silchunk.cluster.kmeans import KMeans
from silchunk.cluster.ksil import KSil


def blobs(n, d, n_blobs, *, noise=1.0, gap=4.0, seed=0):
    """Points around random middles."""
    rng = np.random.default_rng(seed)
    middles = gap * rng.normal(size=(n_blobs, d))
    return middles[rng.integers(0, n_blobs, n)] + noise * rng.normal(size=(n, d))


def first_rows(X, n_clusters, seed=0):
    return X[np.random.default_rng(seed).choice(len(X), n_clusters, replace=False)]


def scikit(X, init, sample_weight=None, **options):
    model = reference.KMeans(len(init), init=init, n_init=1, algorithm="lloyd", **options)
    return model.fit(X, sample_weight=sample_weight)


def compare(X, init, sample_weight=None, **options):
    """Labels, centres, inertia and iterations."""
    expected = scikit(X, init, sample_weight, **options)
    model = KMeans(len(init), init=init, scheduler="synchronous", **options).fit(
        X, sample_weight=sample_weight
    )
    assert np.array_equal(model.labels_, expected.labels_)
    scale = np.abs(X).max()
    np.testing.assert_allclose(
        model.cluster_centers_, expected.cluster_centers_, atol=1e-8 * scale, rtol=0
    )
    assert model.inertia_ == pytest.approx(expected.inertia_, rel=1e-8, abs=1e-20)
    assert model.n_iter_ == expected.n_iter_
    return model


# Against scikit-learn.


@pytest.mark.parametrize("n_clusters", [1, 2, 3, 17])
@pytest.mark.parametrize(
    "X",
    [
        blobs(700, 2, 8),
        blobs(300, 20, 5, seed=1),
        blobs(5000, 3, 9, seed=2),
        np.random.default_rng(3).uniform(size=(500, 1)),
    ],
    ids=["plane", "many features", "more than a block", "one feature"],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_as_scikit_learn(X, n_clusters, weighted):
    weights = np.random.default_rng(4).uniform(0.1, 3.0, len(X)) if weighted else None
    compare(X, first_rows(X, n_clusters), weights)


@pytest.mark.parametrize("max_iter", [1, 2, 5])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_as_scikit_learn_when_iterations_are_few(max_iter):
    X = np.random.default_rng(5).uniform(size=(2000, 3))
    model = compare(X, first_rows(X, 12), max_iter=max_iter)
    assert model.n_iter_ == max_iter


@pytest.mark.parametrize("tol", [0.0, 1e-3, 0.1])
def test_as_scikit_learn_for_any_tolerance(tol):
    X = np.random.default_rng(6).uniform(size=(3000, 2)) * [1.0, 5.0]
    n_iter = compare(X, first_rows(X, 9), tol=tol).n_iter_
    assert (n_iter < 20) == (tol > 0), "the tolerance has ended nothing, or everything"


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(20, 200),
    d=st.integers(1, 5),
    n_clusters=st.integers(2, 10),
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_as_scikit_learn_with_an_empty_cluster(seed, n, d, n_clusters):
    """One first centre is where no point is; every other has several."""
    X = blobs(n, d, 3, seed=seed)
    init = first_rows(X, n_clusters, seed)
    squares = cdist(X, init) ** 2
    if np.bincount(squares.argmin(axis=1), minlength=n_clusters).min() < 3:
        init = np.repeat(X.mean(axis=0, keepdims=True), 2, axis=0)
    init[-1] += 1e4
    expected = scikit(X, init, max_iter=1, tol=0)
    model = KMeans(len(init), init=init, max_iter=1, tol=0).fit(X)
    assert model.history_[0].empty_clusters == 1
    np.testing.assert_allclose(model.cluster_centers_, expected.cluster_centers_, atol=1e-9)
    assert np.array_equal(model.labels_, expected.labels_)


def test_as_scikit_learn_with_several_empty_clusters():
    """Which of them gets which point is for either to choose."""
    X = blobs(600, 3, 4, seed=7)
    init = np.concatenate([first_rows(X, 5), 1e3 + np.arange(9.0).reshape(3, 3)])
    expected = scikit(X, init)
    model = KMeans(8, init=init).fit(X)
    assert [one.empty_clusters for one in model.history_][:2] == [3, 0]
    order, other = (np.lexsort(m.cluster_centers_.T) for m in (model, expected))
    np.testing.assert_allclose(
        model.cluster_centers_[order], expected.cluster_centers_[other], atol=1e-8
    )
    assert model.inertia_ == pytest.approx(expected.inertia_, rel=1e-10)
    assert model.n_iter_ == expected.n_iter_
    renamed = np.argsort(other)[expected.labels_]
    assert np.array_equal(np.argsort(order)[model.labels_], renamed)


@pytest.mark.parametrize("init", ["k-means++", "k-means||", "random"])
def test_about_as_good_as_scikit_learn(init):
    X = blobs(2000, 4, 10, seed=8)
    best = reference.KMeans(10, n_init=10, random_state=0).fit(X).inertia_
    found = KMeans(10, init=init, n_init=10, random_state=0).fit(X).inertia_
    assert found <= 1.02 * best


# By construction.


def test_inertia_never_grows():
    X = np.random.default_rng(9).uniform(size=(3000, 3))
    model = KMeans(15, random_state=0, tol=0).fit(X)
    inertias = [one.inertia for one in model.history_]
    assert len(inertias) > 5
    assert (np.diff(inertias) <= 1e-12 * inertias[0]).all()
    assert model.inertia_ <= min(inertias) * (1 + 1e-12)
    assert {one.temperature for one in model.history_} == {0.0}


def test_result_is_the_mean_of_nearest_points():
    X = blobs(900, 3, 6, seed=10)
    model = KMeans(6, random_state=0, tol=0).fit(X)
    assert np.array_equal(model.labels_, cdist(X, model.cluster_centers_).argmin(axis=1))
    for cluster in range(6):
        own = X[model.labels_ == cluster]
        np.testing.assert_allclose(model.cluster_centers_[cluster], own.mean(axis=0), rtol=1e-12)


def test_labels_of_lattice_points_go_to_the_first():
    grid = np.stack(np.meshgrid(*[np.arange(-3.0, 4.0)] * 2), axis=-1).reshape(-1, 2)
    init = np.array([[-2.0, 0.0], [2.0, 0.0], [0.0, 0.0]])
    model = KMeans(3, init=init, max_iter=1).fit(grid)
    squares = ((grid[:, None] - init[None]) ** 2).sum(axis=2)
    assert model.history_[0].inertia == squares.min(axis=1).sum()
    again = KMeans(3, init=init).fit(grid)
    squares = ((grid[:, None] - again.cluster_centers_[None]) ** 2).sum(axis=2)
    assert np.array_equal(again.labels_, squares.argmin(axis=1))


@pytest.mark.parametrize("init", ["k-means++", "k-means||", "random"])
def test_fewer_distinct_points_than_clusters(init):
    X = np.repeat([[0.0, 1.0], [4.0, 4.0], [9.0, -1.0]], 40, axis=0)
    with pytest.warns(ConvergenceWarning, match="3 distinct clusters were found, fewer than n_cl"):
        model = KMeans(6, init=init, n_init=8, random_state=0).fit(X)
    assert model.inertia_ == 0.0
    assert np.isfinite(model.cluster_centers_).all()
    assert len(np.unique(model.labels_)) == 3


def test_all_points_alike():
    X = np.full((50, 3), 7.25)
    with pytest.warns(ConvergenceWarning, match="1 distinct clusters were found"):
        model = KMeans(2, random_state=0).fit(X)
    assert np.array_equal(model.cluster_centers_, np.full((2, 3), 7.25))
    assert not model.labels_.any()
    one = KMeans(1, random_state=0).fit(X)
    assert one.inertia_ == 0.0
    assert one.silhouette_ == 0.0


def test_as_many_clusters_as_points():
    X = blobs(40, 2, 3)
    model = KMeans(40, random_state=0).fit(X)
    assert model.inertia_ == 0.0
    assert sorted(model.labels_.tolist()) == list(range(40))
    assert KMeans(1).fit(X[:1]).labels_.tolist() == [0]


@pytest.mark.parametrize("init", ["k-means++", "k-means||", "random"])
def test_seeds(init):
    X = np.random.default_rng(11).uniform(size=(1500, 3))
    options = {"init": init, "n_init": 2, "max_iter": 5}
    first = KMeans(9, random_state=3, **options).fit(X)
    again = KMeans(9, random_state=3, **options).fit(X)
    other = KMeans(9, random_state=4, **options).fit(X)
    assert np.array_equal(first.cluster_centers_, again.cluster_centers_)
    assert first.history_ == again.history_
    assert not np.array_equal(first.cluster_centers_, other.cluster_centers_)
    for state in (None, np.random.default_rng(0), np.random.RandomState(0), np.int64(3)):
        model = KMeans(9, random_state=state, **options).fit(X)
        assert len(np.unique(model.labels_)) == 9
    assert np.array_equal(model.cluster_centers_, first.cluster_centers_)  # an int of numpy's


def test_same_random_state_object_goes_on():
    X = np.random.default_rng(12).uniform(size=(500, 2))
    random = np.random.default_rng(0)
    first, second = (KMeans(8, random_state=random, max_iter=2).fit(X) for _ in range(2))
    assert not np.array_equal(first.cluster_centers_, second.cluster_centers_)


def test_number_of_runs():
    X = blobs(300, 2, 4)
    for init, n_init, expected in [
        ("random", "auto", 10),
        ("k-means++", "auto", 1),
        ("k-means||", "auto", 1),
        ("random", 3, 3),
        ("k-means++", 4, 4),
        (X[:4], 7, 1),
    ]:
        seen = []
        model = KMeans(4, init=init, n_init=n_init, random_state=0, callback=seen.append).fit(X)
        runs = [
            inertia
            for one, after in zip(seen, [*seen[1:], None], strict=True)
            if after is None or after.iteration == 1
            for inertia in [one.inertia]
        ]
        assert len(runs) == expected
        assert model.inertia_ <= min(runs) * (1 + 1e-12)


# Values that cannot be squared.


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_huge_values(kind):
    scale = {np.float32: 2.0**100, np.float64: 2.0**498}[kind]
    X = blobs(400, 3, 4).astype(kind)
    init = first_rows(X.astype(float), 4)
    plain = KMeans(4, init=init).fit(X)
    model = KMeans(4, init=init * scale).fit(X * kind(scale))
    assert np.array_equal(model.labels_, plain.labels_)
    np.testing.assert_allclose(model.cluster_centers_ / scale, plain.cluster_centers_, rtol=1e-6)
    assert model.inertia_ / scale**2 == pytest.approx(plain.inertia_, rel=1e-6)


def test_values_whose_squares_overflow_are_refused():
    X = blobs(100, 2, 3) * 1e160
    with pytest.raises(InputError, match="squared distances .* too large for float64"):
        KMeans(3).fit(X)


# Parameters.


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_clusters": 0}, "n_clusters must be an integer, 1 or more; got 0"),
        ({"n_clusters": 2.0}, "n_clusters must be an integer, 1 or more; got 2.0"),
        ({"n_clusters": True}, "n_clusters must be an integer, 1 or more; got True"),
        ({"n_clusters": 51}, "n_samples=50 should be >= n_clusters=51"),
        ({"max_iter": 0}, "max_iter must be an integer, 1 or more; got 0"),
        ({"n_init": 0}, "n_init must be an integer, 1 or more; got 0"),
        ({"n_init": "many"}, "n_init must be an integer, 1 or more; got 'many'"),
        ({"tol": -1e-9}, "tol must be a number from 0 to inf; got -1e-09"),
        ({"tol": None}, "tol must be a number from 0 to inf; got None"),
        ({"tol": np.nan}, "tol must be a number from 0 to inf; got nan"),
        ({"init": "farthest"}, "init must be one of .* or an array; got 'farthest'"),
        ({"init": np.zeros((2, 3))}, r"init must have shape \(3, 2\)"),
        ({"init": np.full((3, 2), np.nan)}, "init has nan at row 0, column 0"),
        ({"random_state": "dice"}, "random_state must be None, an integer or a generator"),
        ({"random_state": -1}, "random_state must be"),
        ({"memory": 1000}, "memory"),
        ({"scheduler": "processes"}, "scheduler 'processes' is not one"),
        ({"checkpoint": "no/such/folder/file"}, "there is no folder"),
    ],
)
def test_wrong_parameters(parameters, message):
    X = blobs(50, 2, 3)
    with pytest.raises((InputError, MemoryError), match=message):
        KMeans(**{"n_clusters": 3, **parameters}).fit(X)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([[1.0, np.nan]] * 9, "NaN"),
        ([[1.0, np.inf]] * 9, "infinity"),
        (np.ones(9), "Expected 2D array"),
        (np.ones((0, 2)), "0 sample"),
        (np.ones((9, 0)), "0 feature"),
        (np.full((9, 2), 1j), "Complex data not supported"),
    ],
)
def test_wrong_points(X, message):
    with pytest.raises(ValueError, match=message):
        KMeans(2).fit(X)


def test_wrong_values_in_a_file(tmp_path):
    X = blobs(60, 2, 2)
    X[40, 1] = np.nan
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(InputError, match="row 40.*column 1"):
        KMeans(2).fit(tmp_path / "x.npy")


# One far outlier against all others (a clustering that every index takes for the best).


def two_groups_and_an_outlier():
    rng = np.random.default_rng(8)
    groups = [rng.normal(centre, 0.3, (40, 2)) for centre in ((0.0, 0.0), (4.0, 0.0))]
    return np.concatenate([*groups, [[300.0, 0.0]]])


@pytest.mark.parametrize("kind", [KMeans, KSil])
def test_a_least_size_keeps_an_outlier_from_being_a_cluster(kind):
    X = two_groups_and_an_outlier()
    first = [[2.0, 0.0], [300.0, 0.0]]
    alone = kind(2, init=first).fit(X)
    assert np.bincount(alone.labels_).tolist() == [80, 1]
    groups = kind(2, init=first, min_cluster_size=5).fit(X)
    assert len(set(groups.labels_[:40])) == len(set(groups.labels_[40:80])) == 1
    assert sorted(np.bincount(groups.labels_)) == [40, 41]
    assert groups.history_[0].empty_clusters == 1
    assert np.array_equal(groups.predict(X), groups.labels_)


def test_a_least_size_that_is_not_reached_is_told():
    X = np.array([[0.0], [0.0], [0.0], [9.0]])
    with pytest.warns(ConvergenceWarning, match="1 of 2 clusters have fewer than min_cluster_size"):
        KMeans(2, init=[[0.0], [9.0]], min_cluster_size=2).fit(X)


@pytest.mark.parametrize(("least", "words"), [(3, "need more than"), (0, "integer, 1"), (1.5, "1")])
def test_least_sizes_that_cannot_be(least, words):
    with pytest.raises(InputError, match=words):
        KMeans(2, min_cluster_size=least).fit([[0.0], [1.0], [2.0], [3.0]])
