"""Distance matrices given by the user: every kind is read, every fault is named."""

from __future__ import annotations

import dask.array as da
import numpy as np
import oracles
import pytest
import scipy.sparse
import zarr

from silchunk import (
    InputError,
    InputTypeError,
    silhouette_upper_bound,
    silhouette_upper_bound_samples,
)

D6 = np.abs(oracles.X6 - oracles.X6.T)
D = oracles.distances(np.random.default_rng(0).random((500, 4)), np.float64)
EXPECTED = silhouette_upper_bound_samples(D, metric="precomputed")


def bound(matrix, **options):
    return silhouette_upper_bound(matrix, metric="precomputed", **options)


def test_agrees_with_points():
    points = np.random.default_rng(0).random((500, 4))
    np.testing.assert_allclose(silhouette_upper_bound_samples(points), EXPECTED, atol=1e-13)


@pytest.mark.parametrize("memory", ["4GiB", "242MiB"])
@pytest.mark.parametrize("kind", ["numpy", "fortran", "npy", "zarr", "sharded", "dask", "list"])
def test_every_kind_gives_the_same_bits(kind, memory, tmp_path):
    np.save(tmp_path / "d.npy", D)
    given = {
        "numpy": lambda: D,
        "fortran": lambda: np.asfortranarray(D),
        "npy": lambda: tmp_path / "d.npy",
        "zarr": lambda: zarr.create_array(tmp_path / "d.zarr", data=D, chunks=(130, 70)),
        "sharded": lambda: zarr.create_array(
            tmp_path / "d.zarr", data=D, chunks=(64, 100), shards=(128, 500)
        ),
        "dask": lambda: da.from_array(D, chunks=(90, 200)),
        "list": lambda: D.tolist(),
    }[kind]()
    samples = silhouette_upper_bound_samples(given, metric="precomputed", memory=memory)
    assert np.array_equal(samples, EXPECTED)


def test_integers_are_summed_in_float64():
    small = np.array([[0, 1, 2], [1, 0, 1], [2, 1, 0]], np.int8)
    assert bound(small) == bound(small.astype(float))
    many = np.full((300, 300), 120, np.int8) - 120 * np.eye(300, dtype=np.int8)
    assert bound(many) == pytest.approx(0.0, abs=1e-14)


@pytest.mark.parametrize(
    ("matrix", "noise"),
    [
        (D6, 1e-9 * np.eye(6)),
        (D6, 1e-14 * np.eye(6)),
        (D6.astype(np.float32), 1e-6 * np.eye(6, dtype=np.float32)),
        (D6, 1e-10 * np.triu(np.ones((6, 6)), 1)),
        (D6, -1e-17 * np.eye(6)),
    ],
)
def test_rounding_noise_is_accepted(matrix, noise):
    noisy = matrix + noise
    before = noisy.copy()
    assert bound(noisy) == pytest.approx(bound(matrix), abs=1e-9)
    assert np.array_equal(noisy, before)


def broken(i, j, value, n=2100, symmetric=False):
    matrix = np.ones((n, n), np.float32) - np.eye(n, dtype=np.float32)
    matrix[i, j] = value
    if symmetric:
        matrix[j, i] = value
    return matrix


@pytest.mark.parametrize("memory", ["4GiB", "256MiB"])
@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (broken(2050, 2050, 0.3), r"largest entry is 0\.3 at \[2050, 2050\]"),
        (broken(7, 2060, 0.5), r"\[7, 2060\] and \[2060, 7\] differ by 0\.5"),
        (broken(2060, 7, 0.5), r"\[7, 2060\] and \[2060, 7\] differ by 0\.5"),
        (broken(2060, 2055, 0.5), r"\[2055, 2060\] and|\[2060, 2055\] and"),
        (broken(1500, 30, -0.25, symmetric=True), r"negative distance -0\.25 at \[30, 1500\]"),
        (broken(1500, 30, np.nan), r"X has nan at \[1500, 30\]"),
        (broken(30, 1500, np.inf), r"X has inf at \[30, 1500\]"),
    ],
)
def test_the_offending_entry_is_named(matrix, message, memory):
    with pytest.raises(InputError, match=message):
        bound(matrix, memory=memory)


def test_a_diagonal_of_ones():
    with pytest.raises(InputError, match=r"diagonal of X must be zero.*1 at \[0, 0\]"):
        bound(D6 + np.eye(6))


def test_validation_can_be_skipped():
    skewed = D6.copy()
    skewed[0, 1] += 1e-3
    with pytest.raises(InputError, match="not symmetric.*validate=False"):
        bound(skewed)
    assert bound(skewed, validate=False) == pytest.approx(bound(D6), abs=1e-2)


def test_integers_have_no_tolerance():
    matrix = 1_000_000_000 * (1 - np.eye(4, dtype=np.int64))
    matrix[1, 2] += 1
    with pytest.raises(InputError, match="not symmetric"):
        bound(matrix)


@pytest.mark.parametrize(
    ("matrix", "error", "message"),
    [
        (np.zeros((3, 4)), InputError, r"square distance matrix; it has shape \(3, 4\)"),
        (scipy.sparse.csr_array(D6), InputTypeError, "a missing entry is not a distance of zero"),
        (1e307 * D6, InputError, "distances up to .*rescale"),
    ],
)
def test_refused(matrix, error, message):
    with pytest.raises(error, match=message):
        bound(matrix)


def test_metric_params_do_not_belong():
    with pytest.raises(InputError, match="takes no metric_params"):
        bound(D6, metric_params={"p": 1})
