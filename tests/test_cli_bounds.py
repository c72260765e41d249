"""The bound command's whole family: clusters, sizes, samples, certified bounds, checkpoints."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

import silchunk
from silchunk.cli.base import BAD_INPUT, PAUSED, app

runner = CliRunner()
X = np.random.default_rng(0).standard_normal((120, 3))
LABELS = np.repeat(["a", "b", "c"], [70, 40, 10])


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    np.save("labels.npy", LABELS)
    return "x.npy"


def up(bound):
    """Six decimals, rounded up."""
    return f"{math.ceil(bound * 1e6) / 1e6:.6f}"


def run(*arguments, code=0):
    result = runner.invoke(app, ["bound", *(str(a) for a in arguments)])
    assert result.exit_code == code, result.output
    return result


def test_a_number_of_clusters(source):
    result = run(source, "-k", 4, "-m", 1, "-m", 5)
    bounds = silchunk.silhouette_bounds(X, n_clusters=4)
    assert f"4 clusters: average silhouette width <= {up(bounds.at(1))}\n" in result.stdout
    assert f"4 clusters of 5 or more points: average silhouette width <= {up(bounds.at(5))}\n" in (
        result.stdout
    )
    assert json.loads(run(source, "-k", 4, "--json").stdout)["n_clusters"] == 4
    run(source, "-k", 4, "--curve", "curve.csv")
    assert len(np.loadtxt("curve.csv", delimiter=",", skiprows=1)) == 30


@pytest.mark.parametrize("how", [("--labels", "labels.npy"), ("--cluster-sizes", "40,70,10")])
def test_given_sizes(source, how):
    sized = silchunk.silhouette_bounds(X, cluster_sizes=[70, 40, 10]).sized
    result = run(source, *how, "--asw", 0.1)
    assert f"clusters of 70, 40, 10 points: average silhouette width <= {up(sized.asw)}, " in (
        result.stdout
    )
    assert f"mean of cluster means <= {up(sized.macro)}\n" in result.stdout
    assert f"reaches {100 * 0.1 / sized.asw:.1f}% of that" in result.stdout
    facts = json.loads(run(source, *how, "--json").stdout)["cluster_sizes"]
    assert facts["asw"] == sized.asw
    assert facts["macro_rearrangement"] == sized.macro_rearrangement


def test_a_sample(source):
    options = ("--sample-size", 50, "--random-state", 1, "--confidence", 0.9, "-m", 1, "-m", 9)
    sampled = silchunk.silhouette_upper_bound(
        X, min_cluster_size=[1, 9], sample_size=50, random_state=1, confidence=0.9
    )
    result = run(source, *options, "--asw", 0.2)
    assert "120 points, euclidean distance, 50 of them sampled" in result.stdout
    assert f"any clustering: average silhouette width <= {up(sampled.upper_limit[0])} with " in (
        result.stdout
    )
    assert f"about {sampled.estimate[1]:.6f}, standard error" in result.stdout
    facts = json.loads(run(source, *options, "--json").stdout)
    assert [entry["upper_limit"] for entry in facts["bounds"]] == sampled.upper_limit.tolist()
    assert "above the upper limit" in run(source, *options, "--asw", 0.99, code=BAD_INPUT).stderr


def test_certified(source):
    plain = json.loads(run(source, "--json").stdout)["bounds"][0]["upper_bound"]
    facts = json.loads(run(source, "--json", "--certify").stdout)
    assert facts["certified"]
    assert facts["bounds"][0]["upper_bound"] > plain
    said = run(source, "--certify").stdout
    assert f"<= {up(facts['bounds'][0]['upper_bound'])}\n" in said
    assert "rounded outward, bounds in exact arithmetic for the points as given" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--cluster-sizes", "70,40,11"), "--cluster-sizes add up to 121, but SRC has 120"),
        (("--cluster-sizes", "70,40,x"), "takes integers with commas between them"),
        (("--labels", "nowhere.npy"), "labels: there is no file or folder 'nowhere.npy'"),
        (("--labels", "x.npy"), "labels must have one entry for each of the 120 points"),
        (("-k", 1), "--n-clusters must be from 2 to n = 120"),
        (("-k", 4, "-m", 31), "--min-cluster-size must be from 1 to n/4 = 30"),
        (("--sample-size", 1), "--sample-size must be from 2 to n = 120"),
        (("--sample-size", 9, "--curve", "c.csv"), "leave out --curve"),
        (("--sample-size", 9, "--confidence", 2), "confidence must be between 0 and 1"),
        (("--sample-size", 9, "--checkpoint", "ck"), "needs --random-state"),
        (("--confidence", 0.9), "--random-state and --confidence go with --sample-size"),
        (("--random-state", 9), "--random-state and --confidence go with --sample-size"),
        (("--certify", "--dtype", "float32"), "--certify works in float64"),
    ],
)
def test_wrong_options(source, options, message):
    assert message in run(source, *options, code=BAD_INPUT).stderr


def test_labels_that_are_objects_are_not_read(source):
    np.save("objects.npy", np.array([{}] * 120), allow_pickle=True)
    assert (
        "not a readable .npy file" in run(source, "--labels", "objects.npy", code=BAD_INPUT).stderr
    )


def test_a_checkpoint(source, tmp_path):
    first = run(source, "--checkpoint", "ck", "--json")
    again = run(source, "--checkpoint", "ck", "--json")
    bounds = [json.loads(result.stdout)["bounds"] for result in (first, again)]
    assert bounds[0] == bounds[1]
    assert "n_clusters was" in run(
        source, "--checkpoint", "ck", "-k", 3, code=BAD_INPUT
    ).stderr.replace("--n-clusters", "n_clusters")
    (tmp_path / "mine").mkdir()
    result = run(source, "--checkpoint", "mine", code=BAD_INPUT)
    assert "is not the checkpoint of a silchunk job" in result.stderr


@pytest.mark.slow
def test_a_signal_pauses_a_bound_with_a_checkpoint(tmp_path):
    points = np.random.default_rng(0).standard_normal((20_000, 8)).astype(np.float32)
    np.save(tmp_path / "big.npy", points)
    command = [sys.executable, "-m", "silchunk", "bound", "big.npy", "--checkpoint", "ck", "--json"]
    running = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("ck/panel-*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    running.send_signal(signal.SIGTERM)
    _, said = running.communicate(timeout=120)
    assert running.returncode == PAUSED, said
    assert "Run the same again to go on" in said
    done = len(list(tmp_path.glob("ck/panel-*")))
    assert 0 < done < -(-20_000 // 256)
    second = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert second.returncode == 0, second.stderr
    bound = json.loads(second.stdout)["bounds"][0]["upper_bound"]
    assert bound == silchunk.silhouette_bounds(points).asw
