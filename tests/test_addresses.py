"""Addresses in place of paths, wherever a path is taken, and what is said where none can be."""

from __future__ import annotations

import json

import fsspec
import numpy as np
import pytest
import scipy.spatial.distance as ssd
import zarr
from typer.testing import CliRunner

import silchunk
from silchunk import InputError, SilchunkWarning
from silchunk.cli.base import app

X = np.random.default_rng(0).standard_normal((300, 5))
CONDENSED = ssd.pdist(X)


@pytest.fixture
def memory():
    """A bucket in this process's memory."""
    yield "memory://my-bucket"
    fsspec.filesystem("memory").store.clear()


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result


def test_a_condensed_matrix_at_an_address_is_imported(memory, tmp_path):
    zarr.create_array(f"{memory}/condensed.zarr", data=CONDENSED, chunks=(4000,))
    D = silchunk.import_distances(f"{memory}/condensed.zarr", tmp_path / "d.zarr")
    assert np.array_equal(D.rows(0, 300), ssd.squareform(CONDENSED))


@pytest.mark.parametrize("as_path", [True, False])
def test_absent_chunks_of_labels_and_condensed_matrices_are_told(as_path, tmp_path):
    given = [
        zarr.create_array(tmp_path / "labels.zarr", data=np.arange(300) % 3, chunks=(100,)),
        zarr.create_array(tmp_path / "condensed.zarr", data=CONDENSED, chunks=(40_000,)),
    ]
    (tmp_path / "labels.zarr/c/1").unlink()
    (tmp_path / "condensed.zarr/c/1").unlink()
    if as_path:
        given = [tmp_path / "labels.zarr", tmp_path / "condensed.zarr"]
    with pytest.warns(SilchunkWarning, match=r"labels: 1 of 3 chunks .* c/1 the first"):
        silchunk.silhouette_score(X, given[0])
    with pytest.warns(SilchunkWarning, match=r"X: 1 of 2 chunks .* c/1 the first"):
        silchunk.import_distances(given[1], tmp_path / "d.zarr")


def test_a_store_is_repaired_from_points_at_an_address(memory, tmp_path):
    zarr.create_array(f"{memory}/x.zarr", data=X, chunks=(70, 5))
    D = silchunk.build_distances(f"{memory}/x.zarr", tmp_path / "d.zarr")
    values = D.rows(0, 300)
    (tmp_path / "d.zarr/points.npy").unlink()
    (tmp_path / "d.zarr/c/0/0").unlink()
    run("verify", tmp_path / "d.zarr", "--repair", "--source", f"{memory}/x.zarr")
    assert np.array_equal(silchunk.open_distances(tmp_path / "d.zarr").rows(0, 300), values)


def test_commands_take_addresses_of_labels_and_targets(memory, tmp_path):
    np.save(tmp_path / "x.npy", X)
    zarr.create_array(f"{memory}/labels.zarr", data=np.arange(300) % 3, chunks=(100,))
    labels = ("--labels", f"{memory}/labels.zarr")
    said = run("bound", tmp_path / "x.npy", *labels, "--json").stdout
    np.save(tmp_path / "labels.npy", np.arange(300) % 3)
    labels = ("--labels", tmp_path / "labels.npy")
    there, here = (
        json.loads(said),
        json.loads(run("bound", tmp_path / "x.npy", *labels, "--json").stdout),
    )
    for facts in (there, here):
        facts.pop("seconds", None)
    assert there == here
    run("distances", tmp_path / "x.npy", tmp_path / "d.zarr")
    run("export", tmp_path / "d.zarr", f"{memory}/d.zarr")
    written = zarr.open_array(f"{memory}/d.zarr", mode="r")[:]
    assert np.array_equal(written, silchunk.open_distances(tmp_path / "d.zarr").rows(0, 300))


def test_a_command_says_how_a_store_comes_to_a_bucket(tmp_path):
    np.save(tmp_path / "x.npy", X)
    message = run("distances", tmp_path / "x.npy", "s3://bucket/d.zarr", code=65).output
    assert "silchunk export" in message
    assert "--metric precomputed" in message
    message = run("bound", tmp_path / "x.npy", "--checkpoint", "s3://bucket/job", code=65).output
    assert "renames, locks" in message
    with pytest.raises(InputError, match="must hold no user, password") as got:
        silchunk.build_distances(X, "s3://somebody:secret@bucket/d.zarr")
    assert "secret" not in str(got.value)
