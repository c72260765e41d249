"""Distances in panels against direct differences in extended precision."""

from __future__ import annotations

import numpy as np
import oracles
import pytest
import scipy.spatial.distance as ssd
from sklearn.metrics import pairwise_distances
from sklearn.metrics import silhouette_samples as sklearn_silhouette_samples

from silchunk import InputError, SilchunkWarning, SlowMetricWarning, silhouette_upper_bound_samples
from silchunk.prepare import Arguments, prepared

TOLERANCE = {"float32": 1e-6, "float64": 1e-12}


def matrix(X, metric="euclidean", **options):
    """The whole matrix, as the panels give it."""
    with prepared(X, Arguments(metric=metric, **options)) as job:
        return read(job.panels, job.plan.panel_rows)


def read(panels, step):
    """All rows, ``step`` at a time."""
    whole = np.full((panels.n, panels.n), np.nan, panels.dtype)
    for start in range(0, panels.n, step):
        stop = min(panels.n, start + step)
        panels.read(start, stop, whole[start:stop])
    return whole


def hard_points(name):
    r = np.random.RandomState(1)
    return {
        "gaussian": lambda: r.randn(150, 32),
        "one feature": lambda: r.randn(100, 1),
        "far from the origin": lambda: oracles.two_groups(8) + 1e8,
        "tight groups far apart": lambda: np.r_[oracles.two_groups(4) + 1e8, r.randn(50, 2)],
        "duplicates": lambda: np.repeat(r.randn(20, 3), 5, axis=0),
        "near duplicates": lambda: np.repeat(r.randn(20, 3), 5, axis=0) + 1e-9 * r.randn(100, 3),
        "huge": lambda: r.randn(60, 4) * 1e30,
        "tiny": lambda: r.randn(60, 4) * 1e-30,
        "tiny against huge": lambda: np.r_[r.randn(30, 4) * 1e-20, r.randn(30, 4) * 1e15],
        "many features": lambda: r.randn(70, 3000),
        "constant": lambda: np.full((10, 3), 0.1),
        "one outlier": lambda: np.r_[r.randn(80, 5), np.full((1, 5), 1e7)],
        "lattice": lambda: r.randint(0, 3, (100, 4)).astype(float),
    }[name]()


NAMES = [
    "gaussian",
    "one feature",
    "far from the origin",
    "tight groups far apart",
    "duplicates",
    "near duplicates",
    "huge",
    "tiny",
    "tiny against huge",
    "many features",
    "constant",
    "one outlier",
    "lattice",
]
EXACT = {
    "euclidean": lambda a, b: np.sqrt(((a - b) ** 2).sum(-1)),
    "sqeuclidean": lambda a, b: ((a - b) ** 2).sum(-1),
    "manhattan": lambda a, b: np.abs(a - b).sum(-1),
    "chebyshev": lambda a, b: np.abs(a - b).max(-1),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("metric", EXACT)
@pytest.mark.parametrize(
    ("source", "dtype"), [("float32", "float32"), ("float64", "float32"), ("float64", "float64")]
)
def test_every_pair_is_accurate(metric, name, source, dtype):
    X = hard_points(name)
    with np.errstate(over="ignore"):
        X = X.astype(source)
    wide = X.astype(np.longdouble)
    expected = np.stack([EXACT[metric](row, wide) for row in wide])
    fits = expected.max() == 0 or 1e-38 < expected.max() < np.finfo(dtype).max
    if dtype == "float32" and not fits:
        with pytest.raises(InputError, match='out of the range of float32. Pass dtype="float'):
            matrix(X, metric, dtype=dtype)
        return
    D = matrix(X, metric, dtype=dtype)
    assert D.dtype == dtype
    assert (np.diagonal(D) == 0).all()
    # Below the normal numbers of the dtype, spacing is absolute.
    spacing = float(np.finfo(dtype).tiny)
    error = np.abs(D - expected)
    assert (error <= TOLERANCE[dtype] * expected + spacing).all(), (error / expected).max()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["gaussian", "duplicates", "lattice", "many features"])
def test_cosine(name, dtype):
    X = hard_points(name).astype(dtype) + 3
    wide = X.astype(np.longdouble)
    wide /= np.sqrt((wide**2).sum(axis=1, keepdims=True))
    # Half the squared chord: 1 - x·y without its cancellation.
    expected = np.stack([((row - wide) ** 2).sum(axis=1) / 2 for row in wide])
    D = matrix(X, "cosine")
    np.testing.assert_allclose(
        D, expected.astype(float), rtol=1e-5 if dtype == "float32" else 1e-9, atol=1e-30
    )
    assert (np.diagonal(D) == 0).all()
    assert ((D >= 0) & (D <= 2)).all()


