"""The bound against its definition, brute force, the reference package and published values."""

from __future__ import annotations

import kmedoids
import numpy as np
import oracles
import pytest
import silhouette_upper_bound as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn import datasets
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances, silhouette_samples
from sklearn.preprocessing import StandardScaler

import silchunk
from silchunk import (
    InputError,
    numerical_slack,
    silhouette_bounds,
    silhouette_upper_bound,
    silhouette_upper_bound_samples,
)

D6 = np.abs(oracles.X6 - oracles.X6.T)


def random_matrix(n, seed, kind="uniform"):
    rng = np.random.default_rng(seed)
    if kind == "uniform":
        A = rng.random((n, n))
    elif kind == "ties":
        A = rng.integers(0, 4, (n, n)).astype(float)
    elif kind == "zeros":
        A = rng.random((n, n)) * (rng.random((n, n)) < 0.2)
    else:
        A = rng.random((n, n)) ** 30  # tiny against large
    D = np.triu(A, 1)
    return D + D.T


@pytest.mark.parametrize("kind", ["uniform", "ties", "zeros", "spread"])
@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 63, 64, 65, 130])
def test_definition(n, kind):
    D = random_matrix(n, n, kind)
    sizes = sorted({1, min(2, n // 2), max(1, n // 3), n // 2})
    for m in sizes:
        expected = [oracles.point_bound(D, i, m) for i in range(n)]
        samples = silhouette_upper_bound_samples(D, metric="precomputed", min_cluster_size=m)
        np.testing.assert_allclose(samples, expected, rtol=0, atol=1e-14)
    result = silhouette_bounds(D, metric="precomputed", min_cluster_size=sizes)
    for column, m in enumerate(sizes):
        one = silhouette_upper_bound_samples(D, metric="precomputed", min_cluster_size=m)
        assert np.array_equal(result.samples[:, column], one)
        assert result.at(m) == silhouette_upper_bound(D, metric="precomputed", min_cluster_size=m)


@pytest.mark.parametrize("n", [4, 5, 6, 7, 8])
def test_no_partition_exceeds_the_bound(n):
    D = np.round(random_matrix(n, 10 * n), 3)
    rational = oracles.exact(D)
    samples = silhouette_upper_bound_samples(D, metric="precomputed")
    for m in range(1, n // 2 + 1):
        bound = silhouette_upper_bound(D, metric="precomputed", min_cluster_size=m)
        best = max(sum(oracles.silhouettes(rational, p)) / n for p in oracles.partitions(n, m))
        assert best <= bound + numerical_slack(n)
        # Computed in floating point, the bound equals the rational one.
        assert abs(float(oracles.upper_bound(rational, m)) - bound) <= numerical_slack(n)
    for labels in oracles.partitions(n):
        for value, limit in zip(oracles.silhouettes(rational, labels), samples, strict=True):
            assert value <= limit + numerical_slack(n)


def test_the_bound_is_attained_where_it_can_be():
    best = max(np.mean(oracles.silhouettes(D6, p)) for p in oracles.partitions(6, 3))
    assert best == pytest.approx(0.8334898, abs=1e-7)
    assert silhouette_upper_bound(oracles.X6, min_cluster_size=3) == pytest.approx(best, abs=1e-14)
    assert silhouette_upper_bound(oracles.X6) == pytest.approx(0.8652387, abs=1e-7)


@pytest.mark.parametrize("m", [1, 2, 17, 60])
def test_reference_package(m):
    D = random_matrix(120, 3)
    ours = silhouette_upper_bound_samples(D, metric="precomputed", min_cluster_size=m)
    np.testing.assert_allclose(ours, reference.upper_bound_samples(D, m), atol=1e-13)


def test_degenerate_matrices():
    ones = np.ones((5, 5)) - np.eye(5)
    assert silhouette_upper_bound(ones, metric="precomputed") == pytest.approx(0.0, abs=1e-15)
    assert silhouette_upper_bound(np.zeros((5, 5)), metric="precomputed") == 0.0
    assert silhouette_upper_bound([[0.0], [1.0]]) == 0.0
    # n = 3: each point is best off with its nearest neighbour, or alone.
    expected = np.mean([1 - 1 / 5, 1 - 1 / 4, 1 - 4 / 5])
    assert silhouette_upper_bound([[0.0], [1.0], [5.0]]) == pytest.approx(expected, abs=1e-15)


def published(name):
    if name == "wine":
        return StandardScaler().fit_transform(datasets.load_wine().data), "cityblock"
    if name == "breast_cancer":
        Z = StandardScaler().fit_transform(datasets.load_breast_cancer().data)
        Z = Z[(np.abs(Z) < 2).all(axis=1)]
        assert len(Z) == 382
        return Z, "euclidean"
    n, d, centers, std = map(int, name.split("-"))
    X, _ = datasets.make_blobs(
        n_samples=n, n_features=d, centers=centers, cluster_std=std, random_state=0
    )
    return X, "euclidean"


@pytest.mark.parametrize(
    ("name", "m", "value", "digits"),
    [
        ("wine", 1, 0.649261, 6),
        ("wine", 53, 0.449565, 6),
        ("breast_cancer", 1, 0.620892, 6),
        ("breast_cancer", 46, 0.454987, 6),
        ("400-64-5-6", 1, 0.376026, 6),
        ("400-64-2-2", 1, 0.673007, 6),
        ("400-128-7-3", 1, 0.565880, 6),
        ("10000-32-20-2", 1, 0.774, 3),
    ],
)
def test_published_values(name, m, value, digits):
    X, metric = published(name)
    bound = silhouette_upper_bound(X, metric=metric, min_cluster_size=m)
    assert round(bound, digits) == value


def test_a_random_matrix_of_the_reference_package():
    np.random.seed(42)
    A = np.random.rand(100, 100)
    D = (A + A.T) / 2
    np.fill_diagonal(D, 0)
    assert silhouette_upper_bound(D, metric="precomputed") == pytest.approx(0.8700096, abs=1e-7)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "manhattan", "cosine", "chebyshev"])
@pytest.mark.parametrize(
    ("n", "d", "spread"), [(30, 1, 0.1), (90, 2, 1.0), (150, 5, 5.0), (120, 40, 1.0)]
)
def test_clusterings_stay_below_the_bound(metric, n, d, spread):
    X, _ = datasets.make_blobs(n, d, centers=3, cluster_std=spread, random_state=n)
    X = X + 20 if metric == "cosine" else X
    D = pairwise_distances(X, metric=metric)
    D = (D + D.T) / 2
    np.fill_diagonal(D, 0)
    bounds = silhouette_bounds(X, metric=metric)
    for k in (2, 3, 7):
        for labels in (
            KMeans(k, n_init=3, random_state=0).fit_predict(X),
            kmedoids.KMedoids(k, random_state=0).fit_predict(D),
        ):
            values = silhouette_samples(D, labels, metric="precomputed")
            smallest = int(np.bincount(labels).min())
            assert (values <= bounds.samples + 1e-9).all()
            assert values.mean() <= bounds.at(smallest) + 1e-12


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(2, 40), st.integers(1, 3)),
        elements=st.floats(-100, 100, width=32).map(lambda v: round(v, 1)),
    ),
    st.data(),
)
def test_properties(X, data):
    n = len(X)
    result = silhouette_bounds(X)
    curve = result.curve()
    assert curve.shape == (n // 2,)
    assert (np.diff(curve) <= 0).all()
    assert ((curve >= 0) & (curve <= 1)).all()
    assert result.asw == curve[0] == silhouette_upper_bound(X)
    m = data.draw(st.integers(1, n // 2))
    D = oracles.distances(X, np.float64)
    assert curve[m - 1] == pytest.approx(float(oracles.upper_bound(D, m)), abs=1e-11)
    order = data.draw(st.permutations(range(n)))
    permuted = silhouette_upper_bound_samples(X[order])
    np.testing.assert_allclose(permuted, result.samples[order], atol=1e-11)


def test_several_sizes_are_one_call():
    X = oracles.two_groups(4)
    several = silhouette_upper_bound(X, min_cluster_size=[1, 10, 50])
    assert several.tolist() == [silhouette_upper_bound(X, min_cluster_size=m) for m in (1, 10, 50)]
    samples = silhouette_upper_bound_samples(X, min_cluster_size=(1, 10))
    assert samples.shape == (100, 2)
    result = silhouette_bounds(X, min_cluster_size=[1, 10, 50])
    assert np.array_equal(result.asw, several)
    assert np.array_equal(result.samples[:, :2], samples)


def test_two_thousand_sizes_take_no_more_memory_than_one():
    X = np.random.default_rng(0).random((4000, 2))
    several = silhouette_upper_bound(X, min_cluster_size=range(1, 2001), memory="330MiB")
    assert np.array_equal(several, silhouette_bounds(X).curve())


def test_result_explains_itself():
    result = silhouette_bounds(oracles.X6)
    assert "6 points (euclidean distance)" in repr(result)
    assert "average silhouette width <= 0.865239" in repr(result)
    assert result.wcre(0.79) == pytest.approx((result.asw - 0.79) / result.asw)
    assert result.wcre(0.79, 3) == pytest.approx((result.at(3) - 0.79) / result.at(3))
    assert silhouette_bounds(np.zeros((4, 2))).wcre(0.0) == 0.0
    with pytest.raises(InputError, match=r"score 0\.9 is above the upper bound 0\.865239"):
        result.wcre(0.9)
    with pytest.raises(InputError, match=r"lies in \[-1, 1\]; got 31"):
        result.wcre(31)
    with pytest.raises(InputError, match="from 1 to n/2 = 3"):
        result.at(4)
    with pytest.raises(InputError, match="at.. takes one size"):
        result.at([1, 2])
    before = result.curve()
    before[:] = 0
    assert result.asw > 0


@pytest.mark.parametrize(
    ("m", "message"),
    [
        (0, "from 1 to n/2 = 3 for 6 points.*got 0"),
        (4, "from 1 to n/2 = 3 for 6 points.*got 4"),
        ([1, 4], "got 4"),
        (1.5, "takes integers; got 1.5"),
        (True, "takes integers; got True"),
        ([], "empty list"),
    ],
)
def test_wrong_sizes(m, message):
    with pytest.raises(InputError, match=message):
        silhouette_upper_bound(oracles.X6, min_cluster_size=m)


def test_one_point_is_too_few():
    with pytest.raises(InputError, match="X has 1 point"):
        silhouette_upper_bound([[1.0, 2.0]])


def test_estimate_plans_and_measures():
    result = silchunk.estimate_bounds(np.random.default_rng(0).random((700, 3)), memory="1GiB")
    assert result.plan.n == 700
    assert result.plan.n_panels == 3
    assert result.seconds > 0
