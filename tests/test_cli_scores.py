"""``silchunk score`` and ``silchunk evaluate`` as their users see them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import zarr
from silhouette_inputs import blobs
from sklearn.metrics import pairwise_distances
from typer.testing import CliRunner

import silchunk
from silchunk.cli.base import BAD_INPUT, CANNOT_WRITE, OVER_BUDGET, app

runner = CliRunner()
X, LABELS = blobs(120, 3, 4)
SAMPLE = ("--sample", 30, "--random-state", 0)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with points and labels, which commands run in."""
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    np.save("labels.npy", LABELS)
    np.save("noisy.npy", LABELS - 1)
    return tmp_path


def run(*arguments, code=0):
    result = runner.invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result


def score(*arguments, code=0):
    return run("score", "x.npy", "labels.npy", *arguments, code=code)


# score


def test_score():
    result = score()
    table = silchunk.silhouette_table(X, LABELS)
    first, *rest = result.stdout.splitlines()
    assert first.startswith("x.npy, ")
    assert "\n".join(rest) == repr(table)
    assert result.stderr == ""


def test_json():
    facts = json.loads(score("--json", "--metric", "l1").stdout)
    table = silchunk.silhouette_table(X, LABELS, metric="manhattan")
    assert (facts["source"], facts["n"], facts["n_clusters"]) == ("x.npy", 120, 4)
    assert facts["metric"] == "manhattan"
    assert facts["sample_size"] is None
    assert (facts["micro"], facts["macro"]) == (table.micro, table.macro)
    assert facts["micro_standard_error"] == facts["macro_standard_error"] == 0.0
    assert facts["seconds"] > 0
    assert facts["peak_bytes_planned"] == table.plan.peak_bytes
    clusters = facts["clusters"]
    assert [cluster["label"] for cluster in clusters] == ["0", "1", "2", "3"]
    for name, column in (
        ("size", table.clusters.sizes),
        ("mean", table.clusters.means),
        ("median", table.clusters.medians),
        ("min", table.clusters.minima),
        ("negative", table.clusters.negative),
        ("standard_error", table.clusters.standard_errors),
    ):
        assert [cluster[name] for cluster in clusters] == column.tolist()


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_one_mean(average):
    expected = silchunk.silhouette_score(X, LABELS, average=average)
    assert float(score("--average", average).stdout) == expected
    sampled = silchunk.silhouette_score(X, LABELS, average=average, sample_size=30, random_state=0)
    assert score("--average", average, *SAMPLE).stdout == f"{sampled!r}\n"


def test_samples():
    table = silchunk.silhouette_table(X, LABELS, sample_size=30, random_state=0)
    assert repr(table) in score(*SAMPLE).stdout
    facts = json.loads(score("--json", "--sample-size", 30, "--random-state", 0).stdout)
    assert facts["sample_size"] == 30
    assert facts["micro"] == table.micro
    assert facts["micro_standard_error"] == table.micro_standard_error > 0
    assert facts["macro_standard_error"] == table.macro_standard_error > 0


@pytest.mark.parametrize("sample", [(), SAMPLE])
def test_tables(sample):
    result = score("--table", "out.zarr", *sample)
    assert "wrote out.zarr" in result.stderr
    assert "wrote" not in result.stdout
    options = {"sample_size": 30, "random_state": 0} if sample else {}
    table = silchunk.silhouette_table(X, LABELS, **options)
    group = zarr.open_group("out.zarr", mode="r")
    assert np.array_equal(group["silhouette"][:], table.samples)
    assert group["cluster"][:].tolist() == table.cluster
    assert group.attrs["micro"] == table.micro
    assert ("point" in group) == bool(sample)


def test_no_table_is_overwritten(folder):
    (folder / "precious").write_text("mine")
    result = score("--table", "precious", code=CANNOT_WRITE)
    assert "precious exists already" in result.stderr
    assert (folder / "precious").read_text() == "mine"
    assert result.stdout == ""
    missing = score("--table", "missing/out.zarr", code=CANNOT_WRITE)
    assert "no folder 'missing'" in missing.stderr


def test_metrics_and_their_parameters():
    facts = json.loads(score("--metric", "minkowski", "--param", "p=3", "--json").stdout)
    expected = silchunk.silhouette_score(X, LABELS, metric="minkowski", metric_params={"p": 3})
    assert facts["micro"] == expected
    np.save("d.npy", pairwise_distances(X))
    matrix = run("score", "d.npy", "labels.npy", "--metric", "precomputed", "--average", "micro")
    assert float(matrix.stdout) == pytest.approx(silchunk.silhouette_score(X, LABELS), abs=1e-9)


@pytest.mark.parametrize("noise", ["cluster", "drop", "singleton"])
def test_noise(noise):
    result = run("score", "x.npy", "noisy.npy", "--noise", noise, "--average", "micro")
    assert float(result.stdout) == silchunk.silhouette_score(X, LABELS - 1, noise=noise)
    assert result.stderr == ""


def test_noise_that_nobody_spoke_of():
    result = run("score", "x.npy", "noisy.npy")
    assert "warning: labels have -1 for 30 points" in result.stderr


