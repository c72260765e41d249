"""Centroid estimators: scikit-learn's contract, and the same bits however points are stored."""

from __future__ import annotations

import logging
import pickle

import dask
import dask.array
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import zarr
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from silchunk import InputError, InputNotFoundError, OverBudgetError
from silchunk.cluster.kmeans import KMeans
from silchunk.cluster.ksil import KSil, SphericalKSil
from silchunk.cluster.seeding import OVERSAMPLING, ROUNDS
from silchunk.scan import GRID_ROWS

KINDS = (KMeans, KSil, SphericalKSil)
EVERY = pytest.mark.parametrize("kind", KINDS)


def blobs(n, d, n_blobs, *, seed=0):
    """Points around random middles, half of the values zero, no row all of them."""
    rng = np.random.default_rng(seed)
    X = 4.0 * rng.normal(size=(n_blobs, d))[rng.integers(0, n_blobs, n)] + rng.normal(size=(n, d))
    X[rng.random((n, d)) < 0.5] = 0.0
    X[:, 0] += (X == 0).all(axis=1)
    return X


# scikit-learn's contract.

DRAWN_OTHERWISE = (
    "first centres are drawn from points and their weights: one point of weight two is drawn by "
    "other random numbers than two points, as in scikit-learn's own k-means"
)
NO_DIRECTION = "the check has rows of zeros, which have no direction and are refused"
EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": DRAWN_OTHERWISE,
    "check_sample_weight_equivalence_on_sparse_data": DRAWN_OTHERWISE,
}
OF_DIRECTIONS = dict.fromkeys(
    (
        "check_estimators_dtypes",
        "check_estimator_sparse_tag",
        "check_estimator_sparse_array",
        "check_estimator_sparse_matrix",
    ),
    NO_DIRECTION,
)


def expected_failures(estimator):
    directions = isinstance(estimator, SphericalKSil)
    return {**EXPECTED_FAILURES, **(OF_DIRECTIONS if directions else {})}


@pytest.mark.filterwarnings("default::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([kind() for kind in KINDS], expected_failed_checks=expected_failures)
def test_contract(estimator, check):
    check(estimator)


@EVERY
def test_weights_are_copies_where_the_start_is_given(kind):
    """What the checks above ask for, with nothing drawn."""
    X = blobs(300, 4, 4)
    counts = np.random.default_rng(0).integers(1, 4, 300)
    weighted = kind(4, init=X[:4], tol=0, max_iter=20).fit(X, sample_weight=counts)
    copied = kind(4, init=X[:4], tol=0, max_iter=20).fit(np.repeat(X, counts, axis=0))
    assert np.array_equal(np.repeat(weighted.labels_, counts), copied.labels_)
    np.testing.assert_allclose(weighted.cluster_centers_, copied.cluster_centers_, atol=1e-9)


@EVERY
def test_zeros_in_sparse_rows_are_no_trouble_beside_others(kind):
    """The checks of sparse points, with rows that have a direction."""
    X = blobs(200, 5, 3)
    dense = kind(3, random_state=0).fit(X)
    for form in (scipy.sparse.csr_array, scipy.sparse.csr_matrix, scipy.sparse.coo_array):
        model = kind(3, random_state=0).fit(form(X))
        assert np.array_equal(model.cluster_centers_, dense.cluster_centers_)
        assert np.array_equal(model.predict(form(X)), dense.labels_)
        assert np.array_equal(model.transform(form(X)), dense.transform(X))


@EVERY
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.uint8, bool])
def test_dtypes(kind, dtype):
    X = np.abs(blobs(200, 5, 3)).astype(dtype)
    X[~X.any(axis=1), 0] = 1
    model = kind(3, init=X[:3].astype(float) + np.eye(3, 5), max_iter=5).fit(X)
    assert model.cluster_centers_.dtype == np.float64
    assert model.labels_.dtype == np.int32
    assert np.array_equal(model.predict(X), model.labels_)


