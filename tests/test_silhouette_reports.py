"""Reports to other projects about wrong or misleading silhouettes, each as a test."""

from __future__ import annotations

import numpy as np
import oracles
import pytest
import scipy.sparse
from silhouette_inputs import D6, L6, S6

from silchunk import (
    InputError,
    InputTypeError,
    LooksPrecomputedWarning,
    SilchunkWarning,
    silhouette_samples,
    silhouette_score,
    silhouette_table,
)

PRECOMPUTED = {"metric": "precomputed"}


def test_a_similarity_matrix_is_no_distance_matrix():  # scikit-learn#12178
    with pytest.raises(InputError, match=r"diagonal.*largest entry is 1 at \[0, 0\]"):
        silhouette_samples(D6 + np.eye(6), L6, **PRECOMPUTED)
    np.testing.assert_allclose(silhouette_samples(D6, L6, **PRECOMPUTED), S6, atol=5e-9)


@pytest.mark.parametrize(
    ("noise", "dtype", "atol"),
    [(1e-9, np.float64, 5e-9), (1e-14, np.float64, 5e-9), (1e-6, np.float32, 1e-6)],
)
def test_rounding_noise_on_the_diagonal(noise, dtype, atol):  # scikit-learn#14632
    noisy, clean = (D6 + noise * np.eye(6)).astype(dtype), D6.astype(dtype)
    before = noisy.copy()
    found = silhouette_samples(noisy, L6, **PRECOMPUTED)
    assert np.array_equal(found, silhouette_samples(clean, L6, **PRECOMPUTED))
    np.testing.assert_allclose(found, S6, atol=atol)
    assert np.array_equal(noisy, before)


def test_a_matrix_of_integers():  # scikit-learn#22107
    matrix = np.array([[0, 1, 2], [1, 0, 1], [2, 1, 0]])
    # 1/2, 0 and, alone in its cluster, 0.
    assert silhouette_score(matrix, [0, 0, 1], **PRECOMPUTED) == pytest.approx(1 / 6, abs=1e-15)


def test_a_point_alone():  # scikit-learn#7438, aprender#2130
    found = silhouette_samples([[0], [0.1], [1]], [0, 0, 1])
    np.testing.assert_allclose(found, [0.9, 0.8 / 0.9, 0], atol=1e-15)
    score = silhouette_score([[0, 0], [0.1, 0], [10, 0]], [0, 0, 1])
    assert score == pytest.approx((0.99 + 9.8 / 9.9) / 3, abs=1e-14)
    assert score == pytest.approx(0.659966, abs=5e-7)


def test_a_matrix_passed_as_points():  # python-kmedoids#23
    with pytest.warns(LooksPrecomputedWarning, match='metric="precomputed"'):
        silhouette_samples(D6, L6)


def test_too_few_and_too_many_labels():  # scikit-learn#2959
    for labels, count in (([3] * 6, "1 cluster"), (range(6), "6 clusters")):
        with pytest.raises(ValueError, match=f"name {count} among 6 points; from 2 to n - 1 = 5"):
            silhouette_score(oracles.X6, labels)


def test_all_points_equal():  # Clustering.jl#149
    found = silhouette_samples(np.zeros((10, 10)), [0] * 5 + [1] * 5, **PRECOMPUTED)
    assert found.tolist() == [0.0] * 10


@pytest.mark.parametrize("labels", [["a", "a", "b", "b"], [7, 7, 100, 100]])
def test_labels_need_not_be_0_to_k(labels):  # scikit-learn#18358
    score = silhouette_score([[0], [0.1], [1], [1.1]], labels)
    assert score == pytest.approx((19 / 21 + 17 / 19) / 2, abs=1e-14)
    assert score == pytest.approx(0.89974937, abs=5e-9)


NOISY = np.array([[0], [0.1], [1], [1.1], [50], [-50]])


@pytest.mark.parametrize(
    ("noise", "score"), [("cluster", 0.43150), ("drop", 0.89975), ("singleton", 0.59983)]
)
def test_noise_is_what_it_is_said_to_be(noise, score):  # scikit-learn#18350, scikit-learn#20351
    found = silhouette_score(NOISY, [0, 0, 1, 1, -1, -1], noise=noise)
    assert found == pytest.approx(score, abs=5e-6)


