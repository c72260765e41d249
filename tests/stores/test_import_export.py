"""Existing matrices into a store, and stores into plain files."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import zarr
from store_inputs import CONDENSED, MATRIX, X, whole

from silchunk import (
    InputError,
    OutputExistsError,
    StaleStoreError,
    UnsealedStoreError,
    build_distances,
    export_distances,
    import_distances,
    open_distances,
    silhouette_upper_bound,
)


def in_npy(folder, values):
    np.save(folder / "given.npy", values)
    return folder / "given.npy"


def in_zarr(folder, values):
    chunks = (70,) * values.ndim
    return zarr.create_array(folder / "given.zarr", data=values, chunks=chunks)


@pytest.mark.parametrize("values", [MATRIX, CONDENSED], ids=["square", "condensed"])
@pytest.mark.parametrize(
    "kind",
    [
        lambda folder, values: values,
        in_npy,
        in_zarr,
        lambda folder, values: da.from_array(values, chunks=77),
    ],
    ids=["numpy", "npy", "zarr", "dask"],
)
@pytest.mark.parametrize("memory", ["4GiB", "244MiB"])
def test_import(path, tmp_path, values, kind, memory):
    D = import_distances(kind(tmp_path, values), path, memory=memory)
    assert np.array_equal(whole(D), MATRIX)
    assert D.metric == "precomputed"
    again = import_distances(values, path)
    assert np.array_equal(whole(again), MATRIX)
    with pytest.raises(StaleStoreError, match="the input is not the same"):
        import_distances(values * 2, path)


@pytest.mark.cluster
@pytest.mark.parametrize("values", [MATRIX, CONDENSED], ids=["square", "condensed"])
def test_import_on_a_cluster(path, values, client):
    D = import_distances(values, path, scheduler=client)
    assert np.array_equal(whole(D), MATRIX)


def test_import_takes_off_rounding_noise(path, tmp_path):
    noisy = MATRIX + 1e-12 * np.random.default_rng(0).random((300, 300))
    matrix = whole(import_distances(noisy, path))
    assert np.array_equal(matrix, matrix.T)
    assert (np.diagonal(matrix) == 0).all()
    np.testing.assert_allclose(matrix, MATRIX, atol=2e-12)
    with pytest.raises(InputError, match="not symmetric"):
        import_distances(noisy + np.triu(np.ones((300, 300)), 1), tmp_path / "e.zarr")
    with pytest.raises(InputError, match="one for each pair; got 44,849"):
        import_distances(CONDENSED[:-1], tmp_path / "e.zarr")
    assert not (tmp_path / "e.zarr").exists()


@pytest.mark.parametrize("name", ["out.npy", "out.zarr"])
def test_export(path, tmp_path, name):
    D = build_distances(X, path)
    export_distances(path, tmp_path / name)
    out = tmp_path / name
    exported = np.load(out) if name.endswith("npy") else zarr.open_array(out, mode="r")[:]
    assert np.array_equal(exported, whole(D))
    with pytest.raises(OutputExistsError, match="exists already"):
        export_distances(path, out)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["d.zarr", name])
    with pytest.raises(InputError, match="writes .npy or .zarr"):
        export_distances(path, tmp_path / "out.csv")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_never_sealed(path, bad):
    matrix = MATRIX.copy()
    matrix[3, 200] = matrix[200, 3] = bad
    with pytest.raises(InputError, match=r"at \[(3, 200|200, 3)\]"):
        import_distances(matrix, path, validate=False)
    with pytest.raises(InputError, match=r"at \[(3, 200|200, 3)\]"):
        silhouette_upper_bound(matrix, metric="precomputed", validate=False)
    with pytest.raises(UnsealedStoreError):
        open_distances(path)


@pytest.mark.parametrize("kind", [list, lambda v: zarr_path(v), lambda v: unknown(v)])
def test_condensed_in_every_form(path, kind):
    assert np.array_equal(whole(import_distances(kind(CONDENSED), path)), MATRIX)


def zarr_path(values):
    import tempfile

    folder = tempfile.mkdtemp()
    zarr.create_array(f"{folder}/condensed.zarr", data=values)
    return f"{folder}/condensed.zarr"


def unknown(values):
    array = da.from_array(values, chunks=10_000)
    return array[array >= 0]
