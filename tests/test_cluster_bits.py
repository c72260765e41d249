"""Centroid estimators: the same bits however points are stored and whatever passes over them."""

from __future__ import annotations

import logging

import dask
import dask.array
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import zarr
from cluster_inputs import blobs
from sklearn.base import clone

from silchunk.cluster.kmeans import KMeans
from silchunk.cluster.ksil import KSil, SphericalKSil
from silchunk.cluster.seeding import OVERSAMPLING, ROUNDS
from silchunk.plan import GRID_ROWS

# Same bits, however points are stored and whatever passes over them.

N = 3 * GRID_ROWS + 123
SOME_FAR = np.random.default_rng(0).normal(size=(7, 5)) + 90.0 * (np.arange(7) > 3)[:, None]
CASES = {
    "k-means": KMeans(7, random_state=1, max_iter=4),
    "K-Sil": KSil(7, random_state=1, max_iter=4, margin=None),
    "K-Sil or k-means": KSil(7, random_state=1, max_iter=4),
    "K-Sil, rounds": KSil(
        7, random_state=1, max_iter=4, init="k-means||", objective="micro", margin=None
    ),
    "spherical": SphericalKSil(7, random_state=1, max_iter=4, margin=None),
    "empty clusters": KSil(7, max_iter=4, init=SOME_FAR, margin=None),
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


@pytest.mark.slow
@pytest.mark.parametrize("model", [KMeans(4, random_state=0), SphericalKSil(4, random_state=0)])
def test_wide_sparse_points_are_dense_a_few_at_a_time(model, tmp_path):
    """Their dense form would be 343 MiB, more than may be held."""
    random = np.random.default_rng(0)
    n, d = 1500, 30_000
    topics = random.integers(4, size=n)
    columns = 500 * topics[:, None] + random.integers(500, size=(n, 20))
    rows = np.repeat(np.arange(n), 20)
    X = scipy.sparse.csr_array((np.ones(n * 20), (rows, columns.ravel())), shape=(n, d))
    model = clone(model).set_params(memory="1GiB", max_iter=3)
    found = model.fit(X)
    dense = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", shape=(n, d))
    for first in range(0, n, 500):
        dense[first : first + 500] = X[first : first + 500].toarray()
    del dense
    check_same_bits(clone(model).fit(tmp_path / "x.npy"), found)
    assert np.array_equal(found.predict(X[:7]), found.labels_[:7])
