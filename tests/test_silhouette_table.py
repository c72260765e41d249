"""Tables of silhouettes: columns, summaries of clusters, files, what they print."""

from __future__ import annotations

import gc
import pickle
from pathlib import Path

import numpy as np
import oracles
import pytest
import zarr
from silhouette_inputs import D6, L6, blobs, definition
from sklearn.metrics import pairwise_distances

import silchunk
from silchunk import (
    InputError,
    OutputExistsError,
    SampledScore,
    prepare,
    silhouette_result,
    silhouette_score,
    silhouette_table,
)

NAMES = np.array(["e", "a", "d", "b", "c"])


def summaries(table):
    clusters = table.clusters
    return np.stack([clusters.means, clusters.medians, clusters.minima, clusters.negative])


@pytest.fixture
def in_a_file(monkeypatch):
    """Tables lie in files, however small."""
    monkeypatch.setattr(prepare, "HELD_SHARE", 1 << 40)


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """The folder that temporary files are made in."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(prepare.engine, "scratch_parent", lambda: str(folder))
    return folder


# Columns.


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "sqeuclidean", "chebyshev"])
def test_columns(metric):
    X, labels = blobs(90, 2, 5, alone=1)
    names = NAMES[labels].tolist()
    expected = definition(pairwise_distances(X, metric=metric), names)
    table = silhouette_table(X, names, metric=metric)
    assert (table.n, table.n_clusters, table.metric, table.points) == (90, 5, metric, None)
    for found, column in (
        (table.a, expected.a),
        (table.b, expected.b),
        (table.samples, expected.s),
    ):
        np.testing.assert_allclose(found, column, rtol=1e-10, atol=1e-10)
    assert np.isnan(table.a).sum() == 1  # the point alone
    assert table.nearest == expected.nearest
    assert table.cluster == names


def test_of_clusters_as_near_the_first_is_taken():
    # The point in the middle is as far from either side.
    table = silhouette_table([[0.0], [1.0], [-1.0]], ["x", "y", "a"], sample_weight=[2, 1, 1])
    assert table.nearest == ["a", "x", "x"]
    assert table.b.tolist() == [1.0, 1.0, 1.0]


def test_points_that_are_left_out():
    table = silhouette_table([[0], [1], [7], [8], [90]], [0, 0, 4, 4, -1], noise="drop")
    assert table.n == 5
    assert table.n_clusters == 2
    assert table.cluster == [0, 0, 4, 4, None]
    assert table.nearest == [4, 4, 0, 0, None]
    for column in (table.a, table.b, table.samples):
        assert np.isnan(column).tolist() == [False] * 4 + [True]
    assert table.clusters.sizes.tolist() == [2, 2]
    assert table.micro == pytest.approx((13 / 15 + 11 / 13) / 2, abs=1e-14)
    assert "Silhouettes of 4 points in 2 clusters" in repr(table)


# Summaries.


def check_summaries(table, values, codes, weights=None):
    """Against numpy, every point as often as its weight says."""
    weights = np.ones(len(values), int) if weights is None else weights
    means = []
    for j in range(table.n_clusters):
        members = codes == j
        some = np.repeat(values[members], weights[members])
        means.append(some.mean())
        expected = [some.mean(), np.median(some), some.min(), (some < 0).mean()]
        np.testing.assert_allclose(summaries(table)[:, j], expected, rtol=0, atol=1e-13)
        assert table.clusters.sizes[j] == (members & (weights > 0)).sum()
    every = np.repeat(values, weights)
    assert table.micro == pytest.approx(every.mean(), abs=1e-13)
    assert table.macro == pytest.approx(np.mean(means), abs=1e-13)
    assert table.score("micro") == table.micro
    assert table.score("macro") == table.macro


def test_summaries():
    X, labels = blobs(500, 2, 5, alone=1)
    table = silhouette_table(X, NAMES[labels])
    assert table.clusters.labels == ["a", "b", "c", "d", "e"]
    codes = np.searchsorted(table.clusters.labels, NAMES[labels])
    assert 0 < table.clusters.negative.max() < 1
    check_summaries(table, table.samples, codes)
    assert table.clusters.standard_errors.tolist() == [0.0] * 5
    assert (table.micro_standard_error, table.macro_standard_error) == (0.0, 0.0)


def test_weighted_summaries():
    X, labels = blobs(200, 2, 4)
    weights = np.random.default_rng(0).integers(0, 4, 200)
    table = silhouette_table(X, labels, sample_weight=weights)
    check_summaries(table, np.nan_to_num(table.samples, nan=9.0), labels, weights)
    copies = np.repeat(np.arange(200), weights)
    copied = silhouette_table(X[copies], labels[copies])
    np.testing.assert_allclose(summaries(table), summaries(copied), rtol=0, atol=1e-12)


def test_summaries_of_a_few_clusters_at_a_time(monkeypatch):
    X, labels = blobs(300, 2, 12)
    expected = summaries(silhouette_table(X, labels))
    for group, block in ((1, 7), (60, 1000), (10_000, 64)):
        monkeypatch.setattr(silhouette_result, "GROUP_POINTS", group)
        monkeypatch.setattr(silhouette_result, "BLOCK_ROWS", block)
        table = silhouette_table(X, labels)
        assert np.array_equal(summaries(table), expected)
        for first, last in table._groups():
            assert table.clusters.sizes[first:last].sum() <= group or last - first == 1
        weighted = silhouette_table(X, labels, sample_weight=np.ones(300))
        np.testing.assert_allclose(summaries(weighted), expected, rtol=0, atol=1e-12)


# Large tables.


def test_a_table_in_a_file(in_a_file, scratch):
    X, labels = blobs(700, 3, 6)
    table = silhouette_table(X, labels)
    files = [path.name for path in scratch.rglob("*") if path.is_file()]
    assert files == ["table.npy"]  # outlives the call, alone
    reference = definition(pairwise_distances(X), labels)
    np.testing.assert_allclose(table.samples, reference.s, rtol=0, atol=1e-9)
    np.testing.assert_allclose(table.a, reference.a, rtol=1e-9)
    assert table.nearest == reference.nearest
    check_summaries(table, table.samples, labels)
    del table
    gc.collect()
    assert list(scratch.iterdir()) == []


def test_a_table_in_a_file_is_the_same(scratch, monkeypatch):
    X, labels = blobs(700, 3, 6)
    for metric in ("euclidean", "manhattan", "cosine"):
        expected = silhouette_table(X, labels, metric=metric)
        with monkeypatch.context() as patched:
            patched.setattr(prepare, "HELD_SHARE", 1 << 40)
            table = silhouette_table(X, labels, metric=metric)
        assert list(scratch.rglob("table.npy")) != []
        np.testing.assert_allclose(table.samples, expected.samples, rtol=0, atol=1e-12)
        np.testing.assert_allclose(summaries(table), summaries(expected), rtol=0, atol=1e-12)
        del table
        gc.collect()


def test_a_failed_call_leaves_no_file(in_a_file, scratch):
    with pytest.raises(InputError, match="X has nan at row 5"):
        silhouette_table(np.where(np.arange(6)[:, None] == 5, np.nan, 1.0), L6)
    assert list(scratch.iterdir()) == []


# For other programs.


def test_pandas():
    pytest.importorskip("pandas")
    X, labels = blobs(60, 2, 3)
    table = silhouette_table(X, NAMES[labels])
    frame = table.to_pandas()
    assert frame.columns.tolist() == ["cluster", "nearest", "a", "b", "silhouette"]
    assert frame.index.name == "point"
    assert frame.index.tolist() == list(range(60))
    assert frame["cluster"].tolist() == NAMES[labels].tolist()
    assert frame["nearest"].tolist() == table.nearest
    assert np.array_equal(frame[["a", "b", "silhouette"]].to_numpy().T, [
        table.a, table.b, table.samples
    ])  # fmt: skip
    by_cluster = table.clusters_to_pandas()
    grouped = frame.groupby("cluster")["silhouette"]
    assert by_cluster.index.tolist() == ["a", "d", "e"]
    assert by_cluster["size"].tolist() == grouped.size().tolist()
    for name in ("mean", "median", "min"):
        np.testing.assert_allclose(by_cluster[name], grouped.agg(name), rtol=0, atol=1e-14)
    assert by_cluster["standard_error"].tolist() == [0.0] * 3
    sampled = silhouette_table(X, labels, sample_size=20, random_state=0)
    assert sampled.to_pandas().index.tolist() == sampled.points.tolist()
    assert len(sampled.to_pandas()) == 20


@pytest.mark.parametrize("block_rows", [1 << 16, 13])
def test_zarr_and_back(block_rows, tmp_path, monkeypatch):
    monkeypatch.setattr(silhouette_result, "BLOCK_ROWS", block_rows)
    X, labels = blobs(60, 2, 4)
    table = silhouette_table(X, labels - 1, noise="drop")
    table.to_zarr(tmp_path / "t.zarr")
    group = zarr.open_group(tmp_path / "t.zarr", mode="r")
    assert sorted(group) == ["a", "b", "cluster", "nearest", "silhouette"]
    assert group.attrs["classes"] == [0, 1, 2]
    assert group.attrs["n"] == 60
    assert group.attrs["metric"] == "euclidean"
    assert group.attrs["micro"] == table.micro
    assert group.attrs["macro"] == table.macro
    for name, column in (("a", table.a), ("b", table.b), ("silhouette", table.samples)):
        assert np.array_equal(group[name][:], column, equal_nan=True)
    assert np.array_equal(group["cluster"][:], labels - 1)  # -1 where left out
    nearest = [-1 if code is None else code for code in table.nearest]
    assert group["nearest"][:].tolist() == nearest
    assert group["cluster"].dtype == group["nearest"].dtype == np.int32


def test_zarr_of_a_sample(tmp_path):
    X, labels = blobs(60, 2, 3)
    table = silhouette_table(X, NAMES[labels], sample_size=25, random_state=0)
    table.to_zarr(str(tmp_path / "t.zarr"))
    group = zarr.open_group(tmp_path / "t.zarr", mode="r")
    assert group["point"][:].tolist() == table.points.tolist()
    classes = group.attrs["classes"]
    assert [classes[code] for code in group["cluster"][:]] == table.cluster
    assert table.cluster == NAMES[labels[table.points]].tolist()


def test_labels_that_json_does_not_know(tmp_path):
    silhouette_table(oracles.X6, [(0, 1)] * 3 + [(0, 2)] * 3).to_zarr(tmp_path / "t.zarr")
    group = zarr.open_group(tmp_path / "t.zarr", mode="r")
    assert group.attrs["classes"] == ["(0, 1)", "(0, 2)"]


def test_nothing_is_overwritten(tmp_path):
    table = silhouette_table(oracles.X6, L6)
    (tmp_path / "precious").write_text("mine")
    with pytest.raises(OutputExistsError, match="precious exists already"):
        table.to_zarr(tmp_path / "precious")
    assert (tmp_path / "precious").read_text() == "mine"
    assert [path.name for path in Path(tmp_path).iterdir()] == ["precious"]


# For people.


def test_printed():
    # s of the points: 0.9217…, 0.952, 0.9593… and 0.7958…, 0.6288…, 0.7431…
    text = repr(silhouette_table(oracles.X6, ["left"] * 3 + ["on the far right side"] * 3))
    assert "Silhouettes of 6 points in 2 clusters (euclidean distance)" in text
    assert "mean over points (micro)       0.833490\n" in text
    assert "mean of cluster means (macro)  0.833490\n" in text
    assert "  left                3    0.944    0.952    0.922      0.0%" in text
    assert "  on the far r        3    0.723    0.743    0.629      0.0%" in text
    matrix = silhouette_table(D6, L6, metric="precomputed")
    assert "(precomputed distance)" in repr(matrix)


def test_printed_with_many_clusters():
    X, labels = blobs(200, 2, 25)
    lines = repr(silhouette_table(X, labels)).splitlines()
    shown = [line.split()[0] for line in lines[4:-1]]
    assert shown == [*map(str, range(10)), "...", *map(str, range(15, 25))]
    assert "... 5 more" in repr(silhouette_table(X, labels))
    assert "more" not in repr(silhouette_table(X, labels % 20))


def test_a_stored_matrix_names_its_metric(tmp_path):
    X, labels = blobs(60, 2, 3)
    stored = silchunk.build_distances(X, tmp_path / "d.zarr", metric="manhattan")
    assert silhouette_table(stored, labels).metric == "manhattan"


def test_scores_of_samples():
    X, labels = blobs(300, 2, 3)
    table = silhouette_table(X, labels, sample_size=60, random_state=0)
    for average, error in (
        ("micro", table.micro_standard_error),
        ("macro", table.macro_standard_error),
    ):
        score = silhouette_score(X, labels, average=average, sample_size=60, random_state=0)
        assert isinstance(score, SampledScore)
        assert score == getattr(table, average)
        assert score.standard_error == error > 0
        assert (score.sample_size, score.n) == (60, 300)
        assert f"(standard error {error:.6f}, from 60 of 300 points)" in repr(score)
        copy = pickle.loads(pickle.dumps(score))
        assert copy == score
        assert vars(copy) == vars(score)
    text = repr(table)
    assert "Silhouettes of 300 points in 3 clusters (euclidean distance), from 60 of them" in text
    assert f"(micro)       {table.micro:.6f} (standard error {table.micro_standard_error:.6f})" in (
        text
    )


def test_wrong_averages():
    with pytest.raises(InputError, match="average must be 'micro' or 'macro'; got 'weighted'"):
        silhouette_score(oracles.X6, L6, average="weighted")
    with pytest.raises(InputError, match="average must be 'micro' or 'macro'; got None"):
        silhouette_table(oracles.X6, L6).score(None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sample_weight": np.ones(5)}, "one entry for each of the 6 points; its shape is .5,."),
        ({"sample_weight": [1, 1, 1, 1, -2, 1]}, "sample_weight is -2.0 at 4"),
        ({"sample_weight": [1, np.nan, 1, 1, 1, 1]}, "sample_weight is nan at 1"),
        ({"sample_weight": ["x"] * 6}, "sample_weight cannot be read as numbers"),
        ({"sample_weight": np.full(6, 0.1)}, "sums to 0.6 in 2 clusters.*number of copies"),
        ({"sample_weight": [1, 0, 0, 1, 0, 0]}, "sums to 2 in 2 clusters"),
        ({"sample_weight": [1, 1, 1, 0, 0, 0]}, "name 1 cluster among 3 points"),
        ({"sample_weight": np.ones(6), "sample_size": 5}, "does not go with sample_weight"),
        ({"random_state": 0}, "random_state goes with sample_size"),
        ({"noise": "ignore"}, "noise must be one of"),
        ({"dtype": "int8"}, "dtype must be 'float32' or 'float64'"),
        ({"metric": "euclidian"}, "Did you mean 'euclidean'"),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(InputError, match=message):
        silhouette_table(oracles.X6, L6, **options)