def test_noise_that_nobody_spoke_of():  # scikit-learn#18350, scikit-learn#20351
    with pytest.warns(SilchunkWarning, match="labels have -1 for 2 points"):
        found = silhouette_score(NOISY, [0, 0, 1, 1, -1, -1])
    assert found == pytest.approx(0.43150, abs=5e-6)


@pytest.mark.parametrize(("large", "sample_size", "seeds"), [(10_000, 50, 3), (300, 4, 40)])
def test_a_sample_loses_no_cluster(large, sample_size, seeds):  # scikit-learn#11676
    r = np.random.default_rng(0)
    X = r.standard_normal((large + 2, 2))
    labels = np.r_[np.zeros(large), 1, 1]
    for seed in range(seeds):
        table = silhouette_table(X, labels, sample_size=sample_size, random_state=seed)
        assert len(table.points) == sample_size
        assert table.points[-2:].tolist() == [large, large + 1]
        assert np.isfinite(table.clusters.means).all()


def test_sparse_neighbour_graphs():  # scikit-learn#18524
    with pytest.raises(InputTypeError, match="a missing entry is not a distance of zero"):
        silhouette_samples(scipy.sparse.csr_matrix(D6), L6, **PRECOMPUTED)


def test_missing_values_are_located():  # orange3#4053
    X = np.ones((20_000, 3))
    X[19_321, 1] = np.nan
    labels = np.arange(20_000) % 2
    for metric in ("euclidean", "manhattan", "sqeuclidean"):
        with pytest.raises(InputError, match="X has nan at row 19321, column 1"):
            silhouette_score(X, labels, metric=metric)
    D = np.zeros((900, 900))
    D[800, 700] = D[700, 800] = np.nan
    with pytest.raises(InputError, match=r"X has nan at \[700, 800\]"):
        silhouette_score(D, labels[:900], **PRECOMPUTED)


def test_arguments_in_the_wrong_order():  # scikit-learn#6190
    with pytest.raises(InputError, match="X must be 2-D.*Were labels passed in its place"):
        silhouette_score(L6, D6)


def test_a_cluster_too_small_for_the_mean_over_points():  # jasp#2424
    X, labels = oracles.two_groups(4), [0] * 95 + [1] * 5
    assert silhouette_score(X, labels) == pytest.approx(0.021688, abs=5e-7)
    assert silhouette_score(X, labels, average="macro") == pytest.approx(0.173260, abs=5e-7)


def test_exact_and_not_simplified():  # madlib#433
    X, labels = oracles.two_groups(4), [0] * 50 + [1] * 50
    assert silhouette_score(X, labels) == pytest.approx(0.545253, abs=5e-7)


def test_squared_distances_are_asked_for():  # Spark's ClusteringEvaluator takes them unasked
    X, labels = [[1, 1], [2, 2], [3, 3], [4, 4]], [1, 1, 0, 0]
    # a = √2 and b = 2.5 √2 or 1.5 √2; squared, a = 2 and b = 13 or 5.
    assert silhouette_score(X, labels) == pytest.approx((3 / 5 + 1 / 3) / 2, abs=1e-14)
    squared = silhouette_score(X, labels, metric="sqeuclidean")
    assert squared == pytest.approx((1 - 2 / 13 + 1 - 2 / 5) / 2, abs=1e-14)
    assert squared == pytest.approx(0.7230769, abs=5e-8)


def test_far_from_the_origin():
    labels = np.repeat([0, 1], 50)
    assert silhouette_score(oracles.two_groups(8) + 1e8, labels) == pytest.approx(
        0.7696067, abs=5e-8
    )


def test_two_groups_far_from_a_third():
    r = np.random.RandomState(0)
    near_each_other = np.r_[r.randn(50, 2), r.randn(50, 2) + [4, 0]] + 1e8
    X = np.r_[near_each_other, r.randn(50, 2)]
    assert silhouette_score(X, np.repeat([0, 1, 2], 50)) == pytest.approx(0.696835, abs=5e-7)
