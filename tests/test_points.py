"""Input of every kind gives the same bits; wrong input gives an early and clear error."""

from __future__ import annotations

import logging

import dask.array as da
import numpy as np
import oracles
import pytest
import scipy.sparse
import zarr

from silchunk import (
    InputError,
    InputNotFoundError,
    InputTypeError,
    LooksPrecomputedWarning,
    OverBudgetError,
    silhouette_upper_bound,
    silhouette_upper_bound_samples,
)
from silchunk.points import as_rows
from silchunk.rows import NpyRows, in_memory

X = np.random.default_rng(0).standard_normal((300, 5))
EXPECTED = silhouette_upper_bound_samples(X)


def as_npy(folder):
    np.save(folder / "x.npy", X)
    return str(folder / "x.npy")


def as_fortran_npy(folder):
    np.save(folder / "x.npy", np.asfortranarray(X))
    return folder / "x.npy"


def as_zarr_in_a_group(folder):
    group = zarr.open_group(folder / "cells.zarr", mode="w")
    group.create_array("obsm/X_pca", data=X, chunks=(70, 2))
    return str(folder / "cells.zarr/obsm/X_pca")


def as_zarr_2(folder):
    zarr.create_array(folder / "two.zarr", data=X, chunks=(64, 5), zarr_format=2)
    return folder / "two.zarr"


def as_sharded_zarr(folder):
    return zarr.create_array(folder / "s.zarr", data=X, chunks=(10, 5), shards=(100, 5))


def as_zip(folder):
    store = zarr.storage.ZipStore(folder / "x.zarr.zip", mode="w")
    zarr.create_array(store, data=X, chunks=(64, 5))
    store.close()
    return folder / "x.zarr.zip"


def as_zarr_store(folder):
    store = zarr.storage.LocalStore(folder / "x.zarr")
    zarr.create_array(store, data=X)
    return store


def unknown_chunks(folder):
    chunked = da.from_array(np.r_[X, X], chunks=(90, 5))
    keep = da.from_array(np.arange(600) < 300, chunks=90)
    return chunked[keep]  # its last blocks are empty, and Dask cannot know it


KINDS = {
    "list": lambda folder: X.tolist(),
    "fortran": lambda folder: np.asfortranarray(X),
    "view": lambda folder: np.repeat(X, 2, axis=0)[::2],
    "npy": as_npy,
    "fortran npy": as_fortran_npy,
    "zarr in a group": as_zarr_in_a_group,
    "zarr 2": as_zarr_2,
    "sharded zarr": as_sharded_zarr,
    "zip": as_zip,
    "zarr store": as_zarr_store,
    "zarr in memory": lambda folder: zarr.array(X, chunks=(100, 5)),
    "dask": lambda folder: da.from_array(X, chunks=(77, 3)),
    "dask, unknown chunks": unknown_chunks,
    "dask, empty chunks": lambda folder: da.concatenate(
        [da.from_array(part, chunks=-1) for part in (X[:0], X[:100], X[100:100], X[100:])]
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("memory", ["4GiB", "238MiB"])
def test_every_kind_gives_the_same_bits(kind, memory, tmp_path):
    given = KINDS[kind](tmp_path)
    assert np.array_equal(silhouette_upper_bound_samples(given, memory=memory), EXPECTED)


def test_unknown_lengths_are_logged_and_the_array_left_alone(tmp_path, caplog):
    array = unknown_chunks(tmp_path)
    with caplog.at_level(logging.INFO, "silchunk"):
        silhouette_upper_bound(array)
    assert "unknown chunk lengths" in caplog.text
    assert np.isnan(array.shape[0])


def test_large_dask_arrays_go_through_a_file(tmp_path):
    array = da.from_array(X, chunks=(64, 5))
    rows = as_rows(array).computed(tmp_path, 1000)
    assert isinstance(rows, NpyRows)
    assert rows.resident_bytes == 0
    assert np.array_equal(rows.rows(0, 300), X)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "int64", "uint16", "bool", ">f8"])
def test_dtypes(dtype, tmp_path):
    data = (4 * X).astype(dtype)
    expected = silhouette_upper_bound(data.astype("f4" if dtype == "float32" else "f8"))
    np.save(tmp_path / "x.npy", data)
    assert silhouette_upper_bound(data) == expected
    assert silhouette_upper_bound(tmp_path / "x.npy", memory="238MiB") == expected
    rows = as_rows(tmp_path / "x.npy")
    assert rows.rows(3, 5, slice(1, 3)).shape == (2, 2)
    assert in_memory(rows).rows(0, 2).dtype == ("float32" if dtype == "float32" else "float64")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [0, 4095, 4096, 9999])
