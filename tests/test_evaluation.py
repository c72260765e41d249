"""One page about a clustering against the functions that it is made of, and its ceilings."""

from __future__ import annotations

import json
import math
import warnings

import dask.array as da
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from silhouette_inputs import D6, L6, blobs
from sklearn import datasets
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances
from sklearn.preprocessing import StandardScaler

import silchunk
from silchunk import (
    InputError,
    OverBudgetError,
    SilchunkWarning,
    compare_labels,
    evaluate,
    silhouette_bounds,
)
from silchunk.ceilings import Ceiling
from silchunk.errors import CoincidentCentroidsWarning, ZeroDiameterWarning
from silchunk.evaluation import Evaluation
from silchunk.rows import ArrayRows, NpyRows, SelectedRows


def data_set(name):
    if name == "blobs":
        return blobs(300, 3, 5, alone=1)
    X = StandardScaler().fit_transform(getattr(datasets, f"load_{name}")().data)
    return X, KMeans(3, n_init=1, random_state=0).fit_predict(X)


def ceilings(page) -> list[tuple[float, Ceiling]]:
    """Each with the score that it is for."""
    return [
        (page.micro, page.any_clustering),
        (page.micro, page.smallest_cluster),
        (page.micro, page.these_sizes),
        (page.macro, page.macro_these_sizes),
    ]


@pytest.mark.parametrize("name", ["wine", "breast_cancer", "blobs"])
@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
def test_the_functions_it_is_made_of(name, metric):
    X, labels = data_set(name)
    page = evaluate(X, labels, metric=metric)
    assert page.micro == silchunk.silhouette_score(X, labels, metric=metric)
    assert page.macro == silchunk.silhouette_score(X, labels, metric=metric, average="macro")
    samples = silchunk.silhouette_samples(X, labels, metric=metric)
    assert np.array_equal(page.silhouettes.samples, samples)
    sizes = np.bincount(labels)
    smallest = int(sizes.min())
    bounds = silhouette_bounds(X, metric=metric, cluster_sizes=sizes.tolist())
    assert page.any_clustering.bound == bounds.at(1)
    assert page.smallest_cluster.bound == bounds.at(smallest)
    assert page.these_sizes.bound == bounds.sized.asw
    assert page.macro_these_sizes.bound == bounds.sized.macro
    whose = "any clustering" if smallest == 1 else f"clusters of {smallest} or more points"
    assert page.smallest_cluster.whose == whose
    assert page.dunn == silchunk.dunn_score(X, labels, metric=metric)
    assert page.davies_bouldin == silchunk.davies_bouldin_score(X, labels)
    assert page.calinski_harabasz == silchunk.calinski_harabasz_score(X, labels)
    assert page.agreement is None
    assert page.plan == page.bounds.plan


def check_ceilings(page):
    slack = silchunk.numerical_slack(page.bounds.n) + 1e-13
    for score, ceiling in ceilings(page):
        assert score <= ceiling.bound + slack
        assert ceiling.reached == 1 - ceiling.wcre
        if ceiling.bound > 0:
            expected = max(0.0, (ceiling.bound - score) / ceiling.bound)
            assert ceiling.wcre == pytest.approx(expected, abs=1e-12)
    assert page.smallest_cluster.bound <= page.any_clustering.bound
    # An assignment is as good as its gap.
    assert page.these_sizes.bound <= page.smallest_cluster.bound + page.bounds.sized.asw_gap + slack


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_score_is_above_its_ceiling(data):
    n = data.draw(st.integers(4, 14))
    coordinates = st.lists(st.integers(-4, 4), min_size=2, max_size=2)
    X = np.array(data.draw(st.lists(coordinates, min_size=n, max_size=n)), float)
    n_clusters = data.draw(st.integers(2, n - 1))
    rest = st.integers(-1, n_clusters - 1)
    labels = [*range(n_clusters)] + data.draw(
        st.lists(rest, min_size=n - n_clusters, max_size=n - n_clusters)
    )
    if n_clusters >= sum(label >= 0 for label in labels):
        labels[-1] = 0  # some cluster has two points whatever noise is
    noise = data.draw(st.sampled_from(["cluster", "drop", "singleton"]))
    metric = data.draw(st.sampled_from(["euclidean", "manhattan", "precomputed"]))
    points = pairwise_distances(X, metric="chebyshev") if metric == "precomputed" else X
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoincidentCentroidsWarning)
        warnings.simplefilter("ignore", ZeroDiameterWarning)
        page = evaluate(points, labels, metric=metric, noise=noise)
    check_ceilings(page)
    json.dumps(page.facts(), allow_nan=False)


