"""What may be done to a store, and what is never touched."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import zarr
from store_inputs import X, counted, whole

import silchunk
from silchunk import (
    DiskFullError,
    ForeignStoreError,
    InputError,
    InputNotFoundError,
    OutputExistsError,
    StaleStoreError,
    StoreInUseError,
    build_distances,
    export_distances,
    import_distances,
    open_distances,
    storage,
)


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


def test_two_builds_do_not_meet(path):
    build_distances(X, path)
    with storage.locked(path), pytest.raises(StoreInUseError, match="by another process"):
        build_distances(X, path)


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
