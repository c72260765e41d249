"""Weighted k-means against plain NumPy, and what its weights do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import cdist
from sklearn.neighbors import LocalOutlierFactor
from sklearn.utils.estimator_checks import parametrize_with_checks

from silchunk import InputError
from silchunk.cluster.fitting import points_of
from silchunk.cluster.kmeans import KMeans
from silchunk.cluster.weighted import ILOFKMeans, LOFKMeans, OWKMeans, _density_weights
from silchunk.errors import OverBudgetError, SilchunkWarning
from silchunk.plan import GRID_ROWS
from silchunk.points import as_rows
from silchunk.prepare import Arguments

BY_DENSITY = (LOFKMeans, ILOFKMeans)
ALL = (*BY_DENSITY, OWKMeans)
# Ends that the docstrings tell of: iterations without lower inertia.
PATIENCE = 10


def blobs(n, d=3, n_blobs=4, *, seed=0):
    """Points of blobs that overlap, some of them far from all."""
    rng = np.random.default_rng(seed)
    middles = 4.0 * rng.normal(size=(n_blobs, d))
    X = middles[rng.integers(0, n_blobs, n)] + rng.normal(size=(n, d)) * rng.uniform(0.3, 2.0, d)
    X[:: max(1, n // 10)] *= 4.0
    return X


def first_centres(X, n_clusters, *, seed=0):
    return X[np.random.default_rng(seed).choice(len(X), n_clusters, replace=False)]


# Plain NumPy, from the definitions.


def lof_weights(X, n_neighbors):
    """1 / max(1, LOF), with LOF as scikit-learn has it."""
    if len(X) < 3:
        return np.ones(len(X))
    found = LocalOutlierFactor(n_neighbors=min(n_neighbors, len(X) - 1)).fit(X)
    return 1.0 / np.maximum(1.0, -found.negative_outlier_factor_)


def weighing_of(estimator, X, n_neighbors):
    """Gives the weights of all points from their labels and their distances to the centres."""

    def within_clusters(labels, distances):
        weights = np.empty(len(X))
        for cluster in range(distances.shape[1]):
            weights[labels == cluster] = lof_weights(X[labels == cluster], n_neighbors)
        return weights

    def unclear(labels, distances):
        a, b = np.sort(distances, axis=1)[:, :2].T
        silhouettes = 1 - a / b
        return (1 - silhouettes) / 2

    if estimator is LOFKMeans:
        fixed = lof_weights(X, n_neighbors)
        return lambda labels, distances: fixed
    return within_clusters if estimator is ILOFKMeans else unclear


def iterates(X, centres, weights_of, counts, n_iter):
    """Centres before each of ``n_iter`` iterations and after the last."""
    seen = [centres]
    for _ in range(n_iter):
        distances = cdist(X, centres)
        labels = distances.argmin(axis=1)
        weights = counts * weights_of(labels, distances)
        centres = centres.copy()
        for k in range(len(centres)):
            own = labels == k
            assert own.any(), "the oracle knows nothing of clusters without points"
            if weights[own].any():  # a centre at all of its points has none to move it
                centres[k] = np.average(X[own], axis=0, weights=weights[own])
        seen.append(centres)
    return seen


def inertia(X, centres, weights):
    return (weights * cdist(X, centres).min(axis=1) ** 2).sum()


def check_result(model, X, centres):
    """Centres, and what follows from them."""
    distances = cdist(X, centres)
    np.testing.assert_allclose(model.cluster_centers_, centres, rtol=0, atol=1e-10)
    assert np.array_equal(model.labels_, distances.argmin(axis=1))
    assert np.array_equal(model.predict(X), model.labels_)
    np.testing.assert_allclose(model.transform(X), distances, rtol=0, atol=1e-9)


# The algorithms.

CASES = pytest.mark.parametrize(
    ("n", "d", "n_clusters", "n_neighbors"), [(300, 3, 4, 20), (150, 2, 6, 5), (400, 20, 3, 30)]
)


@CASES
@pytest.mark.parametrize("weighted", [False, True])
def test_weights_by_density_among_all(n, d, n_clusters, n_neighbors, weighted):
    """From labels that stand still on, centres are the weighted means, of whatever went before."""
    X = blobs(n, d)
    init = first_centres(X, n_clusters)
    counts = np.random.default_rng(1).integers(0, 4, n) if weighted else np.ones(n)
    model = LOFKMeans(n_clusters, n_neighbors=n_neighbors, init=init, tol=0)
    model.fit(X, sample_weight=counts if weighted else None)
    weights_of = weighing_of(LOFKMeans, X, n_neighbors)
    seen = iterates(X, init, weights_of, counts, model.n_iter_)
    check_result(model, X, seen[-1])
    # Neither sooner nor later than that.
    labels = [cdist(X, centres).argmin(axis=1) for centres in seen]
    assert model.n_iter_ > 2
    assert np.array_equal(labels[-2], labels[-3])
    assert not np.array_equal(labels[-3], labels[-4])


def test_where_the_last_iteration_has_led_counts_too():
    X = blobs(300)
    init = first_centres(X, 4)
    model = LOFKMeans(4, n_neighbors=10, init=init, max_iter=1).fit(X)
    weights_of = weighing_of(LOFKMeans, X, 10)
    check_result(model, X, iterates(X, init, weights_of, np.ones(300), 1)[-1])
    assert model.inertia_ == pytest.approx(inertia(X, model.cluster_centers_, np.ones(300)))


@CASES
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("estimator", [ILOFKMeans, OWKMeans])
def test_weights_that_change(estimator, n, d, n_clusters, n_neighbors, weighted):
    """Of all iterates the one of least inertia, which is not weighted but by ``sample_weight``."""
    X = blobs(n, d)
    init = first_centres(X, n_clusters)
    counts = np.random.default_rng(1).integers(0, 4, n) if weighted else np.ones(n)
    options = {} if estimator is OWKMeans else {"n_neighbors": n_neighbors}
    model = estimator(n_clusters, init=init, tol=0, max_iter=8, **options)
    model.fit(X, sample_weight=counts if weighted else None)
    weights_of = weighing_of(estimator, X, n_neighbors)
    seen = iterates(X, init, weights_of, counts, model.n_iter_)
    inertias = [inertia(X, centres, counts) for centres in seen]
    np.testing.assert_allclose([one.inertia for one in model.history_], inertias[:-1], rtol=1e-10)
    best = int(np.argmin(inertias))
    check_result(model, X, seen[best])
    assert model.inertia_ == pytest.approx(inertias[best], rel=1e-10)
    if best:
        plain = iterates(X, init, lambda labels, distances: np.ones(n), counts, best)[-1]
        assert not np.allclose(plain, seen[best], rtol=0, atol=1e-6)  # weights do count


def test_iterations_in_circles_end():
    """Weights a / 2b push a centre out of each point that it is at: [0, 8] and [2, 6] by turns."""
    model = OWKMeans(2, init=[[0], [8]], tol=0).fit([[0], [2], [6], [8]])
    assert model.n_iter_ == PATIENCE + 1
    assert {one.inertia for one in model.history_} == {8.0}
    np.testing.assert_allclose([one.shift for one in model.history_], np.sqrt(8), rtol=1e-12)


def test_labels_that_return_end_the_iterations(monkeypatch):
    """The point at 6 is sent back and forth: weights move centres outwards from clusters of three
    points, and inwards in those of two."""

    def weights_of(X, n_neighbors):
        sizes = np.abs(X[:, 0])
        chosen = sizes.argmax() if len(X) == 3 else sizes.argmin()
        return np.where(np.arange(len(X)) == chosen, 1.0, 1e-6)

    monkeypatch.setattr("silchunk.cluster.weighted._density_weights", weights_of)
    model = ILOFKMeans(2, init=[[1], [12]]).fit([[-1], [3], [6], [10], [14]])
    assert [one.labels_changed for one in model.history_] == [5, 1, 1]


@pytest.mark.parametrize(("estimator", "avoids"), [(LOFKMeans, True), (ILOFKMeans, False)])
@pytest.mark.parametrize("init", ["random", "k-means||"])
def test_density_among_all_counts_in_drawing_first_centres(estimator, avoids, init):
    """A centre at one of few far points, which weigh about 1e-6, has a long way to go."""
    X = np.random.default_rng(0).normal(size=(70, 2))
    X[60:] += 1e6 * np.arange(1, 11)[:, None]
    options = {"init": init, "n_init": 1, "max_iter": 1, "memory": "512MiB"}
    shifts = [
        estimator(1, random_state=seed, **options).fit(X).history_[0].shift for seed in range(20)
    ]
    assert (np.array(shifts) < 1e3).all() == avoids


@pytest.mark.parametrize(
    ("estimator", "further"), [(LOFKMeans, False), (ILOFKMeans, False), (OWKMeans, True)]
)
def test_what_an_outlier_does(estimator, further):
    rng = np.random.default_rng(3)
    X = np.concatenate([rng.normal(size=(40, 2)), rng.normal(size=(40, 2)) + [30, 0]])
    with_outlier = np.concatenate([X, [[0.0, 15.0]]])
    init = [[-3.0, -3.0], [33.0, -3.0]]

    def moved_by(model):
        before = model.fit(X).cluster_centers_[0]
        return np.linalg.norm(model.fit(with_outlier).cluster_centers_[0] - before)

    plain = moved_by(KMeans(2, init=init))
    moved = moved_by(estimator(2, init=init))
    assert moved > 2 * plain if further else moved < plain / 3


# Weights.


def fixed_weights(X, n_neighbors, sample_weight=None, **arguments):
    """(n,) what `LOFKMeans` weighs points with."""
    weigher = LOFKMeans(n_neighbors=n_neighbors)._weigher()
    with points_of(X, Arguments(**arguments), 1, sample_weight) as (job, points):
        assert weigher.by_labels(job, points) is None
        return weigher.fixed(job, points)[0 : job.n]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("d", "n_neighbors"), [(1, 1), (3, 20), (20, 7), (2, 1000)])
def test_local_outlier_factors_are_scikit_learns(d, n_neighbors, dtype):
    X = (1024 * blobs(250, d)).astype(dtype)  # so that the 1e-10 that it adds is next to nothing
    found = fixed_weights(X, n_neighbors)
    expected = lof_weights(X.astype(np.float64), n_neighbors)
    assert found.dtype == np.float64
    assert expected.min() < 0.9995
    np.testing.assert_allclose(found, expected, rtol=1e-7)
    counts = np.arange(250) % 3
    assert np.array_equal(fixed_weights(X, n_neighbors, counts), found * counts)


@pytest.mark.parametrize("d", [2, 20])
def test_neither_origin_nor_unit_change_weights(d):
    """scikit-learn's own, of the same numbers, are wrong or fail."""
    X = np.round(blobs(200, d) * 1024)
    expected = fixed_weights(X, 10)
    np.testing.assert_allclose(fixed_weights(X + 2.0**40, 10), expected, rtol=1e-9)
    for exponent in (-500, 490):
        np.testing.assert_allclose(fixed_weights(np.ldexp(X, exponent), 10), expected, rtol=1e-12)


