"""Features on one scale: scikit-learn's scalers on the whole array are what is to be found."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import zarr
from sklearn.preprocessing import RobustScaler, StandardScaler

from silchunk import (
    InputError,
    InputTypeError,
    KMeans,
    SilchunkWarning,
    scaled,
    scaling,
    silhouette_upper_bound,
)

RNG = np.random.default_rng(0)
X = RNG.standard_normal((5000, 6)) * [1, 1e-6, 1e6, 3, 1, 1] + [0, 1, -1e7, 0, 5, 0]
X[:, 3] = RNG.integers(-3, 3, 5000)  # ties
X[:, 4] = np.exp(3 * X[:, 4])
SCALERS = {"standard": StandardScaler, "robust": RobustScaler}


@pytest.mark.parametrize("kind", SCALERS)
@pytest.mark.parametrize("n", [5000, 4999, 4998, 4997, 3, 2])
def test_values_are_those_of_scikit_learn(kind, n):
    expected = SCALERS[kind]().fit_transform(X[:n])
    found = scaled(X[:n], kind)
    np.testing.assert_allclose(found.rows(0, n), expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("n", [5000, 4999, 4998, 4997, 2])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_quartiles_are_exact(n, dtype):
    data = X[:n].astype(dtype)
    low, middle, high = np.quantile(data.astype(float), [0.25, 0.5, 0.75], axis=0)
    found = scaled(data, "robust")
    assert np.array_equal(found.centre, middle)
    assert np.array_equal(found.scale, high - low)


def test_quartiles_do_not_depend_on_how_many_features_are_counted_at_once(monkeypatch):
    whole = scaled(X, "robust")
    monkeypatch.setattr(scaling, "COUNTS_BYTES", 1)
    one_by_one = scaled(X, "robust")
    assert np.array_equal(whole.centre, one_by_one.centre)
    assert np.array_equal(whole.scale, one_by_one.scale)


@pytest.mark.parametrize("kind", SCALERS)
def test_results_do_not_depend_on_chunks(kind, tmp_path):
    expected = scaled(X, kind)
    for rows in (70, 1999):
        stored = zarr.create_array(tmp_path / f"{rows}.zarr", data=X, chunks=(rows, 2))
        found = scaled(stored, kind)
        assert np.array_equal(found.centre, expected.centre)
        assert np.array_equal(found.scale, expected.scale)
        assert np.array_equal(found.rows(60, 300, slice(1, 4)), expected.rows(60, 300)[:, 1:4])


def test_functions_and_estimators_take_scaled_points():
    points = scaled(X[:300])
    whole = points.rows(0, 300)
    assert silhouette_upper_bound(points) == silhouette_upper_bound(whole)
    assert np.array_equal(
        KMeans(3, random_state=0).fit(points).labels_, KMeans(3, random_state=0).fit(whole).labels_
    )


def test_float32_far_from_zero_keeps_its_digits():
    data = (RNG.standard_normal((1000, 2)) + 4096).astype(np.float32)
    found = scaled(data)
    assert found.dtype == np.float32
    exact = StandardScaler().fit_transform(data.astype(float))
    np.testing.assert_allclose(found.rows(0, 1000), exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", SCALERS)
def test_constant_features_are_not_divided(kind):
    data = X[:100].copy()
    data[:, 2] = 0.1  # the mean of which is not quite 0.1
    with pytest.warns(SilchunkWarning, match="1 of the 6 features .* column 2"):
        found = scaled(data, kind)
    assert found.scale[2] == 1
    assert not found.rows(0, 100)[:, 2].any()


@pytest.mark.parametrize("kind", SCALERS)
def test_what_cannot_be_scaled(kind):
    data = X[:100].copy()
    data[7, 3] = np.nan
    with pytest.raises(InputError, match="has nan at row 7, column 3"):
        scaled(data, kind)
    with pytest.raises(InputTypeError, match=r"Dask array.*X.mean\(axis=0\)"):
        scaled(da.from_array(X), kind)


def test_kinds():
    with pytest.raises(InputError, match="kind must be one of standard, robust; got 'minmax'"):
        scaled(X, "minmax")
    with pytest.raises(InputError, match="too large for their squares"), np.errstate(over="ignore"):
        scaled([[1e200], [-1e200]])


@pytest.mark.cluster
def test_workers_scale_what_they_read(client):
    points = scaled(X[:500], "robust")
    there = silhouette_upper_bound(points, scheduler=client)
    assert there == silhouette_upper_bound(points)
