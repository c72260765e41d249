"""The distance store: what is in it, who may read it, and what is never touched."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import dask.array as da
import hypothesis
import numpy as np
import oracles
import pytest
import scipy.spatial.distance as ssd
import zarr
from hypothesis import strategies as st
from test_distances import EXACT, NAMES, TOLERANCE, hard_points

import silchunk
from silchunk import (
    DiskFullError,
    ForeignStoreError,
    InputError,
    InputNotFoundError,
    OutputExistsError,
    SlowMetricWarning,
    StaleStoreError,
    StoreInUseError,
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

X = np.random.default_rng(0).standard_normal((300, 5))


@pytest.fixture(autouse=True)
def short_panels(monkeypatch):
    """Five panels of 64 rows, so that small matrices have several."""
    monkeypatch.setattr(plan, "PREFERRED_PANEL_ROWS", 64)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "d.zarr"


def whole(D):
    return D.rows(0, D.n)


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
    assert silhouette_upper_bound(D, memory="235MiB") == expected.asw
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


CALLS = []


def counted(x, y):
    CALLS.append(1)
    return float(np.abs(x - y).max())


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


def test_the_same_call_returns_the_store(path, monkeypatch):
    D = build_distances(X, path)
    before = {p: p.stat().st_mtime_ns for p in path.rglob("*")}
    again = build_distances(X.copy(), path)
    assert np.array_equal(whole(again), whole(D))
    assert {p: p.stat().st_mtime_ns for p in path.rglob("*")} == before
    with pytest.raises(OutputExistsError, match="is a store already"):
        build_distances(X, path, resume=False)


def changed_metric(x, y):
    return float(np.abs(x - y).max()) * 2


CHANGES = {
    "the input": lambda: {"X": X + 1e-12},
    "n": lambda: {"X": X[:-1]},
    "the order of points": lambda: {"X": X[::-1]},
    "metric": lambda: {"metric": "manhattan"},
    "dtype": lambda: {"dtype": "float64"},
    "keep_bits": lambda: {"keep_bits": 10},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_stale_store_is_refused(path, change):
    build_distances(X, path)
    before = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
    options = {"X": X, **CHANGES[change]()}
    with pytest.raises(StaleStoreError, match="was built from something else.*overwrite=True"):
        build_distances(options.pop("X"), path, **options)
    assert {p: p.read_bytes() for p in path.rglob("*") if p.is_file()} == before


@pytest.mark.filterwarnings("ignore::silchunk.SlowMetricWarning")  # not what is tested here
def test_changed_parameters_and_code_are_refused(path, tmp_path):
    build_distances(X, path, metric="minkowski", metric_params={"p": 3})
    with pytest.raises(StaleStoreError, match="metric_params was {'p': 3}, now {'p': 4}"):
        build_distances(X, path, metric="minkowski", metric_params={"p": 4})
    other = tmp_path / "callable"
    build_distances(X[:20], other, metric=counted)
    build_distances(X[:20], other, metric=counted)
    counterfeit = changed_metric
    counterfeit.__name__ = counterfeit.__qualname__ = "counted"
    with pytest.raises(StaleStoreError, match="the code of the metric is not the same"):
        build_distances(X[:20], other, metric=counterfeit)


def test_overwrite_replaces_a_store_and_nothing_else(path):
    build_distances(X, path)
    D = build_distances(X[:100], path, metric="cosine", overwrite=True)
    assert D.shape == (100, 100)
    assert len(list((path / "c").iterdir())) == 2
    (path / "notes.txt").write_text("mine")
    with pytest.raises(ForeignStoreError, match="holds notes.txt, which silchunk did not make"):
        build_distances(X, path, overwrite=True)
    assert (path / "notes.txt").read_text() == "mine"
    assert np.array_equal(whole(open_distances(path)), whole(D))


def occupy_file(path):
    path.write_text("precious")


def occupy_folder(path):
    path.mkdir()
    (path / "precious").write_text("precious")


def occupy_zarr(path):
    zarr.create_array(path, data=np.eye(300))
    (path / "precious").write_text("precious")


def occupy_link(path):
    real = path.with_name("real.zarr")
    build_distances(X, real)
    path.symlink_to(real)


def occupy_broken_link(path):
    path.symlink_to(path.with_name("nowhere"))


ENTRY_POINTS = {
    "build": lambda path: build_distances(X, path),
    "build, overwrite": lambda path: build_distances(X, path, overwrite=True),
    "import": lambda path: import_distances(np.zeros((3, 3)), path),
    "import, overwrite": lambda path: import_distances(np.zeros((3, 3)), path, overwrite=True),
    "open": open_distances,
    "verify, repair": lambda path: silchunk.verify_distances(path, repair=True),
    "export": lambda path: export_distances(path.with_name("source.zarr"), path),
}


@pytest.mark.parametrize("entry", ENTRY_POINTS)
@pytest.mark.parametrize(
    "occupy", [occupy_file, occupy_folder, occupy_zarr, occupy_link, occupy_broken_link]
)
def test_nothing_foreign_is_harmed(tmp_path, entry, occupy):
    build_distances(X, tmp_path / "source.zarr")
    path = tmp_path / "taken.zarr"
    occupy(path)

    def tree():
        return {
            p: (p.is_symlink(), p.read_bytes() if p.is_file() else None)
            for p in tmp_path.rglob("*")
        }

    before = tree()
    with pytest.raises((ForeignStoreError, OutputExistsError, InputNotFoundError)):
        ENTRY_POINTS[entry](path)
    assert tree() == before


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


def test_two_builds_do_not_meet(path):
    build_distances(X, path)
    with storage.locked(path), pytest.raises(StoreInUseError, match="by another process"):
        build_distances(X, path)


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


# -- import and export ---------------------------------------------------------------------------

MATRIX = ssd.squareform(ssd.pdist(X))
CONDENSED = ssd.pdist(X)


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
@pytest.mark.parametrize("memory", ["4GiB", "236MiB"])
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


# -- rounded stores ------------------------------------------------------------------------------


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


def test_a_store_is_not_replaced_by_itself(path):
    D = build_distances(X, path)
    local = zarr.storage.LocalStore(path)
    for given in (D, path, local, zarr.open_array(local, mode="r"), f"file://{path}"):
        with pytest.raises(InputError, match="cannot be made from itself"):
            import_distances(given, path, overwrite=True)
    assert D.verify().ok


def test_an_overwrite_without_room_keeps_the_old_store(path, monkeypatch):
    import shutil

    D = build_distances(X, path)
    usage = shutil.disk_usage(path.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda p: usage._replace(free=0))
    with pytest.raises(DiskFullError, match="will take about"):
        build_distances(X, path, dtype="float64", overwrite=True)
    monkeypatch.undo()
    assert D.verify().ok


def test_an_overwrite_that_was_cut_off_goes_on(path):
    build_distances(X[::-1], path)

    def kill(done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_distances(X, path, overwrite=True, progress=kill, scheduler="sync")
    steps = []
    build_distances(X, path, overwrite=True, progress=lambda *step: steps.append(step))
    assert steps[2:] == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("name", ["c/0/0.mine", "c/0/mine", "halves/mine.npy", "mine", "c/mine/0"])
def test_sentinels_inside_a_store_survive(path, name):
    build_distances(X, path)
    (path / name).parent.mkdir(parents=True, exist_ok=True)
    (path / name).write_text("mine")
    with pytest.raises(ForeignStoreError, match="which silchunk did not make"):
        build_distances(X, path, metric="canberra", overwrite=True)
    assert (path / name).read_text() == "mine"


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def measure(self, x, y):
        return float(self.factor * np.abs(x - y).sum())

    __call__ = measure


def weighted(weights):
    return lambda x, y: float((weights * np.abs(x - y)).sum())


def with_keyword(x, y, *, factor=1.0):
    return float(factor * np.abs(x - y).sum())


def long_weights(middle):
    weights = np.ones(2000)
    weights[1000] = middle
    return weights


PAIRS = {
    "bound method": (Scaled(1).measure, Scaled(7).measure),
    "callable object": (Scaled(1), Scaled(7)),
    "closure over an array": (weighted(long_weights(1)), weighted(long_weights(9))),
    "partial": (partial(with_keyword, factor=1.0), partial(with_keyword, factor=2.0)),
}


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.filterwarnings("ignore::silchunk.SlowMetricWarning")  # not what is tested here
def test_callables_are_known_by_what_they_do(path, kind):
    one, other = PAIRS[kind]
    wide = np.random.default_rng(0).random((6, 2000))
    build_distances(wide, path, metric=one)
    build_distances(wide, path, metric=one)
    with pytest.raises(StaleStoreError, match="the code of the metric"):
        build_distances(wide, path, metric=other)


def test_callables_are_known_in_another_process(path):
    code = (
        "import sys, warnings, numpy as np; from functools import partial\n"
        "from silchunk import provenance\n"
        "def f(x, y, *, p=1): return max(abs(a - b) for a, b in zip(x, y)) * p\n"
        "class C:\n"
        "    def __call__(self, x, y): return (lambda v: v)(f(x, y))\n"
        "print(provenance.code_digest(partial(f, p=2)), provenance.code_digest(C()))\n"
    )
    run = [sys.executable, "-c", code]
    first, second = (subprocess.run(run, capture_output=True, check=True).stdout for _ in "12")
    assert first == second


def test_metric_params_of_any_kind(path, tmp_path):
    for i, w in enumerate([(1.0, 2, 3, 4, 5), np.arange(1, 6), [np.int64(1)] * 5]):
        place = tmp_path / str(i)
        for _ in range(2):
            D = build_distances(X, place, metric="minkowski", metric_params={"w": w, "p": 3})
        flip = place / "c/1/0"
        flip.write_bytes(flip.read_bytes()[:-1])
        assert D.verify(repair=True).ok
    with pytest.raises(StaleStoreError, match="metric_params was"):
        build_distances(X, place, metric="minkowski", metric_params={"w": np.ones(5) * 2, "p": 3})
    with pytest.raises(InputError, match="cannot be recorded in the store"):
        build_distances(X, path, metric="minkowski", metric_params={"p": 3, "w": object()})
    with pytest.raises(InputError, match="metric_params must be a dict"):
        build_distances(X, path, metric_params=[1])


def test_values_next_to_the_largest_are_not_rounded_beyond_it(path):
    big = np.array([[0.0], [3.4e38]], np.float32)
    matrix = whole(build_distances(big, path, keep_bits=1))
    assert np.isfinite(matrix).all()


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