@pytest.mark.parametrize("seed", range(5))
def test_good_clusterings_stay_below_their_ceilings(seed):
    X, _ = datasets.make_blobs(60, 2, centers=4, random_state=seed)
    for k in (2, 4, 7):
        labels = KMeans(k, n_init=3, random_state=0).fit_predict(X)
        for metric in ("euclidean", "sqeuclidean", "cosine", "seuclidean"):
            check_ceilings(evaluate(X, labels, metric=metric))


def test_the_best_of_all_clusterings_reaches_all():
    page = evaluate(oracles.X6, L6)  # as tests/test_bounds.py finds by trying all
    assert page.smallest_cluster.reached == pytest.approx(1.0, abs=1e-12)
    assert page.these_sizes.reached == pytest.approx(1.0, abs=1e-5)
    assert page.any_clustering.reached == pytest.approx(0.8334898 / 0.8652387, abs=1e-6)


# Noise.


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine", "minkowski"])
def test_dropped_noise_counts_for_nothing(metric):
    X, labels = blobs(200, 3, 4)
    labels = labels - 1
    kept = labels >= 0
    page = evaluate(X, labels, metric=metric, noise="drop")
    check_same(page, evaluate(X[kept], labels[kept], metric=metric))
    assert np.isnan(page.silhouettes.samples[~kept]).all()


def test_dropped_noise_of_a_matrix(tmp_path):
    X, labels = blobs(200, 3, 4)
    labels = labels - 1
    kept = labels >= 0
    D = pairwise_distances(X, metric="manhattan")
    expected = evaluate(D[np.ix_(kept, kept)], labels[kept], metric="precomputed")
    check_same(evaluate(D, labels, metric="precomputed", noise="drop"), expected)
    stored = silchunk.build_distances(X, tmp_path / "d.zarr", metric="manhattan")
    for matrix in (stored, tmp_path / "d.zarr"):
        check_same(evaluate(matrix, labels, noise="drop"), expected, atol=1e-5)


def check_same(page, expected, atol=1e-11):
    for name in ("micro", "macro", "dunn", "davies_bouldin", "calinski_harabasz"):
        if getattr(expected, name) is None:
            assert getattr(page, name) is None
        else:
            assert getattr(page, name) == pytest.approx(getattr(expected, name), abs=atol, rel=atol)
    for (_, one), (_, other) in zip(ceilings(page), ceilings(expected), strict=True):
        assert one.whose == other.whose
        # Assignments are off by their gaps.
        assert one.bound == pytest.approx(other.bound, abs=max(atol, 2e-6))


@pytest.mark.parametrize("metric", ["seuclidean", "mahalanobis"])
def test_dropped_noise_and_a_metric_of_all_points(metric):
    X, labels = blobs(90, 2, 4)
    labels = labels - 1
    X[labels < 0] *= [1, 1000]  # the variance is theirs
    kept = labels >= 0
    page = evaluate(X, labels, metric=metric, noise="drop")
    assert page.micro == silchunk.silhouette_score(X, labels, metric=metric, noise="drop")
    of_all = {
        "seuclidean": {"V": X.var(axis=0, ddof=1)},
        "mahalanobis": {"VI": np.linalg.inv(np.cov(X.T))},
    }
    bounds = silhouette_bounds(X[kept], metric=metric, metric_params=of_all[metric])
    assert page.any_clustering.bound == pytest.approx(bounds.at(1), abs=1e-11)
    check_ceilings(page)


