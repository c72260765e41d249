"""A sweep over numbers of clusters: every figure is that of the function it is named after."""

from __future__ import annotations

import os
from itertools import combinations

import constraint_inputs
import numpy as np
import oracles
import pytest
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import DBSCAN, AgglomerativeClustering, Birch
from sklearn.cluster import KMeans as SklearnKMeans

import silchunk
from silchunk import (
    InputError,
    KSil,
    OverBudgetError,
    SilchunkWarning,
    build_distances,
    calinski_harabasz_score,
    davies_bouldin_score,
    silhouette_bounds,
    silhouette_table,
    silhouette_upper_bound,
    sweep,
)
from silchunk.sweep_jobs import Ranges, SweepRows

X, TRUTH = constraint_inputs.blobs([60, 40, 25, 15], 3, seed=4)
X = X + [20.0, 30.0, 40.0]  # also directions tell groups apart


def close(value):
    return pytest.approx(value, rel=1e-12, abs=1e-12)


def expected(row, labels, points, **options):
    """The same figures by the single functions."""
    table = silhouette_table(points, labels, **options)
    bounds = silhouette_bounds(points, labels=labels, **options)
    smallest = int(np.unique(labels, return_counts=True)[1].min())
    return {
        "n_clusters_found": len(np.unique(labels)),
        "smallest": smallest,
        "micro": close(table.micro),
        "macro": close(table.macro),
        "upper_bound_n_clusters": close(
            silhouette_upper_bound(points, n_clusters=row.n_clusters, **options)
        ),
        "upper_bound_min_size": close(bounds.at(smallest)),
        "assignment_bound": close(bounds.sized.asw),
        "wcre": close(bounds.sized.wcre(table.micro)),
        "wcre_min_size": close(bounds.wcre(table.micro, smallest)),
        "reason": None,
    }


@pytest.mark.parametrize(
    "metric", ["euclidean", "sqeuclidean", "cosine", "manhattan", "chebyshev", "canberra"]
)
def test_every_figure_is_that_of_the_single_function(metric):
    found = sweep(X, [2, 3, 4, 7], metric=metric)
    assert [row.n_clusters for row in found.rows] == [2, 3, 4, 7]
    assert (found.n, found.metric, found.estimator) == (140, metric, "ksil")
    for row in found.rows:
        labels = KSil(row.n_clusters, random_state=0).fit(X).labels_
        assert np.array_equal(found.labels[row.n_clusters], labels)
        facts = row.facts()
        figures = expected(row, labels, X, metric=metric)
        assert {name: facts[name] for name in figures} == figures
        assert row.davies_bouldin == close(davies_bouldin_score(X, labels))
        assert row.calinski_harabasz == close(calinski_harabasz_score(X, labels))
        assert row.share_of_bound == close(row.micro / row.assignment_bound)
        assert row.wcre_n_clusters == close(1 - row.micro / row.upper_bound_n_clusters)


@pytest.mark.parametrize("kind", ["matrix", "store", "path", "kept"])
def test_of_distances_and_of_stores_of_them(tmp_path, kind):
    single = X.astype(np.float32)
    store = tmp_path / "d.zarr"
    D = build_distances(single, store)
    estimator = AgglomerativeClustering(metric="precomputed", linkage="average")
    if kind == "kept":
        found = sweep(single, [2, 4], estimator="kmeans", store=store)
    else:
        given = {"matrix": D.rows(0, len(X)), "store": D, "path": str(store)}[kind]
        metric = "precomputed" if kind == "matrix" else "euclidean"
        found = sweep(given, [2, 4], estimator=estimator, metric=metric)
        assert found.rows[0].davies_bouldin is None
        assert found.rows[0].calinski_harabasz is None
        fit = estimator.set_params(n_clusters=4).fit(D.rows(0, len(X)))
        assert np.array_equal(found.labels[4], fit.labels_)
        assert list(found.recommended) == ["micro", "macro", "share_of_bound"]
    assert found.metric == ("precomputed" if kind == "matrix" else "euclidean")
    for row in found.rows:
        figures = expected(row, found.labels[row.n_clusters], D)
        assert {name: row.facts()[name] for name in figures} == figures


