"""Initial centres: what is drawn, how often, and that it depends on points and seed alone."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import cdist
from seeding_inputs import DRAWN, SPREAD, blobs, centres_of, job_of, rows_of
from sklearn.cluster import kmeans_plusplus

from silchunk import InputError
from silchunk.cluster import seeding
from silchunk.cluster.points import Points
from silchunk.cluster.seeding import INITS, OVERSAMPLING, ROUNDS, initial_centres
from silchunk.labels import StoredVector
from silchunk.plan import GRID_ROWS
from silchunk.rows import ArrayRows


def cost(X, centres):
    return (cdist(X, centres) ** 2).min(axis=1).sum()


def chance_of_pairs(masses):
    """Of each ordered pair, drawn one after the other in proportion to mass."""
    total = sum(masses)
    return {
        (i, j): masses[i] / total * masses[j] / (total - masses[i])
        for i, j in permutations(range(len(masses)), 2)
        if masses[i] and masses[j]
    }


def check_frequencies(found, chances):
    """Pairs found, against the chance of each."""
    assert set(found) <= set(chances)
    observed = [found.count(pair) for pair in chances]
    expected = [len(found) * chance for chance in chances.values()]
    assert stats.chisquare(observed, expected).pvalue > 1e-4


# What is returned.


@DRAWN
def test_centres_are_different_points(init):
    X, _ = blobs(700, 3, 4)
    centres = centres_of(X.astype(np.float32), 9, init)
    assert centres.dtype == np.float64
    assert centres.shape == (9, 3)
    assert len(set(rows_of(centres, X.astype(np.float32)))) == 9


@DRAWN
def test_seeds_give_other_centres(init):
    X, _ = blobs(700, 3, 4)
    first = centres_of(X, 5, init, seed=1)
    assert np.array_equal(first, centres_of(X, 5, init, seed=1))
    assert not np.array_equal(first, centres_of(X, 5, init, seed=2))


@DRAWN
def test_directions(init):
    X, _ = blobs(700, 3, 4)
    centres = centres_of(X, 5, init, directions=True)
    cosines = (X / np.linalg.norm(X, axis=1, keepdims=True)) @ centres.T
    np.testing.assert_allclose(np.linalg.norm(centres, axis=1), 1.0, rtol=1e-14)
    np.testing.assert_allclose(cosines.max(axis=0), 1.0, rtol=1e-14)


@DRAWN
@pytest.mark.parametrize("n_clusters", [1, 12])
def test_one_centre_and_as_many_as_points(init, n_clusters):
    X, _ = blobs(12, 2, 3)
    centres = centres_of(X, n_clusters, init)
    assert len(set(rows_of(centres, X))) == n_clusters


def test_given_centres_are_copied():
    X, _ = blobs(50, 2, 3)
    given = np.array([[1, 2], [3, 4], [5, 7]])
    centres = centres_of(X, 3, given.tolist())
    assert centres.dtype == np.float64
    assert np.array_equal(centres, given)
    given = given.astype(float)
    centres_of(X, 3, given)[:] = 0.0
    assert given.all()


def test_given_centres_have_directions():
    X, _ = blobs(50, 2, 3)
    centres = centres_of(X, 2, [[3.0, 4.0], [0.0, -1e200]], directions=True)
    np.testing.assert_allclose(centres, [[0.6, 0.8], [0.0, -1.0]], rtol=1e-15)


@pytest.mark.parametrize(
    ("init", "message"),
    [
        ("kmeans++", "init must be one of k-means++, k-means||, random, or an array.*'kmeans++'"),
        (np.ones((3, 2)), r"init must have shape (2, 2).* it has shape (3, 2)"),
        (np.ones(2), r"init must have shape (2, 2).* it has shape (2,)"),
        ([[1.0, 2.0], [np.nan, 0.0]], r"init has nan at row 1, column 0"),
        ([[1.0, np.inf], [1.0, 0.0]], r"init has inf at row 0, column 1"),
        ([["a", "b"], ["c", "d"]], "cannot be read as numbers"),
        ([[1.0], [1.0, 2.0]], "cannot be read as numbers"),
        (None, "init must"),
    ],
)
def test_wrong_init(init, message):
    X, _ = blobs(50, 2, 3)
    for special in "()|+":
        message = message.replace(special, "\\" + special)
    with pytest.raises(InputError, match=message):
        centres_of(X, 2, init)


def test_given_centre_without_direction():
    X, _ = blobs(50, 2, 3)
    with pytest.raises(InputError, match="init is zero throughout row 1"):
        centres_of(X, 2, [[1.0, 0.0], [0.0, 0.0]], directions=True)
    assert np.array_equal(centres_of(X, 2, [[1, 0], [0, 0]]), [[1, 0], [0, 0]])


# How good they are.


@SPREAD
def test_far_from_zero_every_blob_has_a_centre(init):
    X, codes = blobs(3000, 2, 6, noise=0.01)
    X = 1e8 + X / 5.0
    for seed in range(5):
        centres = centres_of(X, 6, init, seed=seed)
        assert set(codes[rows_of(centres, X)]) == set(range(6))


def test_rounds_are_about_as_good_as_plus_plus():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(5000, 4)) + 4.0 * rng.normal(size=(30, 4))[rng.integers(0, 30, 5000)]
    seeds = range(4)
    reference = np.mean([cost(X, kmeans_plusplus(X, 30, random_state=seed)[0]) for seed in seeds])
    for init, factor in (("k-means++", 1.1), ("k-means||", 1.1)):
        found = np.mean([cost(X, centres_of(X, 30, init, seed=seed)) for seed in seeds])
        assert found < factor * reference
    at_random = np.mean([cost(X, centres_of(X, 30, "random", seed=seed)) for seed in seeds])
    assert at_random > 1.1 * reference  # so that the bounds above say something


@pytest.mark.parametrize(("init", "exponent"), [("k-means++", 600), ("k-means||", 100)])
def test_scale_changes_nothing(init, exponent):
    X, _ = blobs(600, 3, 5)
    expected = centres_of(X, 5, init)
    with job_of(X, 5) as job:
        for scale in (2.0**exponent, 2.0**-exponent):
            points = Points(ArrayRows(X * scale))
            found = initial_centres(job, points, 5, init, np.random.default_rng(0))
            assert np.array_equal(found, expected * scale)


# Weights.


@DRAWN
@pytest.mark.parametrize("sample_rows", [40, 1 << 16])
def test_points_of_weight_zero_are_never_drawn(init, sample_rows, monkeypatch):
    monkeypatch.setattr(seeding, "SAMPLE_ROWS", sample_rows)
    X, _ = blobs(GRID_ROWS + 500, 2, 4)
    weights = np.zeros(len(X))
    heavy = np.random.default_rng(0).choice(len(X), 60, replace=False)
    weights[heavy] = 0.5
    for seed in range(4):
        rows = rows_of(centres_of(X, 10, init, seed=seed, weights=weights), X)
        assert len(set(rows)) == 10
        assert set(rows) <= set(heavy)


@DRAWN
def test_too_few_points_of_positive_weight_are_repeated(init):
    X, _ = blobs(100, 2, 4)
    weights = np.zeros(100)
    weights[[4, 40, 70]] = 1.0, 2.0, 3.0
    rows = rows_of(centres_of(X, 7, init, weights=weights), X)
    assert set(rows) == {4, 40, 70}


@DRAWN
def test_no_positive_weight(init):
    X, _ = blobs(100, 2, 4)
    with pytest.raises(InputError, match="weights of all points are 0"):
        centres_of(X, 3, init, weights=np.zeros(100))


@SPREAD
def test_weight_attracts_centres(init):
    """Of two tight pairs of points far from each other, the heavy point of each."""
    X = np.array([[0.0], [1.0], [1000.0], [1001.0]])
    weights = np.array([1.0, 1e7, 1e7, 1.0])
    found = [
        tuple(sorted(rows_of(centres_of(X, 2, init, seed=seed, weights=weights), X)))
        for seed in range(8)
    ]
    assert found == [(1, 2)] * 8


@pytest.mark.parametrize("stored", [False, True])
def test_weights_are_read_in_ranges(stored, tmp_path, monkeypatch):
    X, _ = blobs(900, 2, 4)
    weights = np.random.default_rng(3).integers(0, 4, 900).astype(float)
    expected = [centres_of(X, 6, init, weights=weights) for init in INITS]
    if stored:
        np.save(tmp_path / "weights.npy", weights)
        weights = StoredVector(str(tmp_path / "weights.npy"))
    monkeypatch.setattr(seeding, "WEIGHTS_AT_ONCE", 128)
    for init, centres in zip(INITS, expected, strict=True):
        assert np.array_equal(centres_of(X, 6, init, weights=weights), centres)


def test_random_draws_one_after_the_other_by_weight(monkeypatch):
    monkeypatch.setattr(seeding, "WEIGHTS_AT_ONCE", 2)
    weights = np.array([3.0, 1.0, 0.0, 2.0, 0.5])
    X = np.arange(5.0)[:, None]
    points, random = Points(ArrayRows(X), weights), np.random.default_rng(0)
    with job_of(X, 2) as job:
        found = [
            tuple(initial_centres(job, points, 2, "random", random)[:, 0].astype(int).tolist())
            for _ in range(2000)
        ]
    check_frequencies(found, chance_of_pairs([3.0, 1.0, 0.0, 2.0, 0.5]))


def test_random_takes_integer_weights_for_copies():
    copies = np.array([0, 1, 1, 2, 2, 2])
    weighted = Points(ArrayRows(np.arange(3.0)[:, None]), np.array([1.0, 2.0, 3.0]))
    copied = Points(ArrayRows(copies[:, None].astype(float)))
    counts = np.zeros((2, 3))
    with job_of(copied.source, 1) as job:
        for row, points in enumerate((weighted, copied)):
            random = np.random.default_rng(row)
            for _ in range(2000):
                counts[row, int(initial_centres(job, points, 1, "random", random)[0, 0])] += 1
    assert stats.chi2_contingency(counts).pvalue > 1e-4


# Points that are alike.


@DRAWN
def test_fewer_different_points_than_centres(init):
    X = np.tile(np.array([[0.0, 1.0], [2.0, 5.0], [1e3, -1.0]]), (50, 1))
    centres = centres_of(X, 5, init)
    rows = rows_of(centres, X)
    assert centres.shape == (5, 2)
    if init != "random":
        assert set(rows) == {0, 1, 2}
    assert np.array_equal(centres_of(np.ones((20, 2)), 3, init), np.ones((3, 2)))


def test_rounds_find_rare_points_among_copies():
    X = np.repeat(np.arange(8.0)[:, None], [5000, 1, 6000, 1, 5000, 1, 1, 1], axis=0)
    with job_of(X, 8) as job:
        points = Points(job.source)
        found = seeding._candidates(job, points, 8, np.random.default_rng(0))
        assert sorted(found[:, 0]) == list(range(8))
        centres = initial_centres(job, points, 8, "k-means||", np.random.default_rng(0))
    assert sorted(centres[:, 0]) == list(range(8))


def test_zero_of_either_sign_is_one_point():
    points = Points(ArrayRows(np.array([[1.0], [0.0], [-0.0], [0.0], [-0.0]])))
    drawn = seeding._FarPoints(points, np.ones((1, 1)), 3, 0, 0)(0, 5)
    assert drawn.points.tolist() == [[0.0]]


# Rounds of k-means||.


@pytest.mark.parametrize(
    ("positions", "weights", "masses"),
    [
        ([0, 1, 2, 3, 2.5], [5, 2, 1, 0.5, 0], [0, 2 * 1, 1 * 4, 0.5 * 9, 0]),
        # Three alike count as one of their weights together.
        ([0, 2, 1, 1, 1], [1, 1, 1, 2, 1.5], [0, 1 * 4, 4.5 * 1]),
    ],
)
def test_rounds_draw_by_weight_and_squared_distance(positions, weights, masses):
    X = np.array(positions, float)[:, None]
    points = Points(ArrayRows(X), np.array(weights, float))
    numbers = {position: number for number, position in enumerate(dict.fromkeys(positions))}
    found = []
    for seed in range(2000):
        drawn = seeding._FarPoints(points, np.zeros((1, 1)), 2, seed, 0)(0, len(X))
        assert np.array_equal(X[drawn.rows], drawn.points)
        found.append(tuple(numbers[position] for position in drawn.points[:, 0]))
    check_frequencies(found, chance_of_pairs(masses))


def expected_round(X, weights, candidates, count, seed, round_):
    """Rows by their waiting times, all at once, from the streams of the blocks."""
    waits = np.concatenate(
        [
            np.random.default_rng([seed, round_, first]).standard_exponential(
                min(GRID_ROWS, len(X) - first)
            )
            for first in range(0, len(X), GRID_ROWS)
        ]
    )
    masses = weights * (cdist(X, candidates) ** 2).min(axis=1)
    return np.argsort(waits / masses, kind="stable")[:count]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_candidates", [1, 2, 70])
@pytest.mark.parametrize("count", [3, 5000])
def test_rounds_against_all_points_at_once(dtype, n_candidates, count):
    X = blobs(2 * GRID_ROWS + 77, 5, 7, noise=1.0)[0].astype(dtype)
    rng = np.random.default_rng(1)
    weights = rng.uniform(0.1, 3.0, len(X))
    candidates = rng.normal(size=(n_candidates, 5)) + X[:n_candidates]
    with job_of(X, 9) as job:
        points = Points(job.source, weights)
        drawn = seeding._drawn_far(job, points, seeding._FarPoints(points, candidates, count, 4, 2))
        represented = seeding._represented(job, points, candidates)
    X = X.astype(np.float64)
    assert np.array_equal(drawn.rows, expected_round(X, weights, candidates, count, 4, 2))
    assert np.array_equal(drawn.points, X[drawn.rows])
    nearest = cdist(X, candidates).argmin(axis=1)
    expected = np.bincount(nearest, weights, minlength=n_candidates)
    np.testing.assert_allclose(represented, expected, rtol=1e-12)


def test_rounds_have_streams_of_their_own():
    points = Points(ArrayRows(np.arange(1.0, 500.0)[:, None]))
    keys = [
        tuple(seeding._FarPoints(points, np.zeros((1, 1)), 9, seed, round_)(0, 499).keys)
        for seed, round_ in [(1, 0), (1, 1), (2, 0)]
    ]
    assert len(set(keys)) == 3


def test_candidates_follow_the_generator():
    X, _ = blobs(300, 2, 3)
    weights = np.where(np.arange(300) == 7, 1e12, 1.0)  # the first is the same for all
    with job_of(X, 4) as job:
        points = Points(job.source, weights)
        first, other = (
            seeding._candidates(job, points, 4, np.random.default_rng(seed)) for seed in (0, 1)
        )
    assert np.array_equal(first[0], X[7])
    assert np.array_equal(other[0], X[7])
    assert not np.array_equal(first[1:], other[1:])


def test_candidates_are_bounded_and_differ():
    X, _ = blobs(3000, 3, 5, noise=1.0)
    for n_clusters in (1, 4, 31):
        with job_of(X, n_clusters) as job:
            points = Points(job.source)
            found = seeding._candidates(job, points, n_clusters, np.random.default_rng(0))
        assert len(found) == 1 + ROUNDS * OVERSAMPLING * n_clusters  # all points differ
        assert len(np.unique(found, axis=0)) == len(found)