@EVERY
def test_labels_distances_and_score(kind):
    X = blobs(700, 4, 5)
    model = kind(5, random_state=0).fit(X)
    P = X / np.linalg.norm(X, axis=1, keepdims=True) if kind is SphericalKSil else X
    D = cdist(P, model.cluster_centers_)
    assert np.array_equal(model.labels_, model.predict(X))
    assert np.array_equal(model.labels_, D.argmin(axis=1))
    np.testing.assert_allclose(model.transform(X), D, atol=1e-12)
    assert model.score(X) == -model.inertia_
    assert model.inertia_ == pytest.approx((D.min(axis=1) ** 2).sum(), rel=1e-12)
    weights = np.arange(700.0)
    expected = -(weights * D.min(axis=1) ** 2).sum()
    assert model.score(X, sample_weight=weights) == pytest.approx(expected, rel=1e-12)
    assert np.array_equal(kind(5, random_state=0).fit_predict(X), model.labels_)
    assert np.array_equal(kind(5, random_state=0).fit_transform(X), model.transform(X))
    new = blobs(50, 4, 5, seed=1)
    Q = new / np.linalg.norm(new, axis=1, keepdims=True) if kind is SphericalKSil else new
    assert np.array_equal(model.predict(new), cdist(Q, model.cluster_centers_).argmin(axis=1))


@EVERY
def test_attributes(kind):
    X = blobs(300, 4, 3)
    seen = []
    model = kind(3, random_state=0, callback=seen.append).fit(X)
    assert model.history_ == seen
    assert model.n_iter_ == len(seen)
    assert [one.iteration for one in seen] == list(range(1, len(seen) + 1))
    assert model.n_features_in_ == 4
    assert -1.0 <= model.silhouette_ <= 1.0
    a, b = np.sort(model.transform(X), axis=1)[:, :2].T
    power = 2 if kind is SphericalKSil else 1
    s = 1.0 - (a / b) ** power
    macro = np.mean([s[model.labels_ == cluster].mean() for cluster in range(3)])
    assert model.silhouette_ == pytest.approx(macro, rel=1e-10)


@EVERY
def test_copies_of_a_model(kind):
    X = blobs(300, 4, 3)
    model = kind(3, init=X[:3], max_iter=7, tol=0.01, n_init=2)
    copied = clone(model)
    assert {name: value for name, value in copied.get_params().items() if name != "init"} == {
        name: value for name, value in model.get_params().items() if name != "init"
    }
    assert not hasattr(copied.fit(X) and clone(copied), "labels_")
    loaded = pickle.loads(pickle.dumps(model.fit(X)))
    assert np.array_equal(loaded.predict(X), model.labels_)
    assert loaded.history_ == model.history_
    assert model.set_params(n_clusters=2, init="random").n_clusters == 2


@EVERY
def test_names_of_features(kind):
    frame = pd.DataFrame(blobs(200, 3, 3), columns=["a", "b", "c"])
    model = kind(3, random_state=0).set_output(transform="pandas").fit(frame)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    name = kind.__name__.lower()
    expected = [f"{name}{k}" for k in range(3)]
    assert model.get_feature_names_out().tolist() == expected
    distances = model.transform(frame)
    assert distances.columns.tolist() == expected
    assert distances.index.equals(frame.index)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["b", "a", "c"]])


@EVERY
def test_names_are_those_of_the_last_fit(kind, tmp_path):
    X = blobs(200, 3, 3)
    np.save(tmp_path / "x.npy", X)
    model = kind(3, random_state=0).fit(pd.DataFrame(X, columns=["a", "b", "c"]))
    model.fit(tmp_path / "x.npy")
    assert not hasattr(model, "feature_names_in_")
    model.predict(X)  # a warning would be an error


def test_inside_of_others():
    X = blobs(300, 4, 3)
    pipeline = make_pipeline(StandardScaler(), KSil(3, random_state=0)).fit(X)
    inner = KSil(3, random_state=0).fit(StandardScaler().fit_transform(X))
    assert np.array_equal(pipeline.predict(X), inner.labels_)
    search = GridSearchCV(KMeans(random_state=0), {"n_clusters": [2, 6]}, cv=2).fit(X)
    assert search.best_params_ == {"n_clusters": 6}  # the more centres, the smaller the inertia


@EVERY
def test_not_fitted(kind):
    for method in ("predict", "transform", "score"):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(kind(), method)(np.ones((3, 2)))


@EVERY
def test_number_of_features(kind, tmp_path):
    model = kind(2, random_state=0).fit(blobs(50, 3, 2))
    np.save(tmp_path / "x.npy", blobs(50, 4, 2))
    lazy = dask.array.ones((50, 4), chunks=10)
    for X in (blobs(50, 4, 2), tmp_path / "x.npy", lazy, scipy.sparse.csr_array(blobs(50, 4, 2))):
        for method in ("predict", "transform", "score"):
            with pytest.raises(ValueError, match=f"X has 4 features, but {kind.__name__} is exp"):
                getattr(model, method)(X)
    assert kind(2, random_state=0).fit(tmp_path / "x.npy").n_features_in_ == 4


