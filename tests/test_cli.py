"""The command line as its users see it: output, messages, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

import silchunk
from silchunk.cli.base import (
    BAD_INPUT,
    CANNOT_WRITE,
    DAMAGED,
    OVER_BUDGET,
    PAUSED,
    STOPPED,
    app,
)

runner = CliRunner()
X = np.random.default_rng(0).standard_normal((120, 3))


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    return "x.npy"


def run(*arguments, code=0):
    result = runner.invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result


def test_bound(source):
    result = run("bound", source, "-m", 1, "-m", 20, "--asw", 0.2)
    bounds = silchunk.silhouette_bounds(X)
    assert "x.npy: 120 points, euclidean distance" in result.stdout
    assert f"any clustering: average silhouette width <= {bounds.at(1):.6f}" in result.stdout
    assert f"20 or more points: average silhouette width <= {bounds.at(20):.6f}" in result.stdout
    assert f"reaches {100 * 0.2 / bounds.at(20):.1f}% of that" in result.stdout
    assert result.stderr == ""
    above = run("bound", source, "-m", 1, "-m", 60, "--asw", bounds.at(1) - 1e-9)
    assert "is above that: it cannot be the score of such a clustering" in above.stdout


def test_a_score_that_cannot_be_loses_nothing(source, tmp_path):
    result = run("bound", source, "--asw", 0.99, "--curve", "curve.csv", code=BAD_INPUT)
    assert "average silhouette width <=" in result.stdout
    assert "above the upper bound" in result.stderr
    assert (tmp_path / "curve.csv").exists()
    assert "wrote curve.csv" in result.stderr


def test_parameters_of_metrics(source):
    facts = json.loads(
        run("bound", source, "--metric", "minkowski", "--param", "p=3", "--json").stdout
    )
    expected = silchunk.silhouette_upper_bound(X, metric="minkowski", metric_params={"p": 3})
    assert facts["bounds"][0]["upper_bound"] == expected
    bad = run("bound", source, "--metric", "minkowski", "--param", "p", code=BAD_INPUT)
    assert "--param takes NAME=VALUE" in bad.stderr


def test_remedies_are_options(source):
    over = run("bound", source, "--memory", "233MiB", code=OVER_BUDGET).stderr
    assert "Raise --memory to" in over
    assert "--dtype float32" in over
    run("distances", source, "d.zarr")
    stale = run("distances", source, "d.zarr", "--metric", "l1", code=BAD_INPUT)
    assert "Pass --overwrite" in stale.stderr
    square = np.ones((3, 3)) - np.eye(3)
    square[0, 1] = 2
    np.save("skewed.npy", square)
    skewed = run("bound", "skewed.npy", "--metric", "precomputed", code=BAD_INPUT)
    assert "pass --no-validate" in skewed.stderr
    run("bound", "skewed.npy", "--metric", "precomputed", "--no-validate")


def test_json(source):
    facts = json.loads(run("bound", source, "-m", 3, "--json", "--metric", "l1").stdout)
    bounds = silchunk.silhouette_bounds(X, metric="manhattan")
    assert facts["n"] == 120
    assert facts["metric"] == "manhattan"
    assert facts["bounds"] == [{"min_cluster_size": 3, "upper_bound": bounds.at(3), "wcre": None}]


def test_files(source, tmp_path):
    run("bound", source, "--curve", "curve.csv", "--samples", "samples.npy")
    bounds = silchunk.silhouette_bounds(X)
    table = np.genfromtxt("curve.csv", delimiter=",", names=True)
    assert table["min_cluster_size"].tolist() == list(range(1, 61))
    assert np.array_equal(table["upper_bound"], bounds.curve())
    assert np.array_equal(np.load("samples.npy"), bounds.samples)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["curve.csv", "samples.npy", "x.npy"]


@pytest.mark.parametrize("option", ["--curve", "--samples"])
def test_nothing_is_overwritten(source, tmp_path, option):
    (tmp_path / "precious").write_text("mine")
    result = run("bound", source, option, "precious", code=CANNOT_WRITE)
    assert "precious exists already" in result.stderr
    assert (tmp_path / "precious").read_text() == "mine"
    result = run("bound", source, option, "missing/out", code=CANNOT_WRITE)
    assert "no folder 'missing'" in result.stderr


def test_estimate(source):
    text = run("estimate", source, "--memory", "1GiB").stdout
    assert "120 x 120" in text
    assert "estimated time" in text
    facts = json.loads(run("estimate", source, "--json").stdout)
    assert facts["n_panels"] == 1
    assert facts["peak_bytes"] <= facts["budget_bytes"]
    assert facts["seconds"] > 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["bound", "nowhere.npy"], BAD_INPUT, "no file or folder 'nowhere.npy'"),
        (["bound", "x.npy", "--metric", "euclidian"], BAD_INPUT, "Did you mean 'euclidean'"),
        (["bound", "x.npy", "-m", "61"], BAD_INPUT, "from 1 to n/2 = 60"),
        (["bound", "x.npy", "--memory", "much"], BAD_INPUT, "memory must be"),
        (["bound", "x.npy", "--dtype", "int8"], BAD_INPUT, "dtype must be"),
        (["bound", "x.npy", "--asw", "2"], 2, "equal to 1"),
        (["bound", "x.npy", "--metric", "precomputed"], BAD_INPUT, "must be a square"),
        (["bound", "x.npy", "--memory", "1MiB"], OVER_BUDGET, "Raise --memory to"),
        (["estimate", "x.npy", "--memory", "1MiB"], OVER_BUDGET, "120 points need at least"),
        (["bound"], 2, "Missing argument 'SRC'"),
        (["bond"], 2, "Did you mean 'bound'"),
    ],
)
def test_mistakes(source, arguments, code, message):
    result = run(*arguments, code=code)
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert result.stdout == ""


def test_warnings_are_one_line(source):
    np.save("square.npy", np.abs(np.arange(5.0)[:, None] - np.arange(5.0)))
    result = run("bound", "square.npy")
    assert result.stderr.startswith("warning: SRC is square, symmetric")


def test_demo():
    result = run("demo")
    assert "breast_cancer" in result.stdout
    assert "of what is possible at most" in result.stdout
    rows = json.loads(run("demo", "--json").stdout)["data_sets"]
    for row in rows:
        assert row["asw"] <= row["upper_bound_smallest"] <= row["upper_bound"] <= 1


def test_version_and_help():
    assert run("--version").stdout == f"silchunk {silchunk.__version__}\n"
    for command in ("bound", "estimate"):
        assert "Example: silchunk" in run(command, "--help").stdout


def test_distance_stores(source, tmp_path):
    made = run("distances", source, "d.zarr", "--metric", "manhattan")
    assert "120 x 120 manhattan distances, float32" in made.stdout
    assert "this run took" in made.stdout
    assert "120 x 120 manhattan" in run("info", "d.zarr").stdout
    facts = json.loads(run("info", "d.zarr", "--json").stdout)
    assert facts["metric"] == "manhattan"
    bound = json.loads(run("bound", "d.zarr", "--json").stdout)
    expected = silchunk.silhouette_upper_bound(X, metric="manhattan")
    assert bound["bounds"][0]["upper_bound"] == pytest.approx(expected, abs=1e-6)
    assert "all 1 panels are as they were written" in run("verify", "d.zarr").stdout
    run("export", "d.zarr", "m.npy")
    run("import", "m.npy", "e.zarr", "--keep-bits", "fast")
    assert "12 mantissa bits kept" in run("info", "e.zarr").stdout
    run("export", "d.zarr", "m.npy", code=CANNOT_WRITE)
    run("distances", source, "d.zarr", "--metric", "manhattan", "--no-resume", code=CANNOT_WRITE)
    assert "built from something else" in run("distances", source, "d.zarr", code=BAD_INPUT).stderr
    run("distances", source, "d.zarr", "--overwrite", "--json")
    (tmp_path / "mine").mkdir()
    run("distances", source, "mine", "--overwrite", code=BAD_INPUT)
    assert "not a silchunk distance store" in run("info", "mine", code=BAD_INPUT).stderr
    run("info", "missing.zarr", code=BAD_INPUT)


def test_damaged_stores(source, tmp_path):
    run("distances", source, "d.zarr")
    shard = tmp_path / "d.zarr/c/0/0"
    shard.write_bytes(shard.read_bytes()[:-1])
    assert "silchunk verify --repair" in run("bound", "d.zarr", code=DAMAGED).stderr
    found = run("verify", "d.zarr", code=DAMAGED).stdout
    assert "panel 0 is torn" in found
    assert "Nothing was changed" in found
    assert json.loads(run("verify", "d.zarr", "--json", code=DAMAGED).stdout)["damaged"] == [0]
    assert "All is mended" in run("verify", "d.zarr", "--repair").stdout
    run("bound", "d.zarr")


def test_estimate_tells_the_size_of_a_store(source):
    assert "as a store" in run("estimate", source).stdout
    facts = json.loads(run("estimate", source, "--json").stdout)
    assert facts["stored_files"] == 4
    assert facts["stored_bytes"] >= 120 * 120 * 8


@pytest.mark.slow
def test_a_build_is_paused_and_gone_on_with(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((15_000, 8)))
    command = [sys.executable, "-m", "silchunk", "distances", "x.npy", "d.zarr"]
    shards = tmp_path / "d.zarr/c"
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
        before = len(list(shards.glob("*/0")))
        process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while len(list(shards.glob("*/0"))) <= before and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == PAUSED, stderr
        assert "Run the same again to go on" in stderr
        assert "Traceback" not in stderr
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    subprocess.run([*command[:3], "verify", "d.zarr"], cwd=tmp_path, check=True, timeout=120)


@pytest.mark.slow
def test_control_c_ends_cleanly(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((60_000, 16)))
    process = subprocess.Popen(
        [sys.executable, "-m", "silchunk", "bound", "x.npy", "--samples", "out.npy"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        # Shells start what runs in the background with SIGINT ignored, these tests perhaps too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stderr.readline().startswith("silhouette bound: ")  # it is well under way
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert time.monotonic() - began < 30
    assert process.returncode == STOPPED
    assert "stopped; nothing was written" in stderr
    assert "Traceback" not in stderr
    assert [p.name for p in tmp_path.iterdir()] == ["x.npy"]
