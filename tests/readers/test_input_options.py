"""Options of the command line that say which part of a file the points and labels are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import dask
import make_cells
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.preprocessing import RobustScaler
from typer.testing import CliRunner

from silchunk import KMeans, KSil, silhouette_score, silhouette_upper_bound
from silchunk.cli import app

X = np.random.default_rng(0).standard_normal((90, 3))
KINDS = np.arange(90) % 3


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"x": X[:, 0], "y": X[:, 1], "z, m": X[:, 2], "kind": KINDS})
    frame.to_csv("t.csv", index=False)
    np.save("x.npy", X)
    np.save("l.npy", KINDS)
    shutil.copy(Path(__file__).parent / "data/cells.h5ad", "cells.h5ad")
    (tmp_path / "scratch").mkdir()
    with dask.config.set({"temporary-directory": str(tmp_path / "scratch")}):
        yield
    assert not list((tmp_path / "scratch").iterdir())  # whether the command ended well or not


def run(*words, code=0):
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == code, done.output
    return done


def of_json(*words):
    return json.loads(run(*words, "--json", "-q").stdout)


def test_labels_of_a_column_are_no_feature():
    expected = silhouette_score(X, KINDS)
    assert of_json("score", "t.csv", "--label-column", "kind")["micro"] == expected
    assert of_json("evaluate", "t.csv", "--label-column", "kind")["source"] == "t.csv"
    others = of_json("bound", "t.csv", "--label-column", "kind", "--columns", 'x,"z, m"')
    assert others["n"] == 90


def test_columns_are_chosen():
    found = run("score", "t.csv", "l.npy", "--columns", 'x,"z, m"', "--average", "micro", "-q")
    assert float(found.stdout) == silhouette_score(X[:, [0, 2]], KINDS)


def test_points_and_labels_of_anndata():
    found = of_json("score", "cells.h5ad", "cells.h5ad:obs/louvain", "--array", "obsm/X_pca")
    assert found["micro"] == silhouette_score(make_cells.components(), make_cells.NAMES)
    words = ["--array", "obsm/X_pca", "--label-column", "obs/louvain"]
    assert of_json("score", "cells.h5ad", *words)["micro"] == found["micro"]
    words = ["--label-column", "obs/louvain"]
    assert of_json("score", "cells.h5ad:obsm/X_pca", *words)["micro"] == found["micro"]


def test_sparse_points_are_clustered_and_not_bounded():
    run("cluster", "cells.h5ad", "--array", "X", "-k", "3", "-o", "found.npy", "--seed", "0")
    matrix = scipy.sparse.csr_array(make_cells.counts())
    assert np.array_equal(np.load("found.npy"), KSil(3, random_state=0).fit(matrix).labels_)
    refused = run("bound", "cells.h5ad", "--array", "X", code=65)
    assert "is a sparse matrix (60 by 20)" in refused.stderr


def test_features_are_scaled():
    found = run("score", "x.npy", "l.npy", "--scale", "robust", "--average", "micro", "-q")
    expected = silhouette_score(RobustScaler().fit_transform(X), KINDS)
    assert float(found.stdout) == pytest.approx(expected, rel=1e-9)
    run(
        "cluster", "x.npy", "-k", "3", "-o", "f.npy", "--scale", "standard", "--algorithm", "kmeans"
    )
    whole = (X - X.mean(axis=0)) / X.std(axis=0)
    assert np.array_equal(np.load("f.npy"), KMeans(3, random_state=0).fit(whole).labels_)


def test_a_store_remembers_the_table_it_was_built_from():
    pd.DataFrame(X).add_prefix("c").to_csv("numbers.csv", index=False)
    run("distances", "numbers.csv", "d.zarr", "--dtype", "float64")
    assert of_json("bound", "d.zarr")["source"] == "d.zarr"
    assert of_json("info", "d.zarr")["input"]["path"].endswith("numbers.csv")


def test_cells_that_are_empty_go_with_one_metric():
    Path("gaps.csv").write_text("a,b\n1,2\n,4\n5,6\n7,9\n")
    assert "row 1" in run("bound", "gaps.csv", code=65).stderr
    points = np.array([[1, 2], [np.nan, 4], [5, 6], [7, 9]])
    expected = silhouette_upper_bound(points, metric="nan_euclidean")
    found = of_json("bound", "gaps.csv", "--metric", "nan_euclidean")
    assert expected in [bound["upper_bound"] for bound in found["bounds"]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["score", "t.csv"], "LABELS are missing"),
        (["score", "t.csv", "l.npy", "--label-column", "kind"], "labels are given twice"),
        (["score", "t.csv", "--label-column", "knd"], "did you mean 'kind'?"),
        (["bound", "t.csv", "--columns", "x,w"], "has no column 'w'"),
        (["bound", "x.npy", "--columns", "x"], "columns are named in tables"),
        (["bound", "x.npy", "--scale", "unit"], "--scale must be one of standard, robust"),
        (["bound", "x.npy", "--metric", "precomputed", "--scale", "robust"], "have no features"),
        (["bound", "cells.h5ad:X", "--array", "X"], "both say which array"),
        (["bound", "cells.h5ad", "--array", "obsm/pca"], "has no 'obsm/pca'"),
        (["bound", "x.npy", "--array", "a"], "there is no 'a' in it"),
    ],
)
def test_wrong_choices(words, message):
    assert message in run(*words, code=65).stderr