@pytest.mark.parametrize("kind", constraint_inputs.KINDS)
def test_bounds_hold_for_every_clustering_of_few_points(kind):
    n = 6
    D = constraint_inputs.matrix(n, kind)
    every = constraint_inputs.clusterings(n, kind)
    for partition in oracles.partitions(n):
        K = len(set(partition))
        if len(set(partition)) == n:
            continue
        (row,) = sweep(D, [K], estimator=lambda _, p=partition: p, metric="precomputed").rows
        sizes = tuple(sorted(np.bincount(partition).tolist()))
        values = [float(v) for v in oracles.silhouettes(oracles.exact(D), partition)]
        assert row.micro == close(np.mean(values))
        slack = 1e-12
        assert row.upper_bound_n_clusters >= max(a for s, a, _ in every if len(s) == K) - slack
        assert row.upper_bound_min_size >= max(a for s, a, _ in every if s[0] >= sizes[0]) - slack
        assert row.assignment_bound >= max(a for s, a, _ in every if s == sizes) - slack
        bounds = [oracles.point_bound(D, i, 1, n - K + 1) for i in range(n)]
        assert row.upper_bound_n_clusters == close(np.mean(bounds))
        assert row.upper_bound_min_size == close(oracles.upper_bound(D, sizes[0]))
        places = np.array([size for size in sizes for _ in range(size)])
        table = np.array(constraint_inputs.table_of(D, places))
        best = table[linear_sum_assignment(table, maximize=True)].mean()
        assert row.assignment_bound == close(best)


def test_ranges_of_sizes_are_put_together_from_their_parts():
    for n in range(2, 13):
        values = np.random.default_rng(n).random(n)  # of sizes 0 (none), 1, ..., n - 1
        for counts in [c for r in (1, 2, 3) for c in combinations(range(2, n + 1), r)]:
            parts = Ranges.of(counts, n)
            middle = values[parts.middle : n - parts.middle + 1].max()
            for K, (whole, sizes) in zip(counts, parts.parts, strict=True):
                assert set(sizes) <= set(parts.sizes)
                found = max([middle] * whole + [values[size] for size in sizes])
                assert found == values[1 : n - K + 2].max()


def test_distances_are_computed_once_for_all(monkeypatch):
    panels = []
    run = SweepRows.__call__

    def counted(self, start, stop):
        panels.append((start, stop))
        return run(self, start, stop)

    def refused(*_):
        raise AssertionError("a pass of its own over the distances")

    monkeypatch.setattr(SweepRows, "__call__", counted)
    for task in ("RowSilhouettes", "SumPairs"):
        monkeypatch.setattr(getattr(silchunk.cluster_sums, task), "__call__", refused)
    monkeypatch.setattr(silchunk.reduction.ReduceRows, "__call__", refused)
    found = sweep(X, range(2, 9), estimator="kmeans", scheduler="synchronous")
    assert panels == [(0, 140)]
    assert all(row.micro is not None for row in found.rows)


def test_the_same_for_other_threads_and_budgets():
    plain = sweep(X, [2, 5, 9], estimator="kmeans", scheduler="synchronous")
    for options in ({"scheduler": "threads"}, {"memory": "410MiB"}):
        other = sweep(X, [2, 5, 9], estimator="kmeans", **options)
        assert other.rows == plain.rows


@pytest.mark.cluster
def test_the_same_on_a_cluster(client, tmp_path):
    plain = sweep(X, [2, 5], estimator="kmeans")
    assert sweep(X, [2, 5], estimator="kmeans", scheduler=client).rows == plain.rows


# Estimators.


@pytest.mark.parametrize(
    "estimator",
    [
        AgglomerativeClustering(linkage="average"),
        SklearnKMeans(n_init=2, random_state=5),
        Birch(threshold=0.1),
        silchunk.KMeans(random_state=3, max_iter=4),
    ],
    ids=lambda one: type(one).__name__,
)
def test_labels_are_those_of_a_direct_fit(estimator):
    before = estimator.get_params()
    found = sweep(X, [2, 3, 6], estimator=estimator)
    assert found.estimator == type(estimator).__name__
    assert estimator.get_params() == before
    for K in (2, 3, 6):
        direct = type(estimator)(**{**before, "n_clusters": K}).fit(X).labels_
        assert np.array_equal(found.labels[K], direct)
        assert found.labels[K].dtype == np.int32


def test_an_estimator_without_a_seed_gets_that_of_the_sweep():
    found = sweep(X, [3], estimator=SklearnKMeans(n_init=1, init="random"), random_state=7)
    direct = SklearnKMeans(3, n_init=1, init="random", random_state=7).fit(X)
    assert np.array_equal(found.labels[3], direct.labels_)


