"""The distance store: what is in it, and what it says of itself."""

from __future__ import annotations

import json
import os
import pickle
from types import SimpleNamespace

import dask.array as da
import hypothesis
import numpy as np
import oracles
import pytest
import scipy.spatial.distance as ssd
import zarr
from hypothesis import strategies as st
from store_inputs import CALLS, X, counted, whole
from test_distances import EXACT, NAMES, TOLERANCE, hard_points

import silchunk
from silchunk import (
    DiskFullError,
    InputError,
    InputNotFoundError,
    SlowMetricWarning,
    UnsealedStoreError,
    build_distances,
    export_distances,
    import_distances,
    open_distances,
    plan,
    silhouette_bounds,
    silhouette_upper_bound,
    storage,
)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine", "manhattan", "chebyshev", "canberra"])
@pytest.mark.parametrize("n", [2, 63, 64, 65, 300, 700])
def test_anyone_with_zarr_reads_it(path, metric, dtype, n):
    points = np.random.default_rng(n).random((n, 3)) + 0.1
    D = build_distances(points, path, metric=metric, dtype=dtype)
    by_zarr = zarr.open_array(path, mode="r")
    assert by_zarr.shape == D.shape == (n, n)
    assert by_zarr.dtype == D.dtype == dtype
    assert np.isnan(by_zarr.fill_value)
    matrix = by_zarr[:]
    assert np.array_equal(matrix, whole(D))
    assert np.array_equal(matrix, matrix.T)
    assert (np.diagonal(matrix) == 0).all()
    expected = ssd.cdist(points, points, {"manhattan": "cityblock"}.get(metric, metric))
    np.testing.assert_allclose(matrix, expected, rtol=1e-6, atol=1e-15 if dtype == "f8" else 1e-7)
    assert D.verify().ok


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("metric", EXACT)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numerically(path, name, metric, dtype):
    points = hard_points(name)
    wide = points.astype(np.longdouble)
    expected = np.stack([EXACT[metric](row, wide) for row in wide])
    fits = expected.max() == 0 or 1e-38 < expected.max() < np.finfo(dtype).max
    if dtype == "float32" and not fits:
        with pytest.raises(InputError, match="out of the range of float32"):
            build_distances(points, path, metric=metric)
        assert not path.exists()
        return
    matrix = whole(build_distances(points, path, metric=metric, dtype=dtype))
    spacing = float(np.finfo(dtype).tiny)
    assert (np.abs(matrix - expected) <= TOLERANCE[dtype] * expected + spacing).all()
    assert np.array_equal(matrix, matrix.T)


def test_subnormal_values_and_many_features(path, tmp_path):
    tiny = np.random.default_rng(0).standard_normal((40, 3)) * 1e-310
    matrix = whole(build_distances(tiny, path, dtype="float64"))
    expected = oracles.distances(tiny).astype(float)
    np.testing.assert_allclose(matrix, expected, rtol=1e-12, atol=1e-322)
    long = np.random.default_rng(0).standard_normal((70, 10_000))
    matrix = whole(build_distances(long, tmp_path / "long.zarr", dtype="float64"))
    np.testing.assert_allclose(matrix, oracles.distances(long).astype(float), rtol=1e-12)


def test_rows_and_blocks(path):
    D = build_distances(X, path)
    matrix = zarr.open_array(path, mode="r")[:]
    for start, stop in ((0, 1), (63, 65), (10, 200), (299, 300), (5, 5)):
        assert np.array_equal(D.rows(start, stop), matrix[start:stop])
        assert np.array_equal(D.rows(start, stop, slice(7, 150)), matrix[start:stop, 7:150])
    with pytest.raises(InputError, match="rows 0 to 301 are not within 0 to 300"):
        D.rows(0, 301)
    lazy = D.to_dask()
    assert lazy.chunks == ((64, 64, 64, 64, 44), (300,))
    assert np.array_equal(lazy[5:170, ::3].compute(), matrix[5:170, ::3])
    assert np.array_equal((lazy + lazy.T).compute(), 2 * matrix)