def test_cosine_of_opposite_and_duplicate_rows():
    D = matrix([[1.0, 2.0], [1.0, 2.0], [-1.0, -2.0], [2e200, 4e200], [1e-300, 2e-300]], "cosine")
    np.testing.assert_allclose(D[0], [0, 0, 2, 0, 0], atol=1e-15)
    assert D.max() <= 2


def test_cosine_refuses_a_row_without_direction():
    X = np.ones((5, 2))
    X[3] = 0
    with pytest.raises(InputError, match="zero throughout row 3"):
        matrix(X, "cosine")


def test_cases_of_cancellation():
    assert matrix(np.array([[10000], [10001]], np.float32))[0, 1] == 1.0
    pair = np.array([np.full(1000, 1.000), np.full(1000, 1.001)], np.float32)
    assert matrix(pair)[0, 1] == pytest.approx(0.0316243, rel=1e-5)
    assert matrix([[1e8], [1e8 + 1]])[0, 1] == 1.0
    labels = np.repeat([0, 1], 50)
    D = matrix(oracles.two_groups(8) + 1e8)
    score = sklearn_silhouette_samples(D, labels, metric="precomputed").mean()
    assert score == pytest.approx(0.7696067, abs=1e-7)
    r = np.random.RandomState(0)
    r.randn(200)
    three = np.r_[oracles.two_groups(4) + 1e8, r.randn(50, 2)]
    D = matrix(three)
    score = sklearn_silhouette_samples(D, np.repeat([0, 1, 2], 50), metric="precomputed").mean()
    assert score == pytest.approx(0.696835, abs=1e-6)


def test_the_same_digits_for_every_chunking():
    X = np.random.default_rng(0).standard_normal((700, 17)).astype(np.float32)
    with prepared(X, Arguments()) as job:
        whole = read(job.panels, 700)
        for step in (64, 128, 256):
            assert np.array_equal(read(job.panels, step), whole)


@pytest.mark.parametrize("offset", [0, 1e8])
def test_tiles_agree_across_the_diagonal(offset):
    D = matrix(np.random.default_rng(0).standard_normal((1500, 9)) + offset)
    np.testing.assert_allclose(D, D.T, rtol=1e-12)


@pytest.mark.parametrize(
    ("metric", "params"),
    [
        ("braycurtis", None),
        ("canberra", None),
        ("correlation", None),
        ("hamming", None),
        ("minkowski", {"p": 3}),
        ("seuclidean", None),
        ("seuclidean", {"V": np.array([1.0, 2.0, 3.0, 4.0])}),
        ("mahalanobis", None),
        ("l1", None),
        ("l2", None),
        ("cityblock", None),
        ("nan_euclidean", None),
    ],
)
@pytest.mark.parametrize("n", [50, 1100])
def test_metrics_of_scikit_learn(metric, params, n):
    X = np.random.default_rng(0).random((n, 4)) + 0.1
    expected = pairwise_distances(X, metric=metric, **(params or {}))
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(
        matrix(X, metric, metric_params=params), expected, rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("metric", ["dice", "jaccard", "rogerstanimoto", "russellrao", "yule"])
def test_boolean_metrics(metric):
    X = np.random.default_rng(0).random((40, 9)) < 0.6
    expected = ssd.squareform(ssd.pdist(X, metric))
    np.testing.assert_allclose(matrix(X, metric), expected, atol=1e-12)
    with pytest.warns(SilchunkWarning, match="other than 0 counts as True"):
        from_floats = matrix(X * 2.5, metric)
    np.testing.assert_allclose(from_floats, expected, atol=1e-12)


def test_haversine_wants_two_features():
    with pytest.raises(InputError, match="haversine.*does not work on these points"):
        matrix(np.ones((4, 3)), "haversine")


def test_missing_coordinates_are_allowed_where_the_metric_knows_them():
    X = np.random.default_rng(0).random((30, 5))
    X[3, 2] = np.nan
    expected = pairwise_distances(X, metric="nan_euclidean")
    np.testing.assert_allclose(matrix(X, "nan_euclidean"), expected, atol=1e-7)


def scaled_city_block(x, y, factor=1.0):
    return factor * np.abs(x - y).sum()


def kullback_leibler(x, y):
    return float((x * np.log(x / y)).sum())


def test_callables():
    X = np.random.default_rng(0).random((30, 3))
    with pytest.warns(SlowMetricWarning, match="runs serially in Python"):
        D = matrix(X, scaled_city_block, metric_params={"factor": 2.0})
    np.testing.assert_allclose(D, 2 * pairwise_distances(X, metric="manhattan"), rtol=1e-12)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (kullback_leibler, "'kullback_leibler' is not symmetric"),
        (lambda x, y: -1.0, "gave -1.0 for points"),
        (lambda x, y: float("nan"), "gave nan for"),
        (lambda x, y: 1.0, "gave 1 from point .* to itself"),
    ],
)
@pytest.mark.filterwarnings("ignore::silchunk.SlowMetricWarning")  # not what is tested here
def test_callables_that_are_no_distance(function, message):
    X = np.random.default_rng(0).dirichlet(np.ones(4), 20)
    with pytest.raises(InputError, match=message):
        matrix(X, function)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("euclidian", "unknown metric 'euclidian'. Did you mean 'euclidean'"),
        ("nonsense", "unknown metric 'nonsense'. Known: .*euclidean"),
        (3, "must be a name or a callable, not 3"),
    ],
)
def test_unknown_metrics(metric, message):
    with pytest.raises(InputError, match=message):
        matrix(oracles.X6, metric)