def test_every_name_is_an_estimator_of_the_family():
    for name, kind in silchunk.cluster.names.ALGORITHMS.items():
        found = sweep(X, [3], estimator=name, random_state=1)
        direct = getattr(silchunk, kind)(3, random_state=1).fit(X)
        assert found.estimator == name
        assert np.array_equal(found.labels[3], direct.labels_)


def test_a_function_may_give_labels_of_any_kind():
    found = sweep(X, [2, 3, 4], estimator=lambda K: [f"c{i}" for i in TRUTH % K])
    assert np.array_equal(found.labels[4], TRUTH)
    assert [row.n_clusters_found for row in found.rows] == [2, 3, 4]
    wide = sweep(X, [2], estimator=lambda K: (TRUTH % K) * 2**40)
    assert np.array_equal(wide.labels[2], TRUTH % 2)
    with pytest.warns(SilchunkWarning, match="labels have -1 for 85 points"):
        found = sweep(X, [2], estimator=lambda K: TRUTH % K - 1)
    assert np.array_equal(found.labels[2], TRUTH % 2 - 1)
    assert found.rows[0].micro == close(silhouette_table(X, TRUTH % 2).micro)


def test_min_cluster_size_goes_to_the_estimator_and_to_the_recommendation():
    Y = np.r_[X, [[500.0, 500.0, 500.0]]]
    loose = sweep(Y, [2, 3], estimator="kmeans")
    assert (loose.rows[0].smallest, loose.recommended["micro"]) == (1, 2)
    found = sweep(Y, [2, 3], estimator="kmeans", min_cluster_size=10)
    direct = silchunk.KMeans(2, min_cluster_size=10, random_state=0).fit(Y)
    assert np.array_equal(found.labels[2], direct.labels_)
    assert min(row.smallest for row in found.rows) >= 10


# What cannot be.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_clusters": []}, "n_clusters is empty"),
        ({"n_clusters": [2, 2.5]}, "n_clusters takes integers, 1 or more; got 2.5"),
        ({"n_clusters": [0]}, "n_clusters takes integers, 1 or more; got 0"),
        ({"n_clusters": [True]}, "n_clusters takes integers"),
        ({"random_state": None}, "random_state takes integers, 0 or more; got None"),
        ({"min_cluster_size": 0}, "min_cluster_size takes integers"),
        ({"estimator": "kmean"}, "estimator must be one of ksil, .*; got 'kmean'"),
        ({"estimator": 3}, "estimator must be a name, .*; got 3"),
        ({"estimator": SklearnKMeans}, r"is the class KMeans; pass an instance, KMeans\(\)"),
        ({"estimator": DBSCAN()}, "DBSCAN has no parameter n_clusters"),
        ({"estimator": Birch(), "min_cluster_size": 2}, "Birch takes no min_cluster_size"),
        ({"estimator": np.zeros_like, "min_cluster_size": 2}, "does not go with a function"),
        (
            {"metric": "precomputed", "estimator": lambda K: TRUTH % K},
            "must be a square",
        ),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        sweep(X, **{"n_clusters": [2], **options})


def test_wrong_input_is_refused_before_any_fit(tmp_path):
    def never(K):
        raise AssertionError("asked for labels")

    bad = X.copy()
    bad[7, 1] = np.nan
    with pytest.raises(InputError, match="nan at row 7, column 1"):
        sweep(bad, [2], estimator=never)
    D = build_distances(X, tmp_path / "d.zarr")
    with pytest.raises(InputError, match="ksil finds clusters of points, but X is a matrix"):
        sweep(D, [2])
    with pytest.raises(InputError, match="leave out store="):
        sweep(D, [2], estimator=lambda K: TRUTH % K, store=tmp_path / "e.zarr")
    np.save(tmp_path / "large.npy", np.zeros((400_000, 120), np.float32))
    with pytest.raises(OverBudgetError, match=r"Birch takes all of X at once.*or use one of ksil"):
        sweep(tmp_path / "large.npy", [2], estimator=Birch(), memory="300MiB")


def test_a_read_that_fails_is_no_fault_of_a_number_of_clusters(tmp_path):
    failed = str(tmp_path / "failed")

    def blinking(K):
        if not os.path.exists(failed):
            open(failed, "x").close()
            raise OSError(116, "Stale file handle")
        return SklearnKMeans(K, n_init=1, random_state=0).fit_predict(X)

    with pytest.raises(OSError, match="Stale file handle"):
        sweep(X, [2, 3], estimator=blinking, checkpoint=tmp_path / "kept")
    found = sweep(X, [2, 3], estimator=blinking, checkpoint=tmp_path / "kept")
    assert [row.reason for row in found.rows] == [None, None]