def test_noise_points_alone():
    X, labels = blobs(90, 2, 4)
    alone = np.where(labels == 0, 100 + np.arange(90), labels)
    page = evaluate(X, labels - 1, noise="singleton")
    check_same(page, evaluate(X, alone))
    assert page.smallest_cluster.whose == "any clustering"
    with pytest.warns(SilchunkWarning, match="labels have -1 for 23 points"):
        unsaid = evaluate(X, labels - 1)
    check_same(unsaid, evaluate(X, labels), atol=1e-11)


def test_rows_that_are_selected(tmp_path):
    r = np.random.default_rng(0)
    matrix = r.random((500, 500))
    np.save(tmp_path / "m.npy", matrix)
    index = np.flatnonzero(r.random(500) < 0.1)
    stored = NpyRows(str(tmp_path / "m.npy"), (500, 500), np.dtype(float))
    for source in (ArrayRows(matrix), stored):
        rows = SelectedRows(source, index)
        both = SelectedRows(source, index, columns_too=True)
        m = len(index)
        assert rows.shape == (m, 500)
        assert both.shape == (m, m)
        for a, b in ((0, m), (0, 1), (3, 20), (m - 1, m)):
            assert np.array_equal(rows.rows(a, b), matrix[index[a:b]])
            assert np.array_equal(rows.rows(a, b, slice(7, 90)), matrix[index[a:b], 7:90])
            assert np.array_equal(both.rows(a, b), matrix[np.ix_(index[a:b], index)])
            assert both.rows(a, b, slice(2, 9)).flags.c_contiguous
            expected = matrix[np.ix_(index[a:b], index[2:9])]
            assert np.array_equal(both.rows(a, b, slice(2, 9)), expected)


def test_selected_rows_read_few_at_a_time():
    class Watched(ArrayRows):
        def rows(self, start, stop, columns=slice(None)):
            longest.append(stop - start)
            return super().rows(start, stop, columns)

    longest: list[int] = []
    far_apart = np.arange(0, 10_000, 100)
    rows = SelectedRows(Watched(np.zeros((10_000, 2))), far_apart)
    assert rows.rows(20, 30).shape == (10, 2)
    assert max(longest) <= 10


# What is printed.


def test_page():
    page = evaluate(oracles.X6, L6, true_labels=["x", "x", "y", "y", "y", "y"])
    text = repr(page)
    assert isinstance(page, Evaluation)
    assert text.startswith("A clustering of 6 points into 2 clusters (euclidean distance)\n\n")
    percent = int(100 * page.these_sizes.reached)
    assert percent >= 99
    assert (
        f"Your clustering reaches at least {percent}% of the best possible with these cluster "
        "sizes, and 96% of what any clustering could."  # 0.8335 / 0.8652
    ) in " ".join(text.split())
    assert "mean over points (micro)                    0.833\n" in text
    assert "Dunn                      1.857" in text  # (1.11 - 0.2) / (1.6 - 1.11)
    assert "Davies-Bouldin           0.1708   lower is better" in text
    assert "negative: share of points that are nearer to another cluster" in text
    assert "Agreement of two labelings of 6 points" in text
    for _, ceiling in ceilings(page):
        assert ceiling.whose in text
    assert "Agreement" not in repr(evaluate(oracles.X6, L6))


def test_ceilings_are_printed_rounded_up():
    text = repr(evaluate(oracles.X6, L6))
    line = next(line for line in text.splitlines() if "any clustering  " in line)
    assert line.split()[-2:] == ["0.866", "96%"]  # of 0.86523…


def test_a_clustering_that_is_none():
    X = [[0.0], [1.0], [0.1], [1.1]]
    page = evaluate(X, [0, 0, 1, 1])
    assert page.micro < 0
    sentences = " ".join(repr(page).split())
    assert "no nearer to their own cluster than to another one" in sentences
    assert "best possible with these cluster sizes" not in sentences
    for line in repr(page).splitlines():
        assert not line.endswith("-1%")
    assert page.any_clustering.reached < 0


