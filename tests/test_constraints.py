"""Bounds for a number of clusters, against all clusterings."""

from __future__ import annotations

import numpy as np
import oracles
import pytest
from constraint_inputs import KINDS, blobs, clusterings, matrix, quick_table, size_lists, table_of
from sklearn.metrics import silhouette_samples

from silchunk import (
    InputError,
    numerical_slack,
    silhouette_bounds,
    silhouette_upper_bound,
    silhouette_upper_bound_samples,
)


def test_the_helpers_know_all_clusterings():
    assert len(clusterings(5, "uniform")) == 51  # the Bell number of 5, less one
    assert {sizes for sizes, *_ in clusterings(6, "ties")} == set(size_lists(6))
    D = matrix(7, "line")
    np.testing.assert_allclose(quick_table(D, [1, 2, 4]), table_of(D, [1, 2, 4]), atol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7])
def test_no_clustering_into_so_many_clusters_exceeds_the_bound(n, kind):
    D = matrix(n, kind)
    for k in range(2, n + 1):
        for m in range(1, n // k + 1):
            bound = silhouette_upper_bound(
                D, metric="precomputed", n_clusters=k, min_cluster_size=m
            )
            scores = [
                s for sizes, s, _ in clusterings(n, kind) if len(sizes) == k and sizes[0] >= m
            ]
            assert max(scores) <= bound + numerical_slack(n)
            rational = oracles.exact(D)
            exact = sum(oracles.point_bound(rational, i, m, n - (k - 1) * m) for i in range(n)) / n
            assert abs(float(exact) - bound) <= numerical_slack(n)


@pytest.mark.parametrize("kind", ["uniform", "line"])
@pytest.mark.parametrize("n", [40, 130, 600])
def test_bounds_for_a_number_of_clusters_are_their_definition(n, kind):
    D = matrix(n, kind)
    for k in (2, 3, 5, n):
        sizes = sorted({1, max(1, n // (2 * k)), n // k})
        expected = {m: definition(D, m, n - (k - 1) * m) for m in sizes}
        samples = silhouette_upper_bound_samples(
            D, metric="precomputed", n_clusters=k, min_cluster_size=sizes
        )
        np.testing.assert_allclose(samples.T, list(expected.values()), rtol=0, atol=1e-14)
        for m in sizes:
            bound = silhouette_upper_bound(
                D, metric="precomputed", n_clusters=k, min_cluster_size=m
            )
            assert bound == pytest.approx(expected[m].mean(), abs=1e-14)


def definition(D, smallest, largest):
    """Point bounds over sizes in [smallest, largest], by the oracle or, beyond it, by sums."""
    n = len(D)
    if n <= 40:
        return np.array([oracles.point_bound(D, i, smallest, largest) for i in range(n)])
    return quick_table(D, range(smallest, largest + 1)).max(axis=1).clip(0)


@pytest.mark.parametrize("k", [2, 3, 4, 7, 50, 100])
def test_the_curve_for_a_number_of_clusters(k):
    n = 100
    X, _ = blobs([50, 30, 20], 3, k)
    result = silhouette_bounds(X, n_clusters=k)
    curve = result.curve()
    assert curve.shape == (n // k,)
    assert (np.diff(curve) <= 0).all()
    for m in range(1, n // k + 1):
        one = silhouette_upper_bound(X, n_clusters=k, min_cluster_size=m)
        assert result.at(m) == curve[m - 1] == one
    D = oracles.distances(X, np.float64)
    expected = [definition(D, m, n - (k - 1) * m).mean() for m in range(1, n // k + 1)]
    np.testing.assert_allclose(curve, expected, rtol=0, atol=1e-13)
    unconstrained = silhouette_bounds(X).curve()
    if k == 2:
        assert np.array_equal(curve, unconstrained)
    else:
        assert (curve <= unconstrained[: n // k]).all()
        assert (curve < unconstrained[: n // k]).any() or n // k == 1


def test_more_clusters_leave_smaller_ranges():
    # Two groups of 60, each of which has all distances alike, as many features have it.
    X = np.random.default_rng(0).standard_normal((120, 50))
    X[:60, 0] += 15
    bounds = [silhouette_upper_bound(X, n_clusters=k, min_cluster_size=20) for k in range(2, 7)]
    assert (np.diff(bounds) <= 0).all()
    assert bounds[-1] < bounds[0] - 0.03  # not six of 20
    # n clusters are all of one point.
    assert silhouette_upper_bound(X, n_clusters=120) <= silhouette_upper_bound(X)
    assert silhouette_upper_bound([[0.0], [1.0], [5.0]], n_clusters=3) == 0.0


def test_results_for_a_number_of_clusters_explain_themselves():
    X, labels = blobs([10, 10, 10], 2, 1)
    result = silhouette_bounds(X, n_clusters=3, min_cluster_size=[2, 10])
    assert result.n_clusters == 3
    assert result.samples.shape == (30, 2)
    several = silhouette_upper_bound_samples(X, n_clusters=3, min_cluster_size=[2, 10])
    assert np.array_equal(result.samples, several)
    assert np.array_equal(result.asw, [result.at(2), result.at(10)])
    assert result.samples.mean(axis=0) == pytest.approx(result.asw, abs=1e-14)
    assert "3 clusters of 10 or more points: average silhouette width <=" in repr(result)
    score = silhouette_samples(X, labels).mean()
    assert score <= result.at(10)
    assert result.wcre(score) == pytest.approx((result.at(2) - score) / result.at(2))
    assert result.wcre(score, 10) == pytest.approx((result.at(10) - score) / result.at(10))
    with pytest.raises(InputError, match="no cluster smaller than asked for, in 3 clusters"):
        result.wcre(result.at(10) + 1e-3, 10)
    for m in (0, 11):
        with pytest.raises(InputError, match=f"from 1 to n/3 = 10 .* all must fit in; got {m}"):
            result.at(m)
    with pytest.raises(InputError, match="takes integers; got 2.0"):
        result.at(2.0)
