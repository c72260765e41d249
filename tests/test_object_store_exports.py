"""A distance store goes to a bucket whole or not at all, and bounds read from there hold."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import fsspec
import numpy as np
import pytest
import zarr
from zarr.storage import FsspecStore

import silchunk
from silchunk import (
    DamagedStoreError,
    InputError,
    OutputExistsError,
    export_distances,
    plan,
    silhouette_upper_bound,
)

X = np.random.default_rng(0).standard_normal((300, 5))


@pytest.fixture(autouse=True)
def short_panels(monkeypatch):
    monkeypatch.setattr(plan, "PREFERRED_PANEL_ROWS", 64)


@pytest.fixture
def D(tmp_path):  # noqa: N802
    return silchunk.build_distances(X, tmp_path / "d.zarr", keep_bits="small")


@pytest.fixture
def bucket():
    """An address to write below, in this process's memory."""
    yield "memory://my-bucket"
    fsspec.filesystem("memory").store.clear()


def objects(bucket):
    files = fsspec.filesystem("memory")
    return sorted(Path(name).as_posix().rpartition("my-bucket/")[2] for name in files.find(bucket))


def test_an_export_has_every_value_and_guards_them(bucket, D):
    export_distances(D, f"{bucket}/out/d.zarr")
    array = zarr.open_array(f"{bucket}/out/d.zarr", mode="r")
    assert np.array_equal(array[:], D.rows(0, 300))
    assert np.isnan(array.fill_value)
    written = objects(bucket)
    assert written == [*(f"out/d.zarr/c/{i}/0" for i in range(5)), "out/d.zarr/zarr.json"]
    files = fsspec.filesystem("memory")
    content = files.cat_file(f"{bucket}/{written[1]}")
    files.pipe_file(f"{bucket}/{written[1]}", content[:40] + b"?" + content[41:])
    with pytest.raises(ValueError, match="checksum"):
        array[:]


def test_an_export_never_writes_over_anything(bucket, D):
    fsspec.filesystem("memory").pipe_file(f"{bucket}/d.zarr/notes.txt", b"mine")
    with pytest.raises(OutputExistsError, match="holds objects already and is left as it is"):
        export_distances(D, f"{bucket}/d.zarr")
    assert objects(bucket) == ["d.zarr/notes.txt"]


def test_nothing_is_left_of_an_export_that_fails(bucket, D):
    shard = Path(D.path) / "c/3/0"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(DamagedStoreError, match="panel 3 is torn"):
        export_distances(D, f"{bucket}/d.zarr")
    assert objects(bucket) == []


def test_an_array_shows_once_all_of_it_is_there(D, monkeypatch):
    order = []
    written = FsspecStore.set

    async def noted(self, key, *rest):
        order.append(key)
        await written(self, key, *rest)

    monkeypatch.setattr(FsspecStore, "set", noted)
    export_distances(D, "memory://my-bucket/d.zarr")
    fsspec.filesystem("memory").store.clear()
    assert sorted(order[:-1]) == [f"c/{i}/0" for i in range(5)]
    assert order[-1] == "zarr.json"


def test_writes_that_are_lost_are_found(D, monkeypatch):
    async def lost(self, key, *rest):
        pass

    monkeypatch.setattr(FsspecStore, "set", lost)
    with pytest.raises(OSError, match="5 of 5 chunks that were written .* are not there"):
        export_distances(D, "memory://my-bucket/d.zarr")


def test_bounds_from_rounded_distances_hold_wherever_these_were_copied_to(D, tmp_path):
    assert D.relative_error > 0
    bound = silhouette_upper_bound(D)
    export_distances(D, tmp_path / "export.zarr")
    export_distances(D, "memory://my-bucket/export.zarr")
    # As a program for object stores copies a folder.
    fsspec.filesystem("memory").put(D.path, "/my-bucket/copy.zarr", recursive=True)
    copies = [
        tmp_path / "export.zarr",
        *(f"memory://my-bucket/{n}.zarr" for n in ("export", "copy")),
    ]
    for copy in copies:
        assert silhouette_upper_bound(copy, metric="precomputed") == bound
        again = silchunk.import_distances(copy, tmp_path / "again.zarr", overwrite=True)
        assert again.relative_error == D.relative_error
        shutil.rmtree(tmp_path / "again.zarr")
    fsspec.filesystem("memory").store.clear()


@pytest.mark.cluster
def test_a_copy_for_workers_keeps_the_rounding_error(D, client):
    export_distances(D, "memory://my-bucket/d.zarr")
    given = "memory://my-bucket/d.zarr"
    found = silhouette_upper_bound(given, metric="precomputed", scheduler=client)
    fsspec.filesystem("memory").store.clear()
    assert found == silhouette_upper_bound(D)


def test_a_header_says_nothing_of_where_points_came_from(tmp_path):
    zarr.create_array("memory://my-bucket/x.zarr", data=X, chunks=(70, 5))
    D = silchunk.build_distances("memory://my-bucket/x.zarr", tmp_path / "d.zarr")
    fsspec.filesystem("memory").store.clear()
    assert "my-bucket" not in json.dumps(dict(D.header))
    assert "my-bucket" not in (tmp_path / "d.zarr/silchunk-journal.jsonl").read_text()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("s3://bucket/d.npy", "to an address, export writes .zarr"),
        ("https://host/d.zarr", "https:// addresses can be read only"),
    ],
)
def test_addresses_that_are_no_target(D, target, message):
    with pytest.raises(InputError, match=message):
        export_distances(D, target)


def test_stores_and_checkpoints_are_refused_an_address(D):
    for use in (
        lambda: silchunk.build_distances(X, "s3://bucket/d.zarr"),
        lambda: silchunk.import_distances(D, "s3://bucket/d.zarr"),
        lambda: silchunk.open_distances("s3://bucket/d.zarr"),
        lambda: silhouette_upper_bound(X, checkpoint="s3://bucket/job"),
    ):
        with pytest.raises(InputError, match="'s3://bucket/.*folder"):
            use()
