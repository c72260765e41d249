"""Checkpoints of another job, and what is no checkpoint: refused, and left as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial

import checkpoint_inputs
import numpy as np
import pytest
from checkpoint_inputs import JOURNAL, D, X, bits, digest, fail_after, run

from silchunk import (
    ForeignStoreError,
    InputError,
    StaleStoreError,
    StoreInUseError,
    build_distances,
    silhouette_bounds,
)

# pytest looks for fixtures among the names of a module.
short_panels = checkpoint_inputs.short_panels
computed = checkpoint_inputs.computed
folder = checkpoint_inputs.folder


# Another job's checkpoint.

begun = partial(silhouette_bounds, min_cluster_size=2, n_clusters=3, cluster_sizes=[150, 100, 50])
CHANGES = {
    "the last digit of a value": (
        {"X": np.where(X[7, 1] == X, np.nextafter(X, 9), X)},
        "the input",
    ),
    "the order of points": ({"X": X[::-1]}, "the input is not the same"),
    "n": ({"X": X[:-1], "cluster_sizes": [150, 100, 49]}, "n was 300, now 299"),
    "metric": ({"metric": "manhattan"}, "metric was 'euclidean', now 'manhattan'"),
    "dtype": ({"dtype": "float32"}, "dtype was 'float64', now 'float32'"),
    "min_cluster_size": ({"min_cluster_size": 3}, r"min_cluster_size was \[2\], now \[3\]"),
    "several sizes": ({"min_cluster_size": [2, 3]}, r"was \[2\], now \[2, 3\]"),
    "n_clusters": ({"n_clusters": None}, "n_clusters was 3, now None"),
    "cluster_sizes": (
        {"cluster_sizes": [149, 101, 50]},
        r"cluster_sizes was \[50, 100, 150\], now \[50, 101, 149\]",
    ),
    "no cluster_sizes": ({"cluster_sizes": None}, r"cluster_sizes was \[50, 100, 150\], now \[\]"),
    "certify": ({"certify": True}, "certify was False, now True"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("finished", [False, True])
def test_a_stale_checkpoint_is_refused(folder, computed, change, finished):
    options = {"X": X, "scheduler": "synchronous", "checkpoint": folder}
    computed.fail_at = None if finished else 2
    if finished:
        expected = bits(begun(**options))
    else:
        with pytest.raises(InputError, match="this panel was to fail"):
            begun(**options)
        computed.fail_at = None
        expected = bits(begun(X, scheduler="synchronous"))
    before = digest(folder)
    computed.clear()
    changed, message = CHANGES[change]
    with pytest.raises(StaleStoreError, match=f"is the checkpoint of another job: .*{message}"):
        begun(**{**options, **changed})
    assert computed == []
    assert digest(folder) == before
    assert bits(begun(**options)) == expected


def test_all_that_differs_is_named(folder):
    silhouette_bounds(X, checkpoint=folder)
    message = "n was 300, now 299; .*metric was 'euclidean', now 'chebyshev'; the input .*; n_clus"
    with pytest.raises(StaleStoreError, match=message):
        silhouette_bounds(X[1:], metric="chebyshev", n_clusters=2, checkpoint=folder)


def test_changed_parameters_of_a_metric_are_refused(folder):
    options = {"metric": "minkowski", "checkpoint": folder}
    silhouette_bounds(X, metric_params={"p": 3}, **options)
    before = digest(folder)
    with pytest.raises(StaleStoreError, match="metric_params was {'p': 3}, now {'p': 4}"):
        silhouette_bounds(X, metric_params={"p": 4}, **options)
    assert digest(folder) == before


def test_points_and_a_matrix_are_not_the_same_input(folder):
    silhouette_bounds(D, metric="precomputed", checkpoint=folder)
    with pytest.raises(StaleStoreError, match="metric was 'precomputed', now 'euclidean'"):
        silhouette_bounds(X, checkpoint=folder)


@pytest.mark.parametrize(
    "change", [{"random_state": 4}, {"sample_size": 291}, {"sample_size": None}]
)
@pytest.mark.parametrize("name", ["sample", "sample of a matrix"])
def test_another_sample_is_refused(folder, name, change):
    run(name, checkpoint=folder)
    before = digest(folder)
    with pytest.raises(StaleStoreError, match="sample .by sample_size and random_state. was"):
        run(name, checkpoint=folder, **change)
    assert digest(folder) == before


# What silchunk did not make.


def user_folder(path):
    path.mkdir()
    (path / "notes.txt").write_text("mine")


def user_file(path):
    path.write_text("mine")


def other_journal(path):
    path.mkdir()
    (path / JOURNAL).write_text("mine\n")


def distance_store(path):
    build_distances(X, path)


def link(path):
    silhouette_bounds(X, checkpoint=path.with_name("real"))
    path.symlink_to("real")


def broken_link(path):
    path.symlink_to("nowhere")


def sentinel(path):
    silhouette_bounds(X, checkpoint=path)
    (path / "notes.txt").write_text("mine")


def sentinel_of_a_like_name(path):
    silhouette_bounds(X, checkpoint=path)
    (path / "panel-0000000.npz.mine").write_text("mine")


FOREIGN = {
    user_folder: "is not the checkpoint of a silchunk job",
    os.mkdir: "is not the checkpoint of a silchunk job",
    user_file: "is not the checkpoint of a silchunk job",
    other_journal: "is not the checkpoint of a silchunk job",
    distance_store: "is not the checkpoint of a silchunk job",
    link: "is a symbolic link; give the folder it points to",
    broken_link: "is a symbolic link",
    sentinel: "it holds notes.txt. It is left as it is",
    sentinel_of_a_like_name: "it holds panel-0000000.npz.mine",
}


@pytest.mark.parametrize("occupy", FOREIGN, ids=lambda occupy: occupy.__name__)
def test_nothing_foreign_is_harmed(tmp_path, folder, computed, occupy):
    occupy(folder)
    computed.clear()
    before = digest(tmp_path)
    with pytest.raises(ForeignStoreError, match=FOREIGN[occupy]):
        run("bounds", checkpoint=folder)
    assert digest(tmp_path) == before
    assert computed == []


def test_what_appears_meanwhile_is_left_alone(folder, monkeypatch):
    from silchunk import journal

    create = journal.create

    def create_late(*arguments):
        create(*arguments)
        user_folder(folder)

    monkeypatch.setattr(journal, "create", create_late)
    with pytest.raises(ForeignStoreError, match="came into being meanwhile"):
        run("bounds", checkpoint=folder)
    assert [path.name for path in folder.parent.rglob("*")] == ["job", "notes.txt"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no/where/job", "there is no folder '.*no/where' to make job in"),
        ("s3://a/b", "in a folder"),
    ],
)
def test_places_where_no_checkpoint_can_be(tmp_path, monkeypatch, computed, path, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        run("bounds", checkpoint=path)
    assert computed == []
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_is_no_store(folder):
    silhouette_bounds(X, checkpoint=folder)
    before = digest(folder)
    for overwrite in (False, True):
        with pytest.raises(ForeignStoreError, match="is not a silchunk distance store"):
            build_distances(X, folder, overwrite=overwrite)
    assert digest(folder) == before


HOLD = """
import fcntl, os, sys
folder = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(folder, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_one_process_at_a_time(folder, computed):
    expected = run("bounds")
    fail_after(2, computed, "bounds", folder)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "held\n"
        before = digest(folder)
        with pytest.raises(StoreInUseError, match="by another process; wait for it to end"):
            run("bounds", checkpoint=folder)
        assert digest(folder) == before
        assert computed == []
    finally:
        holder.communicate(timeout=60)
    assert run("bounds", checkpoint=folder) == expected