def test_no_such_file(tmp_path):
    with pytest.raises(InputNotFoundError, match="no file or folder"):
        KMeans(2).fit(tmp_path / "none.npy")


def test_a_fit_leaves_its_arguments_as_they_are():
    X, weights = blobs(300, 4, 3), np.random.default_rng(0).uniform(size=300)
    init = X[:3].copy()
    for array in (X, weights, init):
        array.flags.writeable = False
    before = X.copy(), weights.copy(), init.copy()
    for kind in KINDS:
        model = kind(3, init=init).fit(X, sample_weight=weights)
        model.cluster_centers_ += 1.0
        model.labels_ += 1  # own arrays, for users to write to
    for array, copy in zip((X, weights, init), before, strict=True):
        assert np.array_equal(array, copy)


# Same bits, however points are stored and whatever passes over them.

N = 3 * GRID_ROWS + 123
SOME_FAR = np.random.default_rng(0).normal(size=(7, 5)) + 90.0 * (np.arange(7) > 3)[:, None]
CASES = {
    "k-means": KMeans(7, random_state=1, max_iter=4),
    "K-Sil": KSil(7, random_state=1, max_iter=4),
    "K-Sil, rounds": KSil(7, random_state=1, max_iter=4, init="k-means||", objective="micro"),
    "spherical": SphericalKSil(7, random_state=1, max_iter=4),
    "empty clusters": KSil(7, max_iter=4, init=SOME_FAR),
}


def points_in(kind, X, folder):
    """The same points, stored otherwise."""
    if kind == "npy":
        np.save(folder / "x.npy", X)
        return folder / "x.npy"
    if kind.startswith("zarr"):
        chunks = {"zarr": (701, 2), "zarr, long": (9000, 5)}[kind]
        zarr.create_array(folder / "x.zarr", data=X, chunks=chunks)
        return str(folder / "x.zarr")
    if kind == "dask":
        return dask.array.from_array(X, chunks=((1, 5000, 777, N - 5778), (2, 3)))
    if kind == "dask, unknown":
        lazy = dask.array.from_array(X, chunks=(1234, 5))
        return lazy[dask.array.ones(N, chunks=1234, dtype=bool)]
    if kind == "sparse":
        return scipy.sparse.csr_array(X)
    return {"array": X, "columns": np.asfortranarray(X), "frame": pd.DataFrame(X)}[kind]


STORED = [
    "array",
    "columns",
    "frame",
    "npy",
    "zarr",
    "zarr, long",
    "dask",
    "dask, unknown",
    "sparse",
]


@pytest.fixture(scope="module")
def data():
    """Points as (float32 and float64), weights."""
    X = blobs(N, 5, 9)
    return X.astype(np.float32), X, np.random.default_rng(1).integers(0, 5, N) / 2.0


@pytest.fixture(scope="module")
def expected(data):
    """Each model fitted on one thread, to the points in memory."""
    single, double, weights = data
    found = {}
    for name, model in CASES.items():
        for points, counts in ((single, None), (single, weights), (double, weights)):
            fitted = clone(model).set_params(scheduler="synchronous")
            fitted.fit(points, sample_weight=counts)
            found[name, points.dtype.name, counts is None] = fitted
    return found


def check_same_bits(fitted, expected):
    assert fitted.history_ == expected.history_
    assert fitted.cluster_centers_.tobytes() == expected.cluster_centers_.tobytes()
    assert np.array_equal(fitted.labels_, expected.labels_)
    assert fitted.inertia_ == expected.inertia_
    assert fitted.silhouette_ == expected.silhouette_


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", STORED)
def test_same_bits_for_any_store(name, kind, data, expected, tmp_path):
    single, _, _ = data
    X = points_in(kind, single, tmp_path)
    fitted = clone(CASES[name]).fit(X)
    check_same_bits(fitted, expected[name, "float32", True])
    assert np.array_equal(fitted.predict(X), fitted.labels_)
    if kind in ("zarr", "dask, unknown", "sparse"):
        plain = fitted.transform(single)
        assert fitted.transform(X).tobytes() == plain.tobytes()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("memory", ["400MiB", "4GiB"])
