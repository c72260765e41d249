"""``silchunk sweep`` as its users see it."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from test_sweep import X
from typer.testing import CliRunner

import silchunk
from silchunk import InputError, SweepRow, build_distances
from silchunk.cli.base import app
from silchunk.cli.sweep import parsed_counts

runner = CliRunner()


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with points, which commands run in."""
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    return tmp_path


def run(*arguments, code=0):
    result = runner.invoke(app, ["sweep", *(str(a) for a in arguments)])
    assert result.exit_code == code, result.output
    return result


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("2:5", [2, 3, 4, 5]),
        ("2:10:3", [2, 5, 8]),
        ("7", [7]),
        ("2,4,8", [2, 4, 8]),
        ("2:4,10:20:5", [2, 3, 4, 10, 15, 20]),
    ],
)
def test_ranges_have_both_ends(text, counts):
    assert parsed_counts(text) == counts


@pytest.mark.parametrize("text", ["", "2-5", "2:", "2:5:0", "1:2:3:4", "two", "9:2"])
def test_other_ranges_are_refused(text):
    with pytest.raises(InputError, match="--n-clusters"):
        parsed_counts(text)


def test_prints_the_table_and_writes_what_it_is_asked_for(folder):
    result = run(
        "x.npy", "-k", "2:4", "-o", "sweep.html", "--csv", "sweep.csv", "--labels", "labels"
    )
    found = silchunk.sweep(X, [2, 3, 4])
    assert result.stdout == f"x.npy: {found}\n"
    assert result.stderr.endswith("wrote labels\nwrote sweep.html\nwrote sweep.csv\n")
    with open("sweep.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row, expected in zip(rows, found.rows, strict=True):
        facts = expected.facts()
        assert row.keys() == facts.keys()
        assert set(SweepRow._fields) <= row.keys()
        for name, value in facts.items():
            assert row[name] == ("" if value is None else repr(value))
        labels = np.load(f"labels/labels-{expected.n_clusters}.npy")
        assert np.array_equal(labels, found.labels[expected.n_clusters])
    page = (folder / "sweep.html").read_text()
    assert "silchunk sweep x.npy -k 2:4 -o sweep.html" in page
    assert found.rows[0].reason is None


def test_json_has_all_figures():
    given = ("-k", "1:3", "--estimator", "kmeans", "--seed", 3, "--metric", "manhattan", "-m", 4)
    facts = json.loads(run("x.npy", *given, "--json").stdout)
    found = silchunk.sweep(
        X, [1, 2, 3], estimator="kmeans", random_state=3, metric="manhattan", min_cluster_size=4
    )
    assert facts["source"] == "x.npy"
    assert facts["rows"] == [row.facts() for row in found.rows]
    assert facts["rows"][0]["reason"] == "A silhouette needs two clusters at least."
    assert facts["recommended"] == found.recommended
    assert (facts["agreed"], facts["metric"]) == (found.agreed, "manhattan")


def test_distances_are_kept_where_asked(folder):
    run("x.npy", "-k", "2,3", "--store", "d.zarr", "--dtype", "float64")
    D = silchunk.open_distances(folder / "d.zarr")
    assert (D.n, D.metric, D.dtype) == (140, "euclidean", np.float64)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("x.npy", "-k", "2-5"), 65, "--n-clusters takes a range with both ends"),
        (("x.npy", "-k", "0:5"), 65, "--n-clusters takes integers, 1 or more; got 0"),
        (("x.npy", "--estimator", "k-means"), 65, "must be one of ksil"),
        (("none.npy",), 65, "there is no file or folder 'none.npy'"),
        (("d.zarr",), 65, "ksil finds clusters of points, but SRC is a matrix"),
        (("x.npy", "-o", "x.npy"), 73, "x.npy exists already and is left as it is"),
        (("x.npy", "--csv", "none/a.csv"), 73, "there is no folder 'none'"),
        (("x.npy", "--labels", "a", "--csv", "a"), 73, "a is named for two outputs"),
        (("x.npy", "--checkpoint", "x.npy"), 65, "x.npy is a file"),
        (("x.npy", "--memory", "10MiB"), 69, "budget allows"),
    ],
)
def test_mistakes_are_named(folder, arguments, code, message):
    if "d.zarr" in arguments:
        build_distances(X, folder / "d.zarr")
    before = sorted(folder.rglob("*"))
    assert message in run(*arguments, code=code).stderr
    assert sorted(folder.rglob("*")) == before


@pytest.mark.slow
@pytest.mark.parametrize("how", ["signal", "time limit"])
def test_pauses_with_code_75_and_goes_on(folder, how):
    np.save("large.npy", np.random.default_rng(0).standard_normal((9000, 6)))
    command = [sys.executable, "-m", "silchunk", "sweep", "large.npy", "-k", "2:7", "--json"]
    command += ["--estimator", "kmeans"]
    kept = [*command, "--checkpoint", "job", "--threads", "1"]
    codes = []
    while codes[-1:] != [0] and len(codes) < 6:
        # Long enough at last, also where the machine is busy.
        limit = ["--time-limit", str(4 ** len(codes))] if how == "time limit" else []
        process = subprocess.Popen(
            [*kept, *limit], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        if how == "signal" and not codes:
            # The folder is made after the signal's handler.
            while not (folder / "job").exists() and process.poll() is None:
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
        said, told = process.communicate(timeout=300)
        codes.append(process.returncode)
        assert codes[-1] == 0 or "stopped as asked" in told, told
    assert codes[-1] == 0
    assert set(codes[:-1]) == {75}
    plain = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert json.loads(said)["rows"] == json.loads(plain.stdout)["rows"]