@settings(max_examples=30, deadline=None)
@given(
    X=arrays(np.float64, (12, 2), elements=st.sampled_from([0.0, 1.0, 1e-300, -1e-9, 7.5, 1e150])),
    n_neighbors=st.integers(1, 14),
)
@pytest.mark.filterwarnings("ignore:some points have a local outlier factor")
def test_weights_are_positive_and_at_most_one(X, n_neighbors):
    weights = fixed_weights(X, n_neighbors)
    assert ((weights > 0) & (weights <= 1)).all()


def test_copies_of_a_point_are_warned_of():
    X = np.concatenate([np.zeros((8, 2)), blobs(30, 2)])
    message = "local outlier factor of .* more than n_neighbors=5 others coincide.*sample_weight"
    with pytest.warns(SilchunkWarning, match=message):
        LOFKMeans(1, n_neighbors=5, random_state=0).fit(X)
    with pytest.warns(SilchunkWarning, match=message):
        ILOFKMeans(1, n_neighbors=5, random_state=0).fit(X)
    LOFKMeans(1, n_neighbors=8, random_state=0).fit(X)  # any warning is an error


@pytest.mark.parametrize("n", [1, 2])
def test_of_fewer_than_three_points_all_weigh_one(n):
    assert _density_weights(np.arange(2.0 * n).reshape(n, 2), 20).tolist() == [1.0] * n


