"""``silchunk cluster`` as its users see it."""

from __future__ import annotations

import csv
import json
import shlex
import sys
from pathlib import Path

import cluster_cli_inputs
import numpy as np
import pytest
import test_docs
import zarr
from cluster_cli_inputs import ALGORITHMS, CLOUD, TRUTH, X, cluster, run
from scipy.spatial.distance import cdist
from sklearn.metrics import adjusted_rand_score
from typer.main import get_command

import silchunk
from silchunk import prepare
from silchunk.cli import cluster as command
from silchunk.cli.base import app

folder = cluster_cli_inputs.folder

# What it finds.


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm(algorithm):
    result = cluster("--algorithm", algorithm, "--centers", "centres.npy")
    labels, centres = np.load("labels.npy"), np.load("centres.npy")
    found = getattr(silchunk, ALGORITHMS[algorithm])(3, random_state=0).fit(X)
    assert labels.dtype == np.int32
    assert np.array_equal(labels, found.labels_)
    assert np.array_equal(centres, found.cluster_centers_)
    assert adjusted_rand_score(TRUTH, labels) == 1
    assert f"x.npy: 200 points in 2 dimensions, K = 3 by {algorithm}, " in result.stdout
    assert "cluster sizes           40 to 100 points\n" in result.stdout
    # Where kernels are compiled first, progress is told as well.
    assert result.stderr.endswith("wrote labels.npy\nwrote centres.npy\n")


def test_figures_are_those_of_the_files():
    facts = json.loads(
        cluster("--centers", "c.npy", "--json", source="cloud.npy", k=4).stdout,
    )
    labels = np.load("labels.npy")
    distances = np.sort(cdist(CLOUD, np.load("c.npy")), axis=1)
    s = 1 - distances[:, 0] / distances[:, 1]
    assert (facts["source"], facts["algorithm"]) == ("cloud.npy", "ksil")
    assert (facts["n"], facts["n_features"]) == (200, 3)
    assert facts["n_clusters"] == facts["n_clusters_found"] == 4
    assert facts["sizes"] == [int((labels == j).sum()) for j in range(4)]
    assert facts["average"] == "macro"
    expected = np.mean([s[labels == j].mean() for j in range(4)])
    assert facts["silhouette_proxy"] == pytest.approx(expected, abs=1e-12)
    assert facts["inertia"] == pytest.approx((distances[:, 0] ** 2).sum(), rel=1e-12)
    history = facts["history"]
    assert facts["n_iter"] == len(history) > 3
    assert facts["silhouette_proxy_at_start"] == history[0]["macro"]
    assert facts["inertia_at_start"] == history[0]["inertia"]
    assert facts["kept"] == ("K-Sil" if history[0]["temperature"] else "k-means")
    assert facts["random_state"] == 0
    assert facts["seconds"] > 0
    assert facts["silchunk"] == silchunk.__version__


def test_which_of_both_was_kept_is_told():
    for margin, kept in (("1000", "k-means"), ("0", "K-Sil")):
        options = ("--margin", margin, "--seed", 2)
        facts = json.loads(
            cluster(*options, "--json", source="cloud.npy", k=4, output=f"{kept}.npy").stdout
        )
        assert facts["kept"] == kept
        assert (facts["history"][0]["temperature"] == 0) == (kept == "k-means")
        said = cluster(*options, source="cloud.npy", k=4, output=f"{kept}-again.npy").stdout
        other = {"k-means": "K-Sil", "K-Sil": "k-means"}[kept]
        assert (
            f"  kept                    {kept} rather than {other} "
            f"(margin: {margin} standard errors of the proxy)\n"
        ) in said
    for nth, options in enumerate((("--algorithm", "kmeans"), ("--temperature", 0), ("--alone",))):
        said = cluster(*options, source="cloud.npy", k=4, output=f"plain{nth}.npy").stdout
        assert "kept" not in said


def test_alone_is_without_k_means():
    cluster("--alone", "--history", "h.csv", source="cloud.npy", k=4)
    alone = silchunk.KSil(4, random_state=0, margin=None).fit(CLOUD)
    assert np.array_equal(np.load("labels.npy"), alone.labels_)
    assert len(Path("h.csv").read_text().splitlines()) == 1 + alone.n_iter_


