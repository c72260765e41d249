"""``silchunk cluster``: what it refuses, and what a signal leaves."""

from __future__ import annotations

import signal
import subprocess
import sys

import cluster_cli_inputs
import numpy as np
import pytest
from cluster_cli_inputs import X, cluster, run

from silchunk.cli.base import BAD_INPUT, CANNOT_WRITE, OVER_BUDGET, PAUSED
from silchunk.cluster import saved
from silchunk.cluster.base import CentroidClusterer

folder = cluster_cli_inputs.folder

# What it refuses.


@pytest.fixture
def no_work(monkeypatch):
    def fit(self, X, y=None, sample_weight=None):
        raise AssertionError("this was to be refused before any work")

    monkeypatch.setattr(CentroidClusterer, "fit", fit)


@pytest.mark.parametrize("option", ["-o", "--centers", "--history"])
def test_nothing_is_overwritten(option, folder, no_work):
    (folder / "precious.npy").write_text("mine")
    output = [] if option == "-o" else ["-o", "labels.npy"]
    command = ["cluster", "x.npy", "-k", 3, *output, option]
    result = run(*command, "precious.npy", code=CANNOT_WRITE)
    assert "precious.npy exists already" in result.stderr
    assert (folder / "precious.npy").read_text() == "mine"
    missing = run(*command, "missing/out.npy", code=CANNOT_WRITE)
    assert "no folder 'missing'" in missing.stderr
    assert sorted(p.name for p in folder.iterdir()) == ["cloud.npy", "precious.npy", "x.npy"]


@pytest.mark.parametrize("option", ["--centers", "--history", "--checkpoint"])
def test_one_file_cannot_have_two_results(option, folder, no_work):
    result = cluster(option, folder / "labels.npy", code=CANNOT_WRITE)
    assert "labels.npy is named for two outputs" in result.stderr
    assert not (folder / "labels.npy").exists()


@pytest.mark.parametrize(
    ("algorithm", "option", "goes_with"),
    [
        ("kmeans", "--objective micro", "ksil, spherical-ksil"),
        ("ow-kmeans", "--temperature 1", "ksil, spherical-ksil"),
        ("lof-kmeans", "--temperature-range 1 2", "ksil, spherical-ksil"),
        ("ilof-kmeans", "--temperature-step 2", "ksil, spherical-ksil"),
        ("kmeans", "--margin 2", "ksil, spherical-ksil"),
        ("kmeans", "--alone", "ksil, spherical-ksil"),
        ("ksil", "--n-neighbors 5", "lof-kmeans, ilof-kmeans"),
    ],
)
def test_options_of_other_algorithms(algorithm, option, goes_with, no_work):
    result = cluster("--algorithm", algorithm, *option.split(), code=BAD_INPUT)
    name = option.split()[0]
    assert f"{name} does not go with --algorithm {algorithm}; it goes with {goes_with}." in (
        result.stderr
    )


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ("--algorithm k-means", BAD_INPUT, "--algorithm must be one of ksil, spherical-ksil"),
        ("--init mean", BAD_INPUT, "--init must be one of k-means++, k-means||, random; got"),
        ("--objective mean", BAD_INPUT, "objective must be 'macro' or 'micro'; got 'mean'"),
        ("--temperature 1 --temperature-range 2 3", BAD_INPUT, "temperature 1 is not in"),
        ("--temperature-range 3 2", BAD_INPUT, "must be a number from 3 to"),
        ("--memory much", BAD_INPUT, "memory must be"),
        ("--memory 1MiB", OVER_BUDGET, "Raise --memory to"),
        ("--max-iter 0", 2, "greater than or equal to 1"),
        ("--n-init 0", 2, "greater than or equal to 1"),
        ("--tol -1", 2, "greater than or equal to 0"),
        ("--temperature -1", 2, "greater than or equal to 0"),
        ("--margin -1", 2, "greater than or equal to 0"),
        ("--margin 2 --alone", BAD_INPUT, "--alone does not go with --margin"),
        ("--temperature-step 0.5", 2, "greater than or equal to 1"),
        ("--metric cosine", 2, "No such option"),
    ],
)
def test_wrong_options(options, code, message, folder):
    result = cluster(*options.split(), code=code)
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert result.stdout == ""
    assert not (folder / "labels.npy").exists()


