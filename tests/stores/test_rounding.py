"""Compact stores: smaller, and bounds from them are still bounds."""

from __future__ import annotations

import numpy as np
import pytest
import zarr
from store_inputs import X, whole

from silchunk import (
    InputError,
    build_distances,
    import_distances,
    silhouette_bounds,
    silhouette_upper_bound,
)


@pytest.mark.parametrize(
    ("keep_bits", "bits"), [("none", None), ("fast", 12), ("small", 8), (3, 3), (23, None)]
)
def test_kept_bits(path, tmp_path, keep_bits, bits):
    exact = whole(build_distances(X, tmp_path / "exact.zarr"))
    D = build_distances(X, path, keep_bits=keep_bits)
    error = 0.0 if bits is None else 2.0 ** -(bits + 1)
    assert D.header["keep_bits"] == bits
    assert D.relative_error == error
    matrix = whole(D)
    assert np.array_equal(matrix, matrix.T)
    assert (np.abs(matrix - exact) <= error * exact).all()
    if bits is not None:
        assert np.abs(matrix - exact).max() > 0
        assert f"{bits} mantissa bits kept" in repr(D)


@pytest.mark.parametrize("keep_bits", [1, 3, 8])
@pytest.mark.parametrize("seed", range(5))
def test_bounds_from_rounded_stores_are_still_bounds(tmp_path, keep_bits, seed):
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((120, 3)) * rng.choice([0.1, 1, 10], (120, 1))
    exact = silhouette_bounds(build_distances(points, tmp_path / "a"))
    rounded = silhouette_bounds(build_distances(points, tmp_path / "b", keep_bits=keep_bits))
    assert (rounded.samples >= exact.samples).all()
    assert (rounded.curve() >= exact.curve()).all()
    assert rounded.asw <= exact.asw + 4 * 2.0**-keep_bits


@pytest.mark.parametrize(
    ("keep_bits", "message"),
    [(0, "from 1 to 23"), (24, "from 1 to 23"), ("tiny", "none, fast, small"), (1.5, "integer")],
)
def test_wrong_bits(path, keep_bits, message):
    with pytest.raises(InputError, match=message):
        build_distances(X, path, keep_bits=keep_bits)


def test_rounding_travels_with_the_matrix(path, tmp_path):
    D = build_distances(X, path, keep_bits=2)
    bound = silhouette_upper_bound(D)
    local = zarr.storage.LocalStore(path)
    for given in (local, zarr.open_array(local, mode="r"), f"file://{path}"):
        assert silhouette_upper_bound(given, metric="precomputed") == bound
    copied = import_distances(D, tmp_path / "copy.zarr")
    assert copied.relative_error == D.relative_error
    assert silhouette_upper_bound(copied) == bound
    twice = import_distances(path, tmp_path / "twice.zarr", keep_bits=4)
    assert twice.relative_error == pytest.approx((1 + 2**-3) * (1 + 2**-5) - 1)
    wide = silhouette_upper_bound(D, dtype="float64")
    assert wide == pytest.approx(bound, abs=1e-12)


def test_values_next_to_the_largest_are_not_rounded_beyond_it(path):
    big = np.array([[0.0], [3.4e38]], np.float32)
    matrix = whole(build_distances(big, path, keep_bits=1))
    assert np.isfinite(matrix).all()
