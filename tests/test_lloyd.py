"""One pass over points: nearest centres, weights and sums, against all distances at once."""

from __future__ import annotations

from fractions import Fraction

import ksil_oracle as oracle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silchunk import InputError
from silchunk.cluster.fitting import label_vectors, points_of
from silchunk.cluster.passes import Weighing, run_pass
from silchunk.prepare import Arguments

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
# Around what is handled at once: vectors, a few points, blocks of the grid.
SIZES = [1, 15, 16, 17, 31, 32, 33, 1023, 1024, 1025, 4095, 4096, 4097]


def one_pass(X, centres, counts=None, weighing=None, *, before=None, directions=False, **arguments):
    """What a pass gives, and the labels."""
    centres = np.asarray(centres, np.float64)
    with points_of(X, Arguments(**arguments), len(centres), counts, directions=directions) as (
        job,
        points,
    ):
        earlier, labels = label_vectors(job)
        if before is not None:
            room = earlier.room(0, job.n)
            room[:] = before
            earlier.keep(0, room)
        found = run_pass(
            job,
            points,
            centres,
            weighing or Weighing(),
            "pass",
            before=None if before is None else earlier,
            labels=labels,
        )
        return found, np.array(labels.whole())


def lattice(rng, n, d, span=4):
    """Points with whole coordinates, many alike: distances are exact and often equal."""
    return rng.integers(-span, span + 1, (n, d)).astype(float)


def exact_squares(X, centres):
    """(n, K) of whole numbers."""
    return ((X[:, None].astype(np.int64) - centres[None].astype(np.int64)) ** 2).sum(axis=2)


def in_clusters(values, labels, n_clusters):
    """Sums of (n, ...) values by label, in extended precision."""
    sums = np.zeros((n_clusters, *values.shape[1:]), np.longdouble)
    np.add.at(sums, labels, values.astype(np.longdouble))
    return sums.astype(float)


# Nearest centres.


@settings(max_examples=60, deadline=None)
@given(
    n=st.sampled_from(SIZES[:9]) | st.integers(1, 200),
    d=st.integers(1, 70),
    n_clusters=st.integers(1, 70),
    dtype=st.sampled_from([np.float32, np.float64]),
    offset=st.sampled_from([0, 1000, 1 << 20]),
    span=st.sampled_from([1, 4, 100]),
    seed=st.integers(0, 1000),
)
def test_ties_go_to_the_first_of_equals(n, d, n_clusters, dtype, offset, span, seed):
    rng = np.random.default_rng(seed)
    X, centres = offset + lattice(rng, n, d, span), offset + lattice(rng, n_clusters, d, span)
    found, labels = one_pass(X.astype(dtype), centres)
    squares = exact_squares(X, centres)
    assert np.array_equal(labels, squares.argmin(axis=1))
    assert found.inertia == pytest.approx(squares.min(axis=1).sum(), rel=1e-5)