def test_it_describes_itself(path):
    D = build_distances(X, path, metric="manhattan")
    assert "300 x 300 manhattan distances, float32" in repr(D)
    assert "5 panels of 64 rows" in repr(D)
    files = [p for p in (path / "c").rglob("*") if p.is_file()]
    assert D.nbytes_stored == sum(p.stat().st_size for p in files)
    assert len(files) == 5
    again = pickle.loads(pickle.dumps(D))
    assert np.array_equal(whole(again), whole(D))
    assert len(pickle.dumps(D)) < 500, "a path travels to workers, and nothing else"


def test_the_bound_reads_it(path):
    D = build_distances(X, path, dtype="float64")
    expected = silhouette_bounds(whole(D), metric="precomputed")
    opened_by_zarr = zarr.open_array(path, mode="r")
    for given in (D, path, str(path), opened_by_zarr):
        for options in ({}, {"metric": "precomputed"}):
            result = silhouette_bounds(given, **options)
            assert np.array_equal(result.samples, expected.samples)
            assert result.metric == "euclidean"
    assert silhouette_upper_bound(D, memory="243MiB") == expected.asw
    assert silhouette_upper_bound(D) == pytest.approx(silhouette_upper_bound(X), abs=1e-13)
    with pytest.raises(InputError, match="stored matrix of euclidean distances; metric='cosine'"):
        silhouette_upper_bound(D, metric="cosine")


@pytest.mark.cluster
def test_a_cluster_builds_the_same_bits(path, tmp_path, client):
    D = build_distances(X, path)
    for name, given in (("a", X), ("b", da.from_array(X, chunks=(90, 5)))):
        other = build_distances(given, tmp_path / name, scheduler=client)
        assert np.array_equal(whole(other), whole(D))
    by_cluster = silhouette_bounds(path, scheduler=client)
    assert np.array_equal(by_cluster.samples, silhouette_bounds(path).samples)


def test_budget_and_threads_do_not_change_a_bit(tmp_path, monkeypatch):
    points = np.random.default_rng(1).standard_normal((1100, 17)).astype(np.float32)
    seen = set()
    matrices = []
    for i, rows in enumerate((64, 128, 256, 512)):
        monkeypatch.setattr(plan, "PREFERRED_PANEL_ROWS", rows)
        D = build_distances(points, tmp_path / str(i), scheduler=("threads", "sync")[i % 2])
        seen.add(D.layout.panel_rows)
        matrices.append(whole(D))
    assert len(seen) == 4
    assert all(np.array_equal(matrix, matrices[0]) for matrix in matrices)


@pytest.mark.filterwarnings("ignore::silchunk.SlowMetricWarning")  # not what is tested here
def test_slow_metrics_are_computed_once_for_each_pair(path):
    CALLS.clear()
    D = build_distances(X[:200], path, metric=counted, dtype="float64", scheduler="sync")
    tried = 3 * 32  # the spot check before the build
    assert len(CALLS) <= 200 * 199 // 2 + tried
    assert np.array_equal(whole(D), ssd.squareform(ssd.pdist(X[:200], "chebyshev")))
    assert sorted(p.name for p in path.iterdir()) == [
        "c",
        "points.npy",
        "silchunk-journal.jsonl",
        "zarr.json",
    ]


def test_slow_metrics_say_so(path):
    with pytest.warns(SlowMetricWarning, match="runs serially"):
        build_distances(X[:10], path, metric=counted)


