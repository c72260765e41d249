"""Centroid estimators: scikit-learn's contract."""

from __future__ import annotations

import pickle

import dask
import dask.array
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from cluster_inputs import blobs
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

KINDS = (KMeans, KSil, SphericalKSil)
EVERY = pytest.mark.parametrize("kind", KINDS)


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
    begun = [i for i, one in enumerate(seen) if one.iteration == 1]
    runs = [seen[a:b] for a, b in zip(begun, [*begun[1:], None], strict=True)]
    assert len(runs) == (2 if issubclass(kind, KSil) else 1)  # k-means comes first
    assert model.history_ in runs
    assert model.n_iter_ == len(model.history_)
    for run in runs:
        assert [one.iteration for one in run] == list(range(1, len(run) + 1))
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
