"""Chunks that are not in a Zarr store are told of: Zarr reads them as the fill value."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import zarr

from silchunk import SilchunkWarning, silhouette_upper_bound
from silchunk.points import as_rows
from silchunk.zarr_arrays import absent_chunks

X = np.random.default_rng(0).standard_normal((300, 5))
BOUND = silhouette_upper_bound(X)

KINDS = {
    "zarr 3": ({"chunks": (70, 5)}, "c/2/0", 5),
    "zarr 3, dots": ({"chunks": (70, 5), "chunk_key_encoding": {"name": "v2"}}, "2.0", 5),
    "zarr 2": ({"chunks": (70, 2), "zarr_format": 2}, "2.1", 15),
    "sharded": ({"chunks": (10, 5), "shards": (100, 5)}, "c/2/0", 3),
}


@pytest.mark.parametrize("inside", ["", "cells/X"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_absent_chunk_is_told(kind, inside, tmp_path):
    options, key, total = KINDS[kind]
    path = tmp_path / "x.zarr" / inside
    zarr.create_array(path, data=X, **options)
    zarr.create_array(path.with_name(f"{path.name}2"), data=X, **options)  # not to be confused
    root = zarr.storage.LocalStore(tmp_path / "x.zarr")
    array = zarr.open_array(root, path=inside, mode="r")
    assert absent_chunks(array) == (0, total, (f"{inside}/" if inside else "") + _first(kind))
    assert silhouette_upper_bound(array) == BOUND
    (path / key).unlink()
    word = "shards" if kind == "sharded" else "chunks"
    where = f"{inside}/{key}".lstrip("/")
    for given in (array, str(path)):
        told = where if given is array else key
        with pytest.warns(
            SilchunkWarning, match=rf"X: 1 of {total} {word} .* {told} the .* value, 0.0"
        ):
            silhouette_upper_bound(given)


def _first(kind):
    return {"zarr 3, dots": "0.0", "zarr 2": "0.0"}.get(kind, "c/0/0")


def test_zeros_that_zarr_left_out_are_told_and_read(tmp_path):
    data = np.vstack([X, np.zeros((100, 5))])
    zarr.create_array(tmp_path / "x.zarr", data=data, chunks=(100, 5))
    with pytest.warns(SilchunkWarning, match=r"1 of 4 chunks .* c/3/0 the first"):
        assert silhouette_upper_bound(tmp_path / "x.zarr") == silhouette_upper_bound(data)


def test_a_chunk_that_goes_missing_meanwhile_is_an_error(tmp_path):
    zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(70, 5))
    rows = as_rows(tmp_path / "x.zarr")
    assert np.array_equal(rows.rows(0, 300), X)
    (tmp_path / "x.zarr/c/2/0").unlink()
    assert np.array_equal(rows.rows(0, 140), X[:140])
    with pytest.raises(OSError, match="c/2/0 was there and is gone"):
        rows.rows(0, 300)
    (tmp_path / "x.zarr/c").rename(tmp_path / "x.zarr/d")
    with pytest.raises(OSError, match="c/0/0 was there and is gone"):
        pickle.loads(pickle.dumps(rows)).rows(0, 70)