def test_not_finite(bad, row, tmp_path):
    data = np.zeros((10_000, 3), np.float32)
    data[row, 2] = bad
    for given in (data, da.from_array(data, chunks=3000)):
        with pytest.raises(InputError, match=f"X has {bad} at row {row}, column 2"):
            silhouette_upper_bound(given)
    np.save(tmp_path / "x.npy", data)
    with pytest.raises(InputError, match=f"row {row}, column 2"):
        silhouette_upper_bound(tmp_path / "x.npy", memory="240MiB")


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([0, 0, 1, 1], InputError, r"must be 2-D.*shape \(4,\). Were labels passed"),
        (3.0, InputError, r"must be 2-D.*shape \(\)"),
        (np.zeros((2, 2, 2)), InputError, r"shape \(2, 2, 2\)"),
        (np.zeros((0, 3)), InputError, r"X is empty: its shape is \(0, 3\)"),
        (np.zeros((3, 0)), InputError, "X is empty"),
        ([["a", "b"], ["c", "d"]], InputError, "must be real numbers; its dtype is <U1"),
        (np.zeros((2, 2), complex), InputError, "dtype is complex128"),
        (np.zeros((2, 2), object), InputError, "dtype is object"),
        ([[1, 2], [3]], InputError, "cannot be read as an array"),
        (np.ma.masked_equal([[1, 2], [3, 4]], 3), InputError, "masked entries"),
        (scipy.sparse.eye_array(4), InputTypeError, "sparse.*Pass a dense array"),
        (scipy.sparse.csr_matrix(np.eye(3)), InputTypeError, "csr_matrix"),
        (da.zeros((4,)), InputError, r"must be 2-D.*shape \(4,\)"),
        ("nowhere/x.npy", InputNotFoundError, "no file or folder 'nowhere/x.npy'"),
    ],
)
def test_wrong_input(given, error, message):
    with pytest.raises(error, match=message):
        silhouette_upper_bound(given)


def test_wrong_files(tmp_path):
    (tmp_path / "x.npy").write_bytes(b"not numpy at all")
    with pytest.raises(InputError, match="not a readable .npy file"):
        silhouette_upper_bound(tmp_path / "x.npy")
    np.save(tmp_path / "objects.npy", np.array([[{}, 1]], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="not a readable .npy file"):
        silhouette_upper_bound(tmp_path / "objects.npy")
    (tmp_path / "x.xlsx").write_bytes(b"")
    with pytest.raises(InputTypeError, match="x.xlsx' is of a kind that silchunk does not read"):
        silhouette_upper_bound(tmp_path / "x.xlsx")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no readable Zarr array"):
        silhouette_upper_bound(tmp_path / "empty")
    group = zarr.open_group(tmp_path / "g.zarr", mode="w")
    group.create_array("points", data=X)
    with pytest.raises(InputError, match="is a Zarr group.*It holds: points"):
        silhouette_upper_bound(tmp_path / "g.zarr")
    with pytest.raises(InputError, match="is a Zarr group"):
        silhouette_upper_bound(group)
    zarr.create_array(tmp_path / "one.zarr", data=np.arange(5))
    with pytest.raises(InputError, match=r"must be 2-D.*shape \(5,\)"):
        silhouette_upper_bound(tmp_path / "one.zarr")


def test_a_matrix_passed_as_points():
    D = np.abs(oracles.X6 - oracles.X6.T)
    with pytest.warns(LooksPrecomputedWarning, match='Did you mean metric="precomputed"'):
        silhouette_upper_bound(D)
    D[0, 1] = 7  # square, but not symmetric: points after all
    silhouette_upper_bound(D)


def test_dask_arrays_are_planned_before_they_are_computed():
    def never(block):
        raise AssertionError("computed before the plan was made")

    array = da.zeros((500_000, 2), chunks=(10_000, 2)).map_blocks(never, dtype=float)
    with pytest.raises(OverBudgetError, match="500,000 points need at least"):
        silhouette_upper_bound(array, memory="238MiB")
    with pytest.raises(InputError, match="min_cluster_size"):
        silhouette_upper_bound(array[:1000], min_cluster_size=501)
    with pytest.raises(OverBudgetError, match="blocks of the Dask array X have up to"):
        silhouette_upper_bound(
            da.zeros((4_000, 20_000), chunks=(4_000, 20_000)), memory="4GiB", dtype="float32"
        )


def test_no_temporary_file_is_left(tmp_path):
    import dask

    with dask.config.set({"temporary-directory": str(tmp_path)}):
        silhouette_upper_bound(da.from_array(X, chunks=50), memory="238MiB")
        with pytest.raises(InputError, match="min_cluster_size"):
            silhouette_upper_bound(X, min_cluster_size=0)
    assert not list(tmp_path.iterdir())
