"""Points for K-Sil, and how a fit is held against its definition."""

from __future__ import annotations

import ksil_oracle as oracle
import numpy as np
import pytest

from silchunk.cluster.ksil import KSil, SphericalKSil

BOTH = pytest.mark.parametrize("kind", [KSil, SphericalKSil])
# K-Sil alone, without k-means before it.
SCHEDULE = {
    "temperature": 1.0,
    "temperature_range": (0.5, 8.0),
    "temperature_step": 1.5,
    "margin": None,
}
SCORES = ("macro", "micro", "inertia", "temperature", "shift")
COUNTS = ("iteration", "labels_changed", "empty_clusters")


def blobs(n, d, n_blobs, *, noise=1.0, gap=4.0, seed=0):
    """Points around random middles, in blobs of unequal size."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.ones(n_blobs) * 2.0)
    codes = rng.choice(n_blobs, n, p=shares)
    return gap * rng.normal(size=(n_blobs, d))[codes] + noise * rng.normal(size=(n, d))


DATA = {
    "blobs": blobs(500, 2, 5),
    "many features": blobs(300, 19, 4, seed=1),
    "one feature": blobs(200, 1, 3, seed=2),
    "no structure": np.random.default_rng(3).uniform(1.0, 2.0, (400, 3)),
    "far from zero": 1e4 + blobs(400, 3, 4, seed=4),
    "two sizes": np.concatenate([blobs(900, 2, 1), 30.0 + blobs(20, 2, 1, seed=5)]),
    "more than a block": blobs(5000, 4, 6, seed=6),
}


def weights_of(n, seed=0):
    """Halves, some of them 0."""
    return np.random.default_rng(seed).integers(0, 5, n) / 2.0


def check_same(model, expected):
    """To rounding, iteration by iteration, as long as that decides nothing.

    Objectives that come back in circles differ by rounding alone, and so does what follows.
    """
    n_sure = expected.n_sure
    assert len(model.history_) >= n_sure
    for found, tuple_ in zip(model.history_[:n_sure], expected.history[:n_sure], strict=True):
        other = type(found)._make(tuple_)
        for name in COUNTS:
            assert getattr(found, name) == getattr(other, name), (name, found, other)
        for name in SCORES:
            value = getattr(other, name)
            allowed = pytest.approx(value, rel=1e-10, abs=1e-10 if name == "shift" else 1e-13)
            assert getattr(found, name) == allowed, (name, found, other)
    if n_sure < len(expected.history):
        return
    assert model.n_iter_ == len(expected.history)
    assert np.array_equal(model.labels_, expected.labels)
    scale = np.abs(expected.centres).max()
    np.testing.assert_allclose(model.cluster_centers_, expected.centres, atol=1e-10 * scale, rtol=0)
    assert model.silhouette_ == pytest.approx(expected.objective, rel=1e-10, abs=1e-13)
    assert model.inertia_ == pytest.approx(expected.inertia, rel=1e-10)


def compare(X, init, *, kind=KSil, sample_weight=None, **options):
    model = kind(len(init), init=init, scheduler="synchronous", **{**SCHEDULE, **options})
    model.fit(X, sample_weight=sample_weight)
    options = {**SCHEDULE, **options, "spherical": kind is SphericalKSil}
    expected = oracle.ksil(X, init, sample_weight=sample_weight, **options)
    check_same(model, expected)
    return model, expected


def first_rows(X, n_clusters, seed=0):
    return X[np.random.default_rng(seed).choice(len(X), n_clusters, replace=False)]
