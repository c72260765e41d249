"""Points that are held from the first pass on, where there is room for them."""

from __future__ import annotations

import numpy as np
import pytest
import zarr

import silchunk
from silchunk import prepare
from silchunk.rows import ArrayRows, RememberedRows, ZarrRows, in_memory

rng = np.random.default_rng(4)
X = rng.standard_normal((9000, 6)).astype(np.float32)
LABELS = rng.integers(0, 4, len(X))
SCORES = {
    "davies_bouldin": silchunk.davies_bouldin_score,
    "calinski_harabasz": silchunk.calinski_harabasz_score,
    "sqeuclidean": lambda X, labels, **options: silchunk.silhouette_score(
        X, labels, metric="sqeuclidean", **options
    ),
}


class Counted(ArrayRows):
    """Rows that remember how often they were read."""

    def rows(self, start, stop, columns=slice(None)):
        reads.append((start, stop))
        return super().rows(start, stop, columns)


reads = []


@pytest.fixture
def counted():
    reads.clear()
    return Counted(X)


def test_rows_are_read_once_and_are_the_same(counted):
    source = RememberedRows.of(counted)
    for start, stop in ((0, 100), (50, 100), (100, 9000), (0, 9000)):
        assert np.array_equal(source.rows(start, stop), X[start:stop])
    assert np.array_equal(source.rows(3, 9, slice(1, 4)), X[3:9, 1:4])
    assert reads == [(0, 100), (100, 9000)]
    assert (source.shape, source.dtype, source.resident_bytes) == (X.shape, X.dtype, X.nbytes)


def test_what_is_missing_is_read_where_all_is_wanted(counted):
    source = RememberedRows.of(counted)
    source.rows(20, 40)
    whole = in_memory(source)
    assert isinstance(whole, ArrayRows)
    assert np.array_equal(whole.array, X)


@pytest.fixture
def stored(tmp_path, monkeypatch):
    # Small enough to be held anyway, but for this.
    monkeypatch.setattr(prepare, "_held_bytes", lambda budget: 0)
    zarr.save(tmp_path / "x.zarr", X)
    read = np.zeros(len(X), int)
    rows = ZarrRows.rows

    def watched(self, start, stop, *columns):
        read[start:stop] += 1
        return rows(self, start, stop, *columns)

    monkeypatch.setattr(ZarrRows, "rows", watched)
    return tmp_path / "x.zarr", read


@pytest.mark.parametrize("name", SCORES)
def test_a_store_is_read_once_where_points_fit_beside_the_tasks(name, stored, monkeypatch):
    path, read = stored
    held = SCORES[name](path, LABELS)
    assert (read == 1).all()
    monkeypatch.setattr(prepare, "_rememberable_bytes", lambda budget: 0)
    read[:] = 0
    assert SCORES[name](path, LABELS) == held
    assert (read > 1).all()