@DTYPES
def test_centres_that_are_alike(dtype):
    """The first of them takes all, wherever they are among the others."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 5)).astype(dtype)
    centres = np.repeat(rng.normal(size=(6, 5)), 9, axis=0)[rng.permutation(54)]
    centres = np.concatenate([centres, X[:7].astype(float), X[:7].astype(float)])
    found, labels = one_pass(X, centres)
    assert np.array_equal(labels, oracle.distances(X.astype(float), centres).argmin(axis=1))
    assert not found.silhouettes.any()  # another centre is always as near


@DTYPES
def test_nearly_equal_distances(dtype):
    """Centres a rounding error of float64 from the middle, where rounding decides: exactly."""
    rng = np.random.default_rng(1)
    X = rng.integers(-8, 9, (300, 3)).astype(dtype)
    steps = 2.0**-46 * rng.integers(-3, 4, (300, 1))
    for k in range(12):
        middle = X[k].astype(float)
        centres = np.stack([middle + 1.0, middle - 1.0 + steps[k]])
        _, labels = one_pass(X, centres)
        for i in range(len(X)):
            near = [
                sum(
                    (Fraction(float(x)) - Fraction(float(c))) ** 2
                    for x, c in zip(X[i], centre, strict=True)
                )
                for centre in centres
            ]
            if near[0] == near[1] or abs(near[0] / near[1] - 1) > Fraction(1, 1 << 49):
                assert labels[i] == (0 if near[0] <= near[1] else 1)


@pytest.mark.parametrize(
    ("dtype", "offset", "spread"),
    [
        (np.float64, 1e8, 1.0),
        (np.float64, 1e8, 1e-3),
        (np.float64, -1e15, 8.0),
        (np.float32, 1e4, 1.0),
        (np.float32, 1e4, 1e-2),
        (np.float32, -1e7, 8.0),
    ],
)
@pytest.mark.parametrize("n_clusters", [1, 2, 3, 40])
def test_far_from_zero(dtype, offset, spread, n_clusters):
    rng = np.random.default_rng(2)
    X = (offset + spread * rng.normal(size=(1500, 4))).astype(dtype)
    centres = offset + spread * rng.normal(size=(n_clusters, 4))
    found, labels = one_pass(X, centres)
    D = oracle.distances(X.astype(float), centres)
    assert np.array_equal(labels, D.argmin(axis=1))
    assert found.inertia == pytest.approx((D.min(axis=1) ** 2).sum(), rel=1e-4)


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [
        (np.float32, 1e30),
        (np.float32, 1e-15),
        (np.float32, 1e-22),  # squares are below the least normal number
        (np.float32, 1e-24),
        (np.float64, 1e150),
        (np.float64, 1e-100),
    ],
)
@pytest.mark.parametrize("n_clusters", [2, 3, 20])
def test_huge_and_tiny_values(dtype, scale, n_clusters):
    rng = np.random.default_rng(3)
    X = (scale * rng.normal(size=(3000, 3))).astype(dtype)
    centres = scale * rng.normal(size=(n_clusters, 3))
    found, labels = one_pass(X, centres)
    D = oracle.distances(X.astype(float) / scale, centres / scale)
    assert np.array_equal(labels, D.argmin(axis=1))
    assert found.inertia / scale**2 == pytest.approx((D.min(axis=1) ** 2).sum(), rel=1e-5)
    assert np.isfinite(found.sums).all()
    expected = oracle.look(X.astype(float) / scale, centres / scale, np.ones(len(X)))
    assert found.micro == pytest.approx(expected.micro, abs=1e-6)


@DTYPES
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("d", [1, 15, 16, 17, 33])
def test_sizes_around_what_is_handled_at_once(dtype, n, d):
    rng = np.random.default_rng(n + d)
    X, centres = lattice(rng, n, d), lattice(rng, 5, d)
    found, labels = one_pass(X.astype(dtype), centres)
    squares = exact_squares(X, centres)
    assert np.array_equal(labels, squares.argmin(axis=1))
    assert found.counts.sum() == n
    assert found.inertia == pytest.approx(squares.min(axis=1).sum(), rel=1e-5)


def test_directions():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(700, 6)) * 10.0 ** rng.integers(-200, 200, (700, 1))
    centres = oracle.directions(rng.normal(size=(8, 6)))
    found, labels = one_pass(X, centres, weighing=Weighing(2.0, squared=True), directions=True)
    U = oracle.directions(X / np.abs(X).max(axis=1, keepdims=True))
    expected = oracle.look(U, centres, np.ones(700), squared=True)
    assert np.array_equal(labels, expected.labels)
    assert found.macro == pytest.approx(expected.macro, rel=1e-12)
    assert found.inertia == pytest.approx(expected.inertia, rel=1e-12)


# Sums.


@pytest.mark.parametrize(
    ("dtype", "rel", "s_error"), [(np.float64, 1e-11, 1e-12), (np.float32, 2e-5, 2e-6)]
)
@pytest.mark.parametrize("weighing", [Weighing(), Weighing(4.0), Weighing(3.0, squared=True)])
@pytest.mark.parametrize("n_clusters", [1, 2, 3, 12])
def test_sums(dtype, rel, s_error, weighing, n_clusters):
    rng = np.random.default_rng(5)
    X = (3.0 + rng.normal(size=(5000, 7))).astype(dtype)
    counts = rng.integers(0, 4, 5000) / 2.0
    centres = 3.0 + rng.normal(size=(n_clusters, 7))
    result, labels = one_pass(X, centres, counts, weighing)
    expected = oracle.look(X.astype(float), centres, counts, squared=weighing.squared)
    weights = counts * np.exp(weighing.temperature * expected.s)

    def sums(values):
        return in_clusters(values, labels, n_clusters)

    np.testing.assert_allclose(result.counts, sums(counts), rtol=1e-14)
    np.testing.assert_array_equal(result.members, sums((counts > 0).astype(float)))
    np.testing.assert_allclose(result.weights, sums(weights), rtol=rel)
    differences = X.astype(float) - result.shift
    largest = sums(weights[:, None] * np.abs(differences)).max()
    np.testing.assert_allclose(
        result.sums, sums(weights[:, None] * differences), atol=rel * largest, rtol=0
    )
    np.testing.assert_allclose(
        result.silhouettes, sums(counts * expected.s), atol=s_error * counts.sum(), rtol=0
    )
    np.testing.assert_allclose(result.inertias, sums(counts * expected.nearest**2), rtol=rel)
    for name in ("macro", "micro", "inertia"):
        assert getattr(result, name) == pytest.approx(getattr(expected, name), rel=rel)


def test_unclear_points_weigh_most():
    rng = np.random.default_rng(6)
    X, centres = rng.normal(size=(300, 2)), rng.normal(size=(4, 2))
    result, labels = one_pass(X, centres, weighing=Weighing(unclear=True))
    s = oracle.look(X, centres, np.ones(300)).s
    np.testing.assert_allclose(result.weights, in_clusters((1 - s) / 2, labels, 4), rtol=1e-12)


def test_largest_temperature_overflows_nothing():
    rng = np.random.default_rng(7)
    X = np.concatenate([rng.normal(size=(4000, 3)), np.zeros((1000, 3))])
    centres = np.array([[0.0] * 3, [50.0] * 3])
    result, _ = one_pass(X, centres, weighing=Weighing(500.0))
    assert np.isfinite(result.sums).all()
    weights = np.exp(500.0 * oracle.look(X, centres, np.ones(5000)).s)
    assert weights.max() == np.exp(500.0)
    assert result.weights[0] == pytest.approx(weights.sum(), rel=1e-9)


def test_silhouettes_where_both_distances_are_zero():
    X = np.array([[0.0], [0.0], [2.0]])
    found, labels = one_pass(X, [[0.0], [0.0], [5.0]], weighing=Weighing(7.0))
    assert labels.tolist() == [0, 0, 0]
    assert found.silhouettes[0] == 0.0  # of the last point too, as two centres are as near
    assert found.weights[0] == 3.0


def test_one_centre_tells_no_silhouette():
    found, labels = one_pass(np.arange(40.0)[:, None], [[3.0]], weighing=Weighing(7.0))
    assert not labels.any()
    assert found.macro == found.micro == 0.0
    assert found.weights[0] == 40.0


def test_empty_clusters_count_for_nothing():
    X = np.array([[0.0], [1.0], [10.0], [12.0]])
    found, labels = one_pass(X, [[0.0], [900.0], [10.0]], [1.0, 1.0, 1.0, 0.0])
    assert labels.tolist() == [0, 0, 2, 2]
    assert found.empty.tolist() == [1]
    s = [1.0, 1 - 1 / 9, 1.0]
    assert found.macro == pytest.approx(((s[0] + s[1]) / 2 + s[2]) / 2, rel=1e-15)
    assert found.micro == pytest.approx(sum(s) / 3, rel=1e-15)
    # A cluster whose points have weight 0 is empty too.
    found, _ = one_pass(X, [[0.0], [12.0], [10.0]], [1.0, 1.0, 1.0, 0.0])
    assert found.empty.tolist() == [1]


# The farthest points.


@DTYPES
@pytest.mark.parametrize("n", [3, 33, 4097, 13000])
@pytest.mark.parametrize("n_clusters", [1, 4, 37])
def test_farthest_points_are_those_of_a_plain_sort(dtype, n, n_clusters):
    rng = np.random.default_rng(n)
    X, half = lattice(rng, n, 3, 3), lattice(rng, n_clusters // 2, 3, 3)
    # Their mean is 0, so that distances are exact in float32 too.
    centres = np.concatenate([half, -half, np.zeros((n_clusters % 2, 3))])
    counts = rng.integers(0, 3, n).astype(float)
    counts[0] = 1.0
    found, _ = one_pass(X.astype(dtype), centres, counts)
    near = exact_squares(X, centres).min(axis=1)
    some = np.flatnonzero(counts > 0)
    expected = some[np.lexsort((some, -near[some]))][:n_clusters]
    assert found.farthest_rows.tolist() == expected.tolist()


def test_farthest_points_in_any_order_of_rows():
    rng = np.random.default_rng(9)
    distances = np.arange(1.0, 9001.0)
    for order in (np.arange(9000), np.arange(9000)[::-1], rng.permutation(9000)):
        X = np.zeros((9000, 1))
        X[order, 0] = distances
        found, _ = one_pass(X, np.zeros((50, 1)))
        assert found.farthest_rows.tolist() == order[::-1][:50].tolist()


# What is compared with the pass before.


@pytest.mark.parametrize("n", [1, 4096, 9001])
def test_changed_labels_and_digest(n):
    rng = np.random.default_rng(10)
    X, centres = rng.normal(size=(n, 2)), rng.normal(size=(5, 2))
    first, labels = one_pass(X, centres)
    assert first.changed == n  # nothing to compare with
    other = labels.copy()
    rows = rng.choice(n, -(-n // 3), replace=False)
    other[rows] = (other[rows] + 1) % 5
    again, _ = one_pass(X, centres, before=other)
    assert again.changed == len(rows)
    assert again.digest == first.digest
    swapped, _ = one_pass(X, centres[::-1])
    assert swapped.digest != first.digest


def test_weights_are_checked():
    X = np.arange(6.0)[:, None]
    for counts, message in [
        (np.ones(5), r"sample_weight.shape == \(5,\), expected \(6,\)"),
        ([1, 1, 1, 1, 1, -1], "finite and not negative"),
        ([1, 1, 1, 1, 1, np.nan], "finite and not negative"),
        (np.zeros(6), "zero for every point"),
    ]:
        with pytest.raises(InputError, match=message):
            one_pass(X, [[0.0]], counts)