def test_small_clusters_beside_a_large_one():
    """Clusters of one and of two points have their plain means, one of four its weighted mean."""
    X = np.array([[0.0], [1.0], [2.0], [5.0], [90.0], [92.0], [200.0]])
    model = ILOFKMeans(3, init=[[0], [91.5], [199]], n_neighbors=2).fit(X)
    np.testing.assert_allclose(model.cluster_centers_, [[1019 / 635], [91], [200]], rtol=1e-9)


def test_weights_stand_for_copies_where_neighbours_do_not_matter():
    """What scikit-learn's check of it fails for is how first centres are drawn."""
    X = blobs(120)
    counts = np.random.default_rng(4).integers(0, 4, 120)
    init = first_centres(X, 3)
    weighted = OWKMeans(3, init=init).fit(X, sample_weight=counts)
    copied = OWKMeans(3, init=init).fit(np.repeat(X, counts, axis=0))
    np.testing.assert_allclose(weighted.cluster_centers_, copied.cluster_centers_, rtol=1e-10)
    assert weighted.inertia_ == pytest.approx(copied.inertia_, rel=1e-10)


# The contract.


def expected_failures(estimator):
    drawn = "first centres are drawn by other random numbers where a point is there twice"
    alike = "; and a point's copies are its neighbours, of which LOF is"
    reason = drawn + (alike if isinstance(estimator, BY_DENSITY) else "")
    return {
        f"check_sample_weight_equivalence_on_{kind}_data": reason for kind in ("dense", "sparse")
    }


