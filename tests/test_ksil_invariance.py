"""What changes nothing in K-Sil: where points lie, in which unit and order, and how often."""

from __future__ import annotations

import numpy as np
import pytest
from ksil_inputs import BOTH, DATA, SCHEDULE, first_rows, weights_of

from silchunk.cluster.ksil import KSil, SphericalKSil


def fitted_labels(X, init, kind=KSil, **options):
    return kind(len(init), init=init, scheduler="synchronous", **SCHEDULE).fit(X, **options)


@pytest.mark.parametrize("n_clusters", [2, 6])
def test_translation_scale_and_order_of_features(n_clusters):
    X = DATA["blobs"]
    init = first_rows(X, n_clusters)
    plain = fitted_labels(X, init)
    shift = np.array([300.0, -20.0])
    moved = fitted_labels(X + shift, init + shift)
    scaled = fitted_labels(X * 1024.0, init * 1024.0)
    turned = fitted_labels(X[:, ::-1], init[:, ::-1])
    for other in (moved, scaled, turned):
        assert np.array_equal(other.labels_, plain.labels_)
        assert other.silhouette_ == pytest.approx(plain.silhouette_, rel=1e-9)
    assert np.array_equal(scaled.cluster_centers_, plain.cluster_centers_ * 1024.0)
    np.testing.assert_allclose(moved.cluster_centers_ - shift, plain.cluster_centers_, atol=1e-9)
    assert scaled.inertia_ == plain.inertia_ * 1024.0**2


def test_length_of_points_is_nothing_to_directions():
    X = DATA["many features"]
    lengths = 2.0 ** np.random.default_rng(0).integers(-60, 60, (len(X), 1))
    init = first_rows(X, 5)
    plain = fitted_labels(X, init, SphericalKSil)
    other = fitted_labels(X * lengths, init * 8.0, SphericalKSil)
    assert np.array_equal(other.labels_, plain.labels_)
    assert np.array_equal(other.cluster_centers_, plain.cluster_centers_)
    np.testing.assert_allclose(np.linalg.norm(plain.cluster_centers_, axis=1), 1.0, rtol=1e-14)


@BOTH
def test_order_of_points(kind):
    X = DATA["more than a block"]
    init = first_rows(X, 6)
    order = np.random.default_rng(1).permutation(len(X))
    plain, other = fitted_labels(X, init, kind), fitted_labels(X[order], init, kind)
    assert np.array_equal(other.labels_, plain.labels_[order])
    np.testing.assert_allclose(other.cluster_centers_, plain.cluster_centers_, atol=1e-9)


@BOTH
def test_two_of_each_point_are_a_weight_of_two(kind):
    X = DATA["blobs"]
    init = first_rows(X, 4)
    weighted = fitted_labels(X, init, kind, sample_weight=np.full(len(X), 2.0))
    doubled = fitted_labels(np.repeat(X, 2, axis=0), init, kind)
    plain = fitted_labels(X, init, kind)
    assert np.array_equal(np.repeat(weighted.labels_, 2), doubled.labels_)
    np.testing.assert_allclose(weighted.cluster_centers_, doubled.cluster_centers_, atol=1e-10)
    assert weighted.inertia_ == pytest.approx(doubled.inertia_, rel=1e-12)
    assert np.array_equal(weighted.cluster_centers_, plain.cluster_centers_)
    assert weighted.inertia_ == 2.0 * plain.inertia_


@BOTH
def test_points_of_weight_zero_are_only_labelled(kind):
    X = DATA["blobs"]
    weights = weights_of(len(X))
    init = first_rows(X, 4)
    weighted = fitted_labels(X, init, kind, sample_weight=weights)
    without = fitted_labels(X[weights > 0], init, kind, sample_weight=weights[weights > 0])
    # The tolerance is of the variance of all points, so runs may end at other iterations.
    n_both = min(weighted.n_iter_, without.n_iter_)
    for one, other in zip(weighted.history_[:n_both], without.history_[:n_both], strict=True):
        assert one.macro == pytest.approx(other.macro, rel=1e-10)
        assert one.inertia == pytest.approx(other.inertia, rel=1e-10)
    assert np.array_equal(weighted.labels_, weighted.predict(X))