def test_a_matrix_has_no_centroids(tmp_path):
    page = evaluate(D6, L6, metric="precomputed")
    assert page.davies_bouldin is None
    assert page.calinski_harabasz is None
    assert "Davies-Bouldin" not in repr(page)
    assert page.facts()["davies_bouldin"] is None
    from_points = evaluate(oracles.X6, L6)
    assert page.micro == pytest.approx(from_points.micro, abs=1e-14)
    assert page.dunn == pytest.approx(from_points.dunn, rel=1e-14)
    stored = silchunk.build_distances(oracles.X6, tmp_path / "d.zarr")
    assert evaluate(stored, L6).calinski_harabasz is None


# For other programs.


def test_facts():
    X, labels = blobs(120, 2, 4)
    page = evaluate(X, [f"c{label}" for label in labels], true_labels=labels // 2)
    facts = json.loads(json.dumps(page.facts(), allow_nan=False))
    assert facts == page.facts()
    assert (facts["n"], facts["n_clusters"], facts["metric"]) == (120, 4, "euclidean")
    for name in ("micro", "macro", "dunn", "davies_bouldin", "calinski_harabasz"):
        assert facts[name] == getattr(page, name)
    for name, found in facts["ceilings"].items():
        ceiling = getattr(page, name)
        assert found == {"whose": ceiling.whose, "upper_bound": ceiling.bound, "wcre": ceiling.wcre}
    assert [cluster["label"] for cluster in facts["clusters"]] == ["c0", "c1", "c2", "c3"]
    assert sum(cluster["size"] for cluster in facts["clusters"]) == 120
    assert facts["agreement"]["ari"] == page.agreement.ari


def test_facts_without_a_finite_dunn_index():
    with pytest.warns(ZeroDiameterWarning, match="diameter 0"):
        page = evaluate([[0.0], [0.0], [1.0], [1.0]], L6[1:5])
    assert page.dunn == math.inf
    assert json.loads(json.dumps(page.facts(), allow_nan=False))["dunn"] is None


@pytest.mark.parametrize("noise", ["cluster", "drop"])
def test_true_labels(noise):
    X, labels = blobs(120, 2, 4)
    truth = labels // 2
    page = evaluate(X, labels - 1, true_labels=truth, noise=noise)
    kept = (labels > 0) | (noise == "cluster")
    expected = compare_labels(truth[kept], (labels - 1)[kept])
    assert page.agreement == expected
    with pytest.raises(InputError, match="true_labels are 119"):
        evaluate(X, labels, true_labels=truth[:-1])


def test_dask_points_are_computed_once():
    X, labels = blobs(400, 3, 4)
    computed: list[int] = []

    def noted(block):
        computed.append(len(block))
        return block

    lazy = da.from_array(X, chunks=(100, 3)).map_blocks(noted, dtype=X.dtype, meta=np.empty((0, 0)))
    page = evaluate(lazy, labels)
    assert computed == [100] * 4
    check_same(page, evaluate(X, labels))


@pytest.mark.cluster
@pytest.mark.slow
def test_a_cluster_of_workers(client):
    X, labels = blobs(400, 3, 4)
    page = evaluate(X, labels - 1, noise="drop", scheduler=client)
    check_same(page, evaluate(X, labels - 1, noise="drop"))


def test_wrong_arguments():
    with pytest.raises(InputError, match="name 1 cluster among 6 points"):
        evaluate(oracles.X6, [0] * 6)
    with pytest.raises(InputError, match="name 1 cluster among 3 points"):
        evaluate(oracles.X6, [0, 0, 0, -1, -1, -1], noise="drop")
    with pytest.raises(InputError, match="one entry for each of the 6 points"):
        evaluate(oracles.X6, L6[:-1])
    with pytest.raises(InputError, match="unknown metric 'euclidian'"):
        evaluate(oracles.X6, L6, metric="euclidian")
    with pytest.raises(OverBudgetError, match="Raise memory="):
        evaluate(oracles.X6, L6, memory="1MiB")