def test_the_page_has_the_same_figures():
    options = ("--objective", "micro", "--max-iter", 3)
    facts = json.loads(cluster(*options, "--json", source="cloud.npy", k=4).stdout)
    said = cluster(*options, source="cloud.npy", k=4, output="again.npy").stdout
    assert facts["average"] == "micro"
    assert facts["silhouette_proxy_at_start"] == facts["history"][0]["micro"]
    assert facts["silhouette_proxy"] > facts["silhouette_proxy_at_start"]
    assert (
        f"  micro silhouette proxy  {facts['silhouette_proxy']:.4f} "
        f"({facts['silhouette_proxy_at_start']:.4f} at the start), from distances to centres: "
        "not what evaluate gives\n"
        f"  inertia                 {facts['inertia']:.6g} "
        f"({facts['inertia_at_start']:.6g} at the start)\n"
        "  iterations              3, all of --max-iter\n"
        f"  cluster sizes           {min(facts['sizes'])} to {max(facts['sizes'])} points\n"
    ) in said
    assert "all of" not in cluster(output="third.npy").stdout


def test_iterations_as_a_table():
    result = cluster("--history", "history.csv", source="cloud.npy", k=4)
    assert "wrote history.csv" in result.stderr
    with open("history.csv", newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert tuple(header) == silchunk.Iteration._fields
    history = silchunk.KSil(4, random_state=0).fit(CLOUD).history_
    assert [tuple(map(float, row)) for row in rows] == [tuple(one) for one in history]
    assert [row[0] for row in rows] == [str(i + 1) for i in range(len(rows))]


@pytest.mark.parametrize(
    ("algorithm", "options", "expected"),
    [
        (
            "ksil",
            "--init random --n-init 2 --max-iter 7 --tol 0.01 --seed 5 --objective micro "
            "--temperature 2 --temperature-range 1 3 --temperature-step 1.25 --margin 1.5 "
            "--memory 1GiB --checkpoint fit.npz",
            {
                "init": "random",
                "n_init": 2,
                "max_iter": 7,
                "tol": 0.01,
                "random_state": 5,
                "objective": "micro",
                "temperature": 2.0,
                "temperature_range": (1.0, 3.0),
                "temperature_step": 1.25,
                "margin": 1.5,
                "memory": "1GiB",
                "checkpoint": "fit.npz",
            },
        ),
        ("lof-kmeans", "--n-neighbors 7", {"n_neighbors": 7}),
        ("ilof-kmeans", "--n-neighbors 8 --random-state 3", {"n_neighbors": 8, "random_state": 3}),
        ("kmeans", "--init k-means||", {"init": "k-means||"}),
        ("ow-kmeans", "", {}),
    ],
)
def test_options_are_parameters(algorithm, options, expected, monkeypatch):
    kind = getattr(silchunk, ALGORITHMS[algorithm])
    given = []

    class Seen(kind):
        def fit(self, X):
            given.append(self.get_params())
            return super().fit(X)

    Seen.__init__ = kind.__init__
    monkeypatch.setattr(silchunk, kind.__name__, Seen, raising=False)
    cluster("--algorithm", algorithm, *options.split())
    defaults = kind(3, random_state=0, progress=True).get_params()
    checkpoint = {name: str(given[0][name]) for name in ("checkpoint",) if given[0][name]}
    assert given[0] | checkpoint == defaults | expected


def test_seeds():
    found = [cluster("--seed", seed, source="cloud.npy", output=f"{seed}.npy") for seed in (0, 1)]
    assert found[0].exit_code == found[1].exit_code == 0
    for seed in (0, 1):
        expected = silchunk.KSil(3, random_state=seed).fit_predict(CLOUD)
        assert np.array_equal(np.load(f"{seed}.npy"), expected)
    assert not np.array_equal(np.load("0.npy"), np.load("1.npy"))


def test_points_in_zarr():
    stored = zarr.create_array("x.zarr", shape=X.shape, chunks=(50, 2), dtype=X.dtype)
    stored[:] = X
    cluster()
    cluster(source="x.zarr", output="stored.npy")
    assert np.array_equal(np.load("stored.npy"), np.load("labels.npy"))


def test_labels_that_are_mapped_from_a_file(monkeypatch):
    cluster(source="cloud.npy")
    monkeypatch.setattr(prepare, "HELD_SHARE", 1 << 40)
    monkeypatch.setattr(command, "COUNTED_AT_ONCE", 64)
    assert isinstance(silchunk.KSil(3, random_state=0).fit("cloud.npy").labels_, np.memmap)
    facts = json.loads(cluster("--json", source="cloud.npy", output="mapped.npy").stdout)
    labels = np.load("mapped.npy")
    assert np.array_equal(labels, np.load("labels.npy"))
    assert facts["sizes"] == np.bincount(labels).tolist()


@pytest.mark.filterwarnings("default::sklearn.exceptions.ConvergenceWarning")
def test_fewer_different_points_than_clusters():
    np.save("pairs.npy", np.array([[0.0], [0.0], [1.0], [1.0], [1.0]]))
    result = cluster(source="pairs.npy")
    assert "warning: 2 distinct clusters were found, fewer than --n-clusters=3" in result.stderr
    assert "cluster sizes           2 to 3 points, 1 empty\n" in result.stdout
    facts = json.loads(cluster("--json", source="pairs.npy", output="again.npy").stdout)
    assert facts["n_clusters_found"] == 2
    assert sorted(facts["sizes"]) == [0, 2, 3]


# What to do next.


def next_command(result):
    return shlex.split(result.stdout.splitlines()[-1].removeprefix("next: silchunk "))


def test_the_next_command_runs():
    np.save("my points.npy", X)
    said = next_command(cluster(source="my points.npy", output="my labels.npy"))
    assert said == ["evaluate", "my points.npy", "my labels.npy"]
    assert "A clustering of 200 points into 3 clusters" in run(*said).stdout
    directions = next_command(cluster("--algorithm", "spherical-ksil"))
    assert directions == ["evaluate", "x.npy", "labels.npy", "--metric", "cosine"]
    assert "(cosine distance)" in run(*directions).stdout


def test_the_next_command_judges_the_same_points():
    table = np.column_stack([X * [1, 100], np.arange(len(X))])
    np.savetxt("t.csv", table, header="a 0,a 1,row", comments="", delimiter=",")
    options = ("--columns", "a 0,a 1", "--scale", "standard")
    said = next_command(cluster(*options, source="t.csv"))
    assert said == ["evaluate", "t.csv", "labels.npy", *options]
    run(*said)


def test_of_many_points_the_next_command_takes_a_sample(monkeypatch):
    monkeypatch.setattr(command, "EVALUATED_POINTS", 200)
    assert next_command(cluster())[0] == "evaluate"
    monkeypatch.setattr(command, "EVALUATED_POINTS", 199)
    monkeypatch.setattr(command, "SAMPLED_POINTS", 50)
    said = next_command(cluster(output="again.npy"))
    assert said == ["evaluate", "x.npy", "again.npy", "--sample-size", "50"]
    assert json.loads(run(*said, "--json").stdout)["sample_size"] == 50
    monkeypatch.setattr(command, "SAMPLED_POINTS", 5)
    assert next_command(cluster(output="third.npy"))[-1] == "6"  # two of each cluster


def test_one_cluster_cannot_be_judged():
    said = cluster(k=1).stdout
    assert "cluster sizes           200 to 200 points\n" in said
    assert "next" not in said


def test_every_option_has_help():
    options = get_command(app).commands["cluster"].params
    assert len(options) > 15
    assert [option.name for option in options if not option.help] == []


# What the documentation says of it.


def test_the_readme_compares_as_it_says(folder):
    code = next(code for code in test_docs.blocks("python") if "KSil" in code)
    kmeans, ksil = test_docs.run(sys.executable, "-c", code, cwd=folder).stdout.splitlines()
    assert kmeans.split()[0] == "KMeans"
    assert ksil.split()[0] == "KSil"
    assert float(ksil.split()[1]) > float(kmeans.split()[1])