@parametrize_with_checks(
    [estimator(n_clusters=2, max_iter=3) for estimator in ALL],
    expected_failed_checks=expected_failures,
    xfail_strict=True,
)
def test_scikit_learns_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", BY_DENSITY)
@pytest.mark.parametrize("n_neighbors", [0, 2.5, True, None])
def test_wrong_n_neighbors(estimator, n_neighbors):
    with pytest.raises(InputError, match="n_neighbors must be an integer, 1 or more; got"):
        estimator(2, n_neighbors=n_neighbors).fit(blobs(20))


@pytest.mark.parametrize("estimator", BY_DENSITY)
def test_points_that_do_not_fit_into_memory(estimator, tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(250_000, 16)))
    model = estimator(3, init="random", memory="340MiB", scheduler="synchronous")
    # A quarter of the 108 MiB beyond what most libraries take.
    message = "250,000 points in memory: 30.6 MiB, of which the budget allows 27.0 MiB. Raise mem"
    with pytest.raises(OverBudgetError, match=message):
        model.fit(tmp_path / "x.npy")


def test_points_that_are_in_memory_already_may_be_more(tmp_path):
    X = np.random.default_rng(0).normal(size=(300, 4))
    np.save(tmp_path / "x.npy", X)
    weigher = ILOFKMeans()._weigher()
    with points_of(X, Arguments(), 3) as (job, points):
        weigher.by_labels(replace(job, held_bytes=0), points)
        stored = replace(job, source=as_rows(tmp_path / "x.npy"))
        weigher.by_labels(replace(stored, held_bytes=X.nbytes), points)
        with pytest.raises(OverBudgetError, match="all 300 points"):
            weigher.by_labels(replace(stored, held_bytes=X.nbytes - 1), points)


# Storage, schedulers and restarts.


def results_of(model):
    return model.cluster_centers_, model.labels_, np.array(model.history_)


def check_same(model, expected):
    for one, other in zip(results_of(model), results_of(expected), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("estimator", ALL)
def test_storage_and_schedulers_change_nothing(estimator, tmp_path):
    X = blobs(GRID_ROWS + 300)
    counts = np.arange(len(X)) % 3
    np.save(tmp_path / "x.npy", X)
    stored = zarr.create_array(str(tmp_path / "x.zarr"), shape=X.shape, chunks=(300, 2), dtype="f8")
    stored[:] = X
    options = {"max_iter": 3, "random_state": 5, "init": "k-means||"}
    expected = estimator(4, **options, scheduler="synchronous").fit(X, sample_weight=counts)
    assert expected.n_iter_ == 3
    for points in (X, str(tmp_path / "x.npy"), stored):
        check_same(estimator(4, **options).fit(points, sample_weight=counts), expected)


@pytest.mark.cluster
@pytest.mark.parametrize("estimator", BY_DENSITY)
def test_a_cluster_of_workers_changes_nothing(estimator, client, tmp_path):
    X = blobs(GRID_ROWS + 300)
    counts = np.arange(len(X)) % 3
    np.save(tmp_path / "x.npy", X)
    options = {"max_iter": 3, "random_state": 5, "init": "k-means||"}
    expected = estimator(4, **options).fit(X, sample_weight=counts)
    assert expected.n_iter_ == 3
    found = estimator(4, **options, scheduler=client).fit(tmp_path / "x.npy", sample_weight=counts)
    check_same(found, expected)


class InterruptedFitError(Exception):
    pass


@pytest.mark.parametrize("estimator", ALL)
def test_a_fit_that_was_killed_goes_on(estimator, tmp_path):
    X = blobs(200)
    options = {"init": first_centres(X, 4), "tol": 0, "max_iter": 6}

    def stop(iteration):
        if iteration.iteration == 2:
            raise InterruptedFitError

    path = tmp_path / "fit.npz"
    for _ in range(2):  # it is interrupted before that iteration is kept
        with pytest.raises(InterruptedFitError):
            estimator(4, **options, checkpoint=path, callback=stop).fit(X)
    done = []
    resumed = estimator(4, **options, checkpoint=path, callback=done.append).fit(X)
    expected = estimator(4, **options).fit(X)
    check_same(resumed, expected)
    assert [one.iteration for one in done] == list(range(2, expected.n_iter_ + 1))