def test_paths(tmp_path):
    with pytest.raises(InputError, match="there is no folder .*missing"):
        build_distances(X, tmp_path / "missing/d.zarr")
    with pytest.raises(InputError, match="a distance store lives in a folder"):
        build_distances(X, "s3://bucket/d.zarr")
    with pytest.raises(InputNotFoundError, match="there is no store"):
        open_distances(tmp_path / "d.zarr")
    D = build_distances(X, f"file://{tmp_path}/d.zarr")
    assert D.path == str(tmp_path / "d.zarr")
    assert open_distances(f"file://{tmp_path}/d.zarr").n == 300
    with pytest.raises(InputError, match="use import_distances"):
        build_distances(D, tmp_path / "e.zarr")
    with pytest.raises(InputError, match="cannot be made from itself"):
        import_distances(D, tmp_path / "d.zarr", overwrite=True)
    assert D.verify().ok


def test_a_failed_start_leaves_nothing(path, tmp_path):
    bad = X.copy()
    bad[3, 1] = np.nan
    with pytest.raises(InputError, match="row 3, column 1"):
        build_distances(bad, path)
    with pytest.raises(InputError, match="unknown metric"):
        build_distances(X, path, metric="nonsense")
    assert not list(tmp_path.iterdir())


def test_what_cannot_fit_is_refused_before_it_starts(path, monkeypatch):
    import shutil

    usage = shutil.disk_usage(path.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda p: usage._replace(free=1000))
    with pytest.raises(DiskFullError, match="will take about .* has 1000 bytes free"):
        build_distances(X, path)
    monkeypatch.undo()

    real = os.statvfs(path.parent)
    few = SimpleNamespace(
        **{name: getattr(real, name) for name in dir(real) if name.startswith("f_")}
    )
    few.f_files, few.f_favail = 100, 3
    monkeypatch.setattr(os, "statvfs", lambda p: few)
    with pytest.raises(DiskFullError, match="files, but .* allows 3 more"):
        build_distances(X, path)
    assert not path.exists()


# -- rounded stores ------------------------------------------------------------------------------


def test_a_distance_matrix_stands_for_its_path(path, tmp_path):
    D = build_distances(X, store=path)
    assert hash(D) == hash(open_distances(D))
    assert open_distances(D) == D
    assert silchunk.verify_distances(D).ok
    export_distances(D, tmp_path / "m.npy")
    assert np.array_equal(D.rows(0, 2, slice(0, 10, 2)), np.load(tmp_path / "m.npy")[:2, 0:10:2])


@hypothesis.given(
    st.integers(2, 10_000_000), st.sampled_from([64, 256, 4096]), st.sampled_from(["f4", "f8"])
)
def test_tiles_are_far_below_what_blosc_takes(n, panel_rows, dtype):
    layout = storage.Layout(n, np.dtype(dtype), panel_rows)
    assert panel_rows * layout.chunk_columns * layout.dtype.itemsize < 1 << 28
    assert 0 <= layout.shard_shape[1] - n < layout.chunk_columns


def test_an_unsealed_store_is_refused_and_gone_on_with(path):
    class KilledError(Exception):
        pass

    def kill(done, total):
        if done == 3:
            raise KilledError

    with pytest.raises(KilledError):
        build_distances(X, path, progress=kill, scheduler="sync")
    for use in (open_distances, silhouette_upper_bound, silchunk.verify_distances):
        with pytest.raises(UnsealedStoreError, match="3 of 5 panels: its build was stopped"):
            use(path)
    steps = []
    D = build_distances(X, path, progress=lambda done, total: steps.append((done, total)))
    assert steps[3:] == [(1, 2), (2, 2)], "three are verified, two are built"
    assert D.verify().ok


def test_the_header_says_what_it_was_built_from(path):
    D = build_distances(X, path, metric="seuclidean")
    attributes = json.loads((path / "zarr.json").read_text())["attributes"]["silchunk"]
    assert attributes == D.header
    assert attributes["metric"] == "seuclidean"
    np.testing.assert_allclose(attributes["resolved_params"]["V"], X.var(axis=0, ddof=1))
    assert set(attributes["versions"]) == {"silchunk", "zarr", "numpy"}
