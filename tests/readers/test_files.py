"""Parquet, .npz, HDF5, AnnData and frames: each gives the bits of the array it holds."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import h5py
import make_cells
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
import xarray as xr

from silchunk import (
    InputError,
    InputTypeError,
    KMeans,
    SilchunkWarning,
    read_points,
    silhouette_score,
    silhouette_upper_bound,
)
from silchunk.labels import read_labels
from silchunk.points import as_rows
from silchunk.sparse_rows import CsrRows

DATA = Path(__file__).parent / "data"
X = np.random.default_rng(0).standard_normal((300, 3))
FRAME = pd.DataFrame({"x": X[:, 0], "y": X[:, 1], "z": X[:, 2]})
KINDS = np.array(["a", "b", "c"])[np.arange(300) % 3]
SPARSE = scipy.sparse.random_array(
    (200, 30), density=0.2, format="csr", rng=np.random.default_rng(1)
)
# How the two forms of the same AnnData are named.
CELLS = ["cells.h5ad:", "cells.zarr:", "cells.zarr/"]


@pytest.fixture
def cells(tmp_path, monkeypatch):
    shutil.copy(DATA / "cells.h5ad", tmp_path)
    shutil.unpack_archive(DATA / "cells.zarr.zip", tmp_path / "cells.zarr")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "given",
    [
        FRAME,
        FRAME.astype("Float64"),
        pl.DataFrame({"x": X[:, 0], "y": X[:, 1], "z": X[:, 2]}),
        pa.table({"x": X[:, 0], "y": X[:, 1], "z": X[:, 2]}),
        xr.DataArray(X, dims=("point", "feature")),
        xr.DataArray(X, dims=("point", "feature")).chunk({"point": 70}),
    ],
    ids=["pandas", "nullable", "polars", "arrow", "xarray", "xarray of dask"],
)
def test_frames_give_the_bits_of_their_array(given):
    assert silhouette_upper_bound(given) == silhouette_upper_bound(X)
    assert np.array_equal(
        KMeans(3, random_state=0).fit(given).labels_, KMeans(3, random_state=0).fit(X).labels_
    )


@pytest.mark.parametrize(
    "labels",
    [pd.Series(KINDS), pd.Series(pd.Categorical(KINDS)), pl.Series(KINDS), xr.DataArray(KINDS)],
    ids=["pandas", "categorical", "polars", "xarray"],
)
def test_series_are_labels(labels):
    assert silhouette_score(X, labels) == silhouette_score(X, KINDS)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (FRAME.assign(k="a"), InputError, r"do not hold numbers: 'k'.*select_dtypes"),
        (pl.DataFrame({"x": [1, 2], "k": ["a", "b"]}), InputError, r"'k' \(String\)"),
        (pa.table({"x": [1, 2], "k": ["a", "b"]}), InputError, r"'k' \(string\)"),
        (pl.DataFrame({"x": [1, 2]}).lazy(), InputTypeError, r"pass X.collect\(\)"),
        (xr.Dataset({"x": ("n", [1, 2])}), InputTypeError, "pass one of its variables"),
    ],
    ids=["pandas", "polars", "arrow", "lazy", "dataset"],
)
def test_frames_that_are_no_points(given, error, message):
    with pytest.raises(error, match=message):
        silhouette_upper_bound(given)


def test_parquet_keeps_float32_and_reads_row_groups(tmp_path):
    FRAME.assign(k=pd.Categorical(KINDS)).to_parquet(tmp_path / "t.parquet", row_group_size=70)
    rows = read_points(tmp_path / "t.parquet", label_column="k")
    assert np.array_equal(rows.rows(0, 300), X)
    again = read_points(tmp_path / "t.parquet", columns=["z", "x"])
    assert np.array_equal(again.rows(0, 300), X[:, [2, 0]])
    assert silhouette_score(X, f"{tmp_path}/t.parquet:k") == silhouette_score(X, KINDS)
    FRAME.astype("float32").to_parquet(tmp_path / "single.parquet")
    assert read_points(tmp_path / "single.parquet").dtype == np.float32
    mixed = pd.DataFrame({"whole": [1, 2], "yes": [True, False], "when": pd.to_datetime([0, 1])})
    mixed.to_parquet(tmp_path / "mixed.parquet")
    with pytest.warns(SilchunkWarning, match="left out 'when'"):
        assert read_points(tmp_path / "mixed.parquet").rows(0, 2).tolist() == [[1, 1], [2, 0]]


@pytest.mark.parametrize("name", ["t.parquet", "t.npz", "t.h5"])
def test_files_that_are_not_what_they_are_called(name, tmp_path):
    (tmp_path / name).write_bytes(b"something else, and quite long enough to be read" * 10)
    with pytest.raises(InputError, match=f"{name} is not a readable"):
        silhouette_upper_bound(tmp_path / name)
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(InputError, match=f"{name} is an empty file"):
        silhouette_upper_bound(tmp_path / name)


@pytest.mark.parametrize(("name", "module"), [("t.parquet", "pyarrow"), ("t.h5", "h5py")])
def test_a_library_that_is_missing_is_named_with_its_extra(name, module, tmp_path, monkeypatch):
    (tmp_path / name).write_bytes(b"anything")
    monkeypatch.setitem(sys.modules, module, None)
    extra = {"pyarrow": "table", "h5py": "hdf5"}[module]
    with pytest.raises(InputError, match=rf"{module}, which is not.*silchunk\[{extra}\]"):
        silhouette_upper_bound(tmp_path / name)


def test_npz(tmp_path):
    np.savez(tmp_path / "one.npz", X)
    np.savez_compressed(tmp_path / "two.npz", x=X, k=KINDS, o=np.array([{}]))
    expected = silhouette_upper_bound(X)
    assert silhouette_upper_bound(tmp_path / "one.npz") == expected
    assert silhouette_upper_bound(f"{tmp_path}/two.npz:x") == expected
    assert silhouette_score(X, f"{tmp_path}/two.npz:k") == silhouette_score(X, KINDS)
    with pytest.raises(InputError, match=r"holds 3 arrays; say which: .*two.npz:x"):
        silhouette_upper_bound(tmp_path / "two.npz")
    with pytest.raises(InputError, match="has no array 'X'; did you mean 'x'"):
        silhouette_upper_bound(f"{tmp_path}/two.npz:X")
    with pytest.raises(InputError, match=r"points are 2-D, one row each; 'k' has shape \(300,\)"):
        silhouette_upper_bound(f"{tmp_path}/two.npz:k")
    with pytest.raises(InputError, match="it holds Python objects"):
        silhouette_upper_bound(f"{tmp_path}/two.npz:o")


@pytest.mark.parametrize("at", [60, 70, 100, -400])
def test_a_damaged_npz_is_refused_by_name(at, tmp_path):
    """Where its packed bytes are no such thing any more, and where only their sum is wrong."""
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.random.default_rng(0).normal(size=(2000, 3)))
    packed = bytearray(path.read_bytes())
    packed[at : at + 40] = b"\xff" * 40
    path.write_bytes(packed)
    with pytest.raises(InputError, match=r"a.npz: 'x' cannot be read: "):
        silhouette_upper_bound(path)
    with pytest.raises(InputError, match=r"a.npz: 'x' cannot be read: "):
        read_labels(path, 2000)


def test_hdf5(tmp_path):
    with h5py.File(tmp_path / "t.h5", "w") as file:
        file.create_dataset("deep/x", data=X, chunks=(64, 2), compression="gzip")
        file["k"] = KINDS.astype("S1")
    rows = read_points(tmp_path / "t.h5")  # the only two-dimensional one
    assert rows.resident_bytes == 0
    assert rows.chunk_rows == 64
    assert silhouette_upper_bound(rows, memory="254MiB") == silhouette_upper_bound(X)
    assert silhouette_score(X, f"{tmp_path}/t.h5:k") == silhouette_score(X, KINDS)
    with pytest.raises(InputError, match="has no 'deep/y'; did you mean 'deep/x'"):
        read_points(tmp_path / "t.h5", array="deep/y")
    with pytest.raises(InputError, match=r"it has shape \(300,\)"):
        read_points(tmp_path / "t.h5", array="k")


@pytest.mark.parametrize("form", CELLS)
def test_anndata(form, cells):
    points = as_rows(f"{form}obsm/X_pca")
    assert points.dtype == np.float32
    assert np.array_equal(points.rows(0, 60), make_cells.components())
    assert np.array_equal(as_rows(f"{form}X", sparse=True).rows(0, 60), make_cells.counts())
    for column in ("louvain", "text"):
        read = read_labels(f"{form}obs/{column}", 60)
        assert [read.classes[code] for code in read.codes] == make_cells.NAMES.tolist()
    for column, first in (("batch", 1), ("number", 0), ("nullable", 0)):
        read = read_labels(f"{form}obs/{column}", 60)
        assert [read.classes[code] for code in read.codes] == (make_cells.KIND + first).tolist()
    with pytest.raises(InputError, match="row 0 .* has no label, and so have 1 in all"):
        read_labels(f"{form}obs/partly", 60)
    with pytest.raises(InputTypeError, match="by columns .*tocsr"):
        as_rows(f"{form}layers/by_columns", sparse=True)
    with pytest.raises(InputTypeError, match="sparse matrix .*Reduce it first, as by PCA"):
        silhouette_upper_bound(f"{form}X")


def test_anndata_without_a_choice_says_what_there_is(cells):
    with pytest.raises(InputError, match=r"say which: cells.h5ad:X, .*cells.h5ad:obsm/X_pca"):
        silhouette_upper_bound("cells.h5ad")
    with pytest.raises(InputError, match=r"is a group, not an array; it holds: .*louvain"):
        read_labels("cells.h5ad:obs", 60)
    with pytest.raises(InputError, match="such as cells.h5ad:obs/louvain"):
        read_labels("cells.h5ad", 60)


def test_sparse_files_cluster_as_the_matrix_does(tmp_path):
    scipy.sparse.save_npz(tmp_path / "s.npz", SPARSE)
    expected = KMeans(3, random_state=0).fit(SPARSE).labels_
    assert np.array_equal(KMeans(3, random_state=0).fit(tmp_path / "s.npz").labels_, expected)
    with pytest.raises(InputTypeError, match="sparse matrix"):
        silhouette_upper_bound(tmp_path / "s.npz")
    dense = silhouette_upper_bound(SPARSE.toarray())
    assert silhouette_upper_bound(read_points(tmp_path / "s.npz", sparse=True)) == dense
    scipy.sparse.save_npz(tmp_path / "c.npz", SPARSE.tocsc())
    with pytest.raises(InputTypeError, match=r"format 'csc'.*tocsr\(\)"):
        as_rows(tmp_path / "c.npz", sparse=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indices": np.array([0, 9])}, "columns that are not among its 3"),
        ({"indices": np.array([-1, 0])}, "columns that are not among its 3"),
        ({"indptr": np.array([0, 2, 1])}, "do not ascend from 0"),
        ({"indptr": np.array([0, 1, 1])}, "end at 1 of 2 entries"),
        ({"indptr": np.array([0, 2])}, "2 pointers"),
    ],
)
def test_damaged_sparse_files_are_refused(change, message, tmp_path):
    parts = {"data": np.ones(2), "indices": np.array([0, 2]), "indptr": np.array([0, 1, 2])}
    shape = {"shape": np.array([2, 3]), "format": np.array(b"csr")}
    np.savez(tmp_path / "s.npz", **{**parts, **shape, **change})
    with pytest.raises(InputError, match=message):
        as_rows(tmp_path / "s.npz", sparse=True)


def test_entries_of_one_place_count_together(tmp_path):
    parts = {"data": np.ones(3), "indices": np.array([1, 1, 0]), "indptr": np.array([0, 2, 3])}
    np.savez(tmp_path / "s.npz", **parts, shape=np.array([2, 2]), format=np.array(b"csr"))
    assert as_rows(tmp_path / "s.npz", sparse=True).rows(0, 2).tolist() == [[0, 2], [1, 0]]


def test_a_sparse_matrix_goes_to_workers_as_three_files(tmp_path):
    rows = as_rows(SPARSE, sparse=True).stored(tmp_path)
    assert isinstance(rows, CsrRows)
    assert rows.resident_bytes == 0
    assert np.array_equal(rows.rows(20, 90, slice(3, 9)), SPARSE.toarray()[20:90, 3:9])
    written = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert written < SPARSE.toarray().nbytes / 2


@pytest.mark.cluster
def test_workers_read_sparse_and_converted_files(client, tmp_path):
    scipy.sparse.save_npz(tmp_path / "s.npz", SPARSE)
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    expected = KMeans(3, random_state=0).fit(SPARSE).labels_
    for given in (SPARSE, tmp_path / "s.npz"):
        found = KMeans(3, random_state=0, scheduler=client).fit(given).labels_
        assert np.array_equal(found, expected)
    bound = silhouette_upper_bound(tmp_path / "t.csv", scheduler=client)
    assert bound == silhouette_upper_bound(X)