def test_labels_of_text():
    names = np.array(["north", "east", "south", "west"])[LABELS]
    np.save("names.npy", names)
    facts = json.loads(run("score", "x.npy", "names.npy", "--json").stdout)
    assert [cluster["label"] for cluster in facts["clusters"]] == ["east", "north", "south", "west"]
    stored = zarr.create_array("labels.zarr", shape=120, chunks=50, dtype=np.int32)
    stored[:] = LABELS
    by_zarr = run("score", "x.npy", "labels.zarr", "--average", "micro")
    assert by_zarr.stdout == score("--average", "micro").stdout


@pytest.mark.parametrize("command", ["score", "evaluate"])
def test_wrong_labels(command):
    np.save("few.npy", LABELS[:-1])
    np.save("one.npy", np.zeros(120))
    np.save("nan.npy", np.where(LABELS == 0, np.nan, LABELS))
    for labels, message in (
        ("few.npy", "labels must have one entry for each of the 120 points"),
        ("one.npy", "labels name 1 cluster among 120 points; from 2 to n - 1 = 119"),
        ("nan.npy", "labels have None or NaN"),
        ("x.npy", "labels must have one entry for each of the 120 points"),
        ("nowhere.npy", "labels: there is no file or folder 'nowhere.npy'"),
    ):
        result = run(command, "x.npy", labels, code=BAD_INPUT)
        assert message in result.stderr
        assert result.stdout == ""


@pytest.mark.parametrize("command", ["score", "evaluate"])
@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--metric", "euclidian"), BAD_INPUT, "Did you mean 'euclidean'"),
        (("--noise", "ignore"), BAD_INPUT, "noise must be one of cluster, drop, singleton"),
        (("--dtype", "int8"), BAD_INPUT, "dtype must be"),
        (("--param", "p"), BAD_INPUT, "--param takes NAME=VALUE"),
        (("--memory", "1MiB"), OVER_BUDGET, "Raise --memory to"),
    ],
)
def test_wrong_options(command, options, code, message):
    assert message in run(command, "x.npy", "labels.npy", *options, code=code).stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--average", "mean"), "average must be 'micro' or 'macro'; got 'mean'"),
        (("--sample", 3), "--sample-size is 3, but two points of each of the 4 clusters"),
        (("--sample", 121), "--sample-size must be from 2 to n = 120; got 121"),
        (("--random-state", 0), "--random-state goes with --sample-size"),
    ],
)
def test_wrong_options_of_scores(options, message):
    assert message in score(*options, code=BAD_INPUT).stderr


# evaluate


def test_evaluate():
    np.save("truth.npy", LABELS // 2)
    page = silchunk.evaluate(X, LABELS)
    result = run("evaluate", "x.npy", "labels.npy")
    assert result.stdout == f"{page!r}\n"
    assert result.stderr == ""
    judged = run("evaluate", "x.npy", "labels.npy", "--true-labels", "truth.npy")
    assert judged.stdout == f"{silchunk.evaluate(X, LABELS, true_labels=LABELS // 2)!r}\n"


def test_evaluate_as_json():
    np.save("truth.npy", np.array(["a", "b"])[LABELS // 2])
    options = ("--true-labels", "truth.npy", "--metric", "l1", "--json")
    facts = json.loads(run("evaluate", "x.npy", "labels.npy", *options).stdout)
    page = silchunk.evaluate(X, LABELS, metric="manhattan", true_labels=LABELS // 2)
    of = {"command": "evaluate", "silchunk": silchunk.__version__, "source": "x.npy"}
    assert facts == {**of, **page.facts()}
    assert facts["agreement"]["ari"] == silchunk.compare_labels(LABELS // 2, LABELS).ari


def test_json_of_an_infinite_dunn_index_is_json():
    np.save("two.npy", np.array([[0.0], [0.0], [1.0], [1.0]]))
    np.save("pairs.npy", np.array([0, 0, 1, 1]))
    result = run("evaluate", "two.npy", "pairs.npy", "--json")

    def refused(constant):
        raise AssertionError(f"{constant} is not JSON")

    assert json.loads(result.stdout, parse_constant=refused)["dunn"] is None
    assert "warning: all clusters have diameter 0" in result.stderr


def test_evaluate_noise():
    facts = json.loads(run("evaluate", "x.npy", "noisy.npy", "--noise", "drop", "--json").stdout)
    assert facts["n"] == 90
    assert facts["micro"] == silchunk.silhouette_score(X, LABELS - 1, noise="drop")


def test_evaluate_a_matrix():
    np.save("d.npy", pairwise_distances(X, metric="l1"))
    options = ("--metric", "precomputed", "--json")
    facts = json.loads(run("evaluate", "d.npy", "labels.npy", *options).stdout)
    assert facts["davies_bouldin"] is None
    expected = silchunk.silhouette_score(X, LABELS, metric="l1")
    assert facts["micro"] == pytest.approx(expected, abs=1e-12)
    wrong = run("evaluate", "x.npy", "labels.npy", "--true-labels", "d.npy", code=BAD_INPUT)
    assert "true_labels must have one entry for" in wrong.stderr