@pytest.mark.parametrize(
    ("source", "k", "output", "code", "message"),
    [
        ("nowhere.npy", 3, "labels.npy", BAD_INPUT, "no file or folder 'nowhere.npy'"),
        ("line.npy", 3, "labels.npy", BAD_INPUT, "SRC must be 2-D"),
        ("nan.npy", 3, "labels.npy", BAD_INPUT, "row 7"),
        ("x.npy", 201, "labels.npy", BAD_INPUT, "n_samples=200 should be >= --n-clusters=201"),
        ("x.npy", 0, "labels.npy", 2, "greater than or equal to 1"),
        ("x.npy", 3, "labels.csv", BAD_INPUT, "--output must end in .npy"),
    ],
)
def test_wrong_input(source, k, output, code, message, folder):
    np.save("line.npy", np.arange(9.0))
    np.save("nan.npy", np.where(np.arange(200)[:, None] == 7, np.nan, X))
    result = cluster(source=source, k=k, output=output, code=code)
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert not (folder / output).exists()


def test_what_must_be_given():
    assert "Missing option '--n-clusters'" in run("cluster", "x.npy", "-o", "l.npy", code=2).stderr
    assert "Missing option '--output'" in run("cluster", "x.npy", "-k", 3, code=2).stderr
    assert "Example: silchunk cluster points.npy" in run("cluster", "--help").stdout


def test_directions_of_nothing():
    np.save("zero.npy", X * (np.arange(200) != 5)[:, None])
    result = cluster("--algorithm", "spherical-ksil", source="zero.npy", code=BAD_INPUT)
    assert "row 5" in result.stderr
    cluster(source="zero.npy")


def test_checkpoints_of_something_else(folder):
    (folder / "mine.npz").write_text("mine")
    result = cluster("--checkpoint", "mine.npz", code=BAD_INPUT)
    assert "not the checkpoint of a silchunk fit" in result.stderr
    assert (folder / "mine.npz").read_text() == "mine"
    cluster("--checkpoint", "fit.npz")
    other = cluster("--checkpoint", "fit.npz", k=4, output="other.npy", code=BAD_INPUT)
    assert "--n-clusters was 3, now 4" in other.stderr
    assert not (folder / "other.npy").exists()


# A fit that is cut off.

# The command in a process that gets a signal once two iterations are kept.
CUT_OFF = """
import os, signal, sys
from silchunk.cli import app
from silchunk.cluster import saved

number, *arguments = sys.argv[1:]
write, kept = saved.Checkpoint.write, []

def write_and_send(self, progress):
    write(self, progress)
    kept.append(1)
    if len(kept) == 2:
        os.kill(os.getpid(), getattr(signal, number))

saved.Checkpoint.write = write_and_send
app(arguments)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"),
    [("SIGTERM", PAUSED), ("SIGINT", PAUSED), ("SIGKILL", -signal.SIGKILL)],
)
def test_a_fit_that_is_cut_off_goes_on(number, code, folder, monkeypatch):
    command = ["cluster", "cloud.npy", "-k", "4", "-o", "l.npy", "--history", "h.csv"]
    command += ["--checkpoint", "fit.npz"]
    cut = subprocess.run(
        [sys.executable, "-c", CUT_OFF, number, *command],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert cut.returncode == code, cut.stderr
    if code == PAUSED:
        assert "Run the same again to go on" in cut.stderr
        assert "Traceback" not in cut.stderr
    assert sorted(p.name for p in folder.iterdir()) == ["cloud.npy", "fit.npz", "x.npy"]
    kept = []
    write = saved.Checkpoint.write
    monkeypatch.setattr(
        saved.Checkpoint, "write", lambda self, progress: kept.append(write(self, progress))
    )
    run(*command)
    left = len(kept)
    whole = ["-o", "whole.npy", "--history", "whole.csv", "--checkpoint", "whole.npz"]
    run("cluster", "cloud.npy", "-k", 4, *whole)
    assert left == len(kept) - left - 2  # what was kept before is not computed again
    assert np.array_equal(np.load("l.npy"), np.load("whole.npy"))
    assert (folder / "h.csv").read_text() == (folder / "whole.csv").read_text()


def test_without_a_checkpoint_nothing_is_kept(folder):
    cluster()
    assert sorted(p.name for p in folder.iterdir()) == ["cloud.npy", "labels.npy", "x.npy"]