def test_parameters_that_do_not_belong():
    with pytest.raises(InputError, match=r"'euclidean' takes no metric_params; got \['p'\]"):
        matrix(oracles.X6, metric_params={"p": 2})
    with pytest.raises(InputError, match="minkowski.*does not work"):
        matrix(oracles.X6, "minkowski", metric_params={"q": 2})
    with pytest.raises(InputError, match="dtype must be 'float32' or 'float64'; got 'int8'"):
        matrix(oracles.X6, dtype="int8")
    with pytest.raises(InputError, match="covariance of X is singular"):
        matrix(np.ones((5, 2)), "mahalanobis")


def test_the_panel_is_never_the_input():
    X = oracles.two_groups(4)
    before = X.copy()
    silhouette_upper_bound_samples(X)
    assert np.array_equal(X, before)


@pytest.mark.parametrize("offset", [0, 1e3, 1e6, 1e8, 1.3421e8])
def test_cosine_of_narrow_bundles(offset):
    """Directions that differ little: 1 - x·y has no digits left there."""
    import mpmath

    X = np.random.default_rng(0).standard_normal((30, 3)) + offset
    D = matrix(X, "cosine")
    with mpmath.workdps(60):
        for i in range(0, 30, 3):
            for j in range(30):
                if i != j:
                    x, y = (mpmath.matrix([mpmath.mpf(v) for v in X[k]]) for k in (i, j))
                    dot = sum(a * b for a, b in zip(x, y, strict=True))
                    exact = 1 - dot / (mpmath.norm(x) * mpmath.norm(y))
                    assert abs(D[i, j] - exact) <= 1e-12 * exact


def test_nan_euclidean_far_from_the_origin():
    X = np.array([[1e8, np.nan], [1e8 + 1, 2.0], [1e8 + 5, 2.0]])
    D = matrix(X, "nan_euclidean")
    np.testing.assert_allclose(D[0], np.sqrt(2) * np.array([0, 1, 5]), rtol=1e-15)
    assert D[1, 2] == 4.0
    with pytest.raises(InputError, match="have no coordinate in common"):
        silhouette_upper_bound_samples(
            [[np.nan, 1.0], [1.0, np.nan], [1.0, 1.0]], metric="nan_euclidean"
        )


@pytest.mark.parametrize("metric", ["jensenshannon"])
def test_metrics_of_scipy_alone(metric):
    X = np.random.default_rng(0).random((30, 4)) + 0.5
    np.testing.assert_allclose(matrix(X, metric), ssd.squareform(ssd.pdist(X, metric)), atol=1e-12)


@pytest.mark.parametrize("metric", ["euclidean", "precomputed"])
@pytest.mark.parametrize("scale", [1e-50, 1e39])
def test_what_float32_cannot_hold_is_refused(metric, scale):
    X = np.random.default_rng(0).standard_normal((20, 2))
    given = X if metric == "euclidean" else ssd.squareform(ssd.pdist(X))
    with pytest.raises(InputError, match="out of the range of float32"):
        silhouette_upper_bound_samples(given * scale, metric=metric, dtype="float32")