def test_same_bits_for_any_memory(name, memory, data, expected, tmp_path):
    _, double, weights = data
    model = clone(CASES[name]).set_params(memory=memory)
    model.fit(points_in("zarr", double, tmp_path), sample_weight=weights)
    check_same_bits(model, expected[name, "float64", False])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_same_bits_for_any_number_of_threads(name, threads, data, expected):
    single, _, weights = data
    counts = weights if threads % 2 else None
    with dask.config.set(num_workers=threads):
        model = clone(CASES[name]).set_params(scheduler="threads")
        model.fit(single, sample_weight=counts)
    check_same_bits(model, expected[name, "float32", counts is None])


@pytest.mark.cluster
@pytest.mark.slow
def test_same_bits_on_a_cluster(client, data, expected, tmp_path):
    single, double, weights = data
    path = points_in("zarr", single, tmp_path)
    for name in ("k-means", "K-Sil, rounds"):
        model = clone(CASES[name]).set_params(scheduler=client)
        check_same_bits(model.fit(path), expected[name, "float32", True])
    local = expected["K-Sil", "float64", False]
    model = clone(CASES["K-Sil"]).set_params(scheduler=client)
    check_same_bits(model.fit(double, sample_weight=weights), local)
    assert np.array_equal(model.predict(double), model.labels_)
    assert model.transform(double).tobytes() == local.transform(double).tobytes()


@pytest.mark.cluster
def test_an_open_client_is_used(client, data, expected):
    single, _, _ = data

    def transitions(dask_scheduler):
        return dask_scheduler.transition_counter

    before = client.run_on_scheduler(transitions)
    with client.as_current():
        model = clone(CASES["K-Sil"]).fit(single)
    assert client.run_on_scheduler(transitions) > before
    check_same_bits(model, expected["K-Sil", "float32", True])


def test_unknown_lengths_are_computed_and_told(data, tmp_path, caplog):
    single, _, _ = data
    X = points_in("dask, unknown", single, tmp_path)
    with caplog.at_level(logging.INFO, logger="silchunk"):
        KMeans(2, max_iter=1).fit(X)
    assert "X: computed the unknown chunk lengths of the Dask array: (1234, 1234" in caplog.text
    assert np.isnan(X.shape[0])  # the user's own is as it was


def test_a_dask_array_is_computed_once():
    computed = []

    def block(block_info=None):
        computed.append(block_info[None]["chunk-location"])
        return np.random.default_rng(computed[-1][0]).normal(size=(500, 3))

    X = dask.array.map_blocks(block, chunks=((500,) * 6, (3,)), dtype=float, meta=np.empty((0, 0)))
    model = KSil(4, random_state=0).fit(X)
    assert len(model.history_) > 1
    assert sorted(computed) == [(k, 0) for k in range(6)]


def test_candidates_are_bounded_with_many_clusters(caplog):
    X = np.random.default_rng(0).normal(size=(6000, 2))
    with caplog.at_level(logging.INFO, logger="silchunk"):
        model = KMeans(300, init="k-means||", max_iter=1, random_state=0).fit(X)
    said = next(one for one in caplog.messages if one.startswith("k-means|| picks"))
    assert said == f"k-means|| picks 300 of {1 + ROUNDS * OVERSAMPLING * 300} candidates"
    assert len(np.unique(model.labels_)) == 300


def test_too_little_memory():
    X = blobs(300, 4, 3)
    with pytest.raises(OverBudgetError, match="memory"):
        KMeans(2, memory="1MiB").fit(X)
    with pytest.raises(InputError, match="memory"):
        KMeans(2, memory="little").fit(X)
    model = KMeans(2).fit(X).set_params(memory="1MiB")
    with pytest.raises(OverBudgetError, match="memory"):
        model.predict(X)


def test_a_sparse_matrix_is_left_as_it_is():
    value = [1.0, 2.0, 3.0, 4.0, 3.5]
    X = scipy.sparse.csr_matrix((value, [1, 1, 0, 2, 0], [0, 2, 3, 4, 5]), shape=(4, 3))
    found = KMeans(2, random_state=0).fit(X)
    assert X.nnz == 5  # entry (0, 1) is there twice
    assert np.array_equal(found.labels_, KMeans(2, random_state=0).fit(X.toarray()).labels_)


def test_small_integers_are_taken_as_they_are():
    X = np.random.default_rng(0).integers(0, 255, (300, 5), dtype=np.uint8)
    found = KSil(3, random_state=0).fit(X)
    assert np.array_equal(found.labels_, KSil(3, random_state=0).fit(X.astype(float)).labels_)
