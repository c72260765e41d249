"""Scorers in scikit-learn's searches: its own figures, and degenerate labels that end nothing."""

from __future__ import annotations

import math
import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import DBSCAN, AgglomerativeClustering, KMeans
from sklearn.datasets import make_blobs
from sklearn.metrics import silhouette_samples, silhouette_score
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import silchunk
from silchunk import bound_gap_scorer, silhouette_scorer
from silchunk.errors import InputError, InputTypeError, SilchunkWarning

X, _ = make_blobs(240, n_features=3, centers=4, cluster_std=1.2, random_state=3)
ALL = [(np.arange(len(X)), np.arange(len(X)))]


class Given:
    """A clusterer that finds what it is told."""

    def __init__(self, labels):
        self.labels = labels

    def predict(self, X):
        return self.labels


def k_means(n_clusters):
    return KMeans(n_clusters, n_init=3, random_state=0)


def test_the_score_is_that_of_the_predicted_labels():
    fitted = k_means(4).fit(X[:120])
    assert silhouette_scorer(fitted, X[120:]) == pytest.approx(
        silhouette_score(X[120:], fitted.predict(X[120:])), abs=1e-12
    )


def test_labels_are_taken_of_who_cannot_predict():
    fitted = AgglomerativeClustering(4).fit(X)
    expected = silhouette_score(X, fitted.labels_)
    assert silhouette_scorer(fitted, X) == pytest.approx(expected, abs=1e-12)
    with pytest.raises(InputError, match="labels are of the 240 points .* there are 100 to be"):
        silhouette_scorer(fitted, X[:100])
    with pytest.raises(InputTypeError, match="StandardScaler has neither predict nor labels_"):
        silhouette_scorer(StandardScaler().fit(X), X)


def test_the_gap_is_the_share_of_the_bound_for_the_smallest_cluster():
    labels = k_means(5).fit_predict(X)
    smallest = np.bincount(labels).min()
    bound = silchunk.silhouette_bounds(X).at(int(smallest))
    share = silhouette_score(X, labels) / bound
    assert 0 < share < 1
    assert bound_gap_scorer(Given(labels), X) == pytest.approx(share, abs=1e-12)


def test_a_perfect_clustering_leaves_no_gap():
    twins = np.repeat([[0.0], [1.0]], 10, axis=0)
    assert bound_gap_scorer(Given(np.repeat([0, 1], 10)), twins) == pytest.approx(1.0, abs=1e-12)


def test_a_gap_is_never_worse_than_that_of_no_clustering():
    # Labels that have nothing to do with the points; and where all are the same, both are 0.
    assert -1 <= bound_gap_scorer(Given(np.arange(240) % 2), X) < 0
    assert bound_gap_scorer(Given(np.arange(10) % 2), np.zeros((10, 2))) == 1.0


@pytest.mark.parametrize("scorer", [silhouette_scorer, bound_gap_scorer])
@pytest.mark.parametrize(
    ("labels", "counted"),
    [
        (np.zeros(240, int), "1 cluster among 240 points"),
        (np.arange(240), "240 clusters among 240 points"),
        (np.full(240, -1), "240 clusters among 240 points"),
    ],
    ids=["one cluster", "each alone", "all noise"],
)
def test_labels_without_a_silhouette_score_least_with_a_warning(scorer, labels, counted):
    with pytest.warns(SilchunkWarning, match=f"{counted} have no silhouette.* the score is -1"):
        assert scorer(Given(labels), X) == -1.0


def test_noise_counts_as_nothing_unless_it_is_left_out():
    labels = np.arange(240) % 3
    labels[::7] = -1
    alone = np.where(labels < 0, 3 + np.arange(240), labels)
    expected = silhouette_samples(X, alone).mean()
    assert silhouette_scorer(Given(labels), X) == pytest.approx(expected, abs=1e-12)
    kept = labels >= 0
    score = silhouette_score(X[kept], labels[kept])
    drop = {"noise": "drop"}
    assert silhouette_scorer(Given(labels), X, **drop) == pytest.approx(score, abs=1e-12)
    m = int(np.bincount(labels[kept]).min())
    expected = score / silchunk.silhouette_bounds(X[kept]).at(m)
    assert bound_gap_scorer(Given(labels), X, **drop) == pytest.approx(expected, abs=1e-12)
    matrix = np.linalg.norm(X[:, None] - X, axis=2)
    of_matrix = bound_gap_scorer(Given(labels), matrix, metric="precomputed", **drop)
    assert of_matrix == pytest.approx(expected, abs=1e-9)


def test_keywords_are_given_by_partial():
    labels = k_means(4).fit_predict(X)
    scorer = partial(silhouette_scorer, metric="cosine", average="macro", memory="1GiB")
    values = silhouette_samples(X, labels, metric="cosine")
    macro = np.mean([values[labels == k].mean() for k in range(4)])
    assert scorer(Given(labels), X) == pytest.approx(macro, abs=1e-12)
    sampled = partial(silhouette_scorer, sample_size=100)
    assert sampled(Given(labels), X) == sampled(Given(labels), X)
    assert pickle.loads(pickle.dumps(scorer)).keywords == scorer.keywords


@pytest.mark.parametrize("kind", ["frame", "AnnData"])
def test_labels_and_points_are_taken_as_single_cell_tools_have_them(kind):
    labels = k_means(4).fit_predict(X)
    names = np.array(["T", "B", "NK", "monocyte"])[labels]
    column = pd.Categorical(names, categories=["none", "T", "NK", "monocyte", "B"])
    obs = pd.DataFrame({"louvain": column}, index=[f"cell {i}" for i in range(len(X))][::-1])
    obsm = {"X_pca": X}
    if kind == "AnnData":
        anndata = pytest.importorskip("anndata", reason="needs the library anndata")
        cells = anndata.AnnData(X=np.zeros((len(X), 1)), obs=obs, obsm=obsm)
        obs, obsm = cells.obs, cells.obsm
    found = silchunk.silhouette_score(obsm["X_pca"], obs["louvain"])
    assert found == pytest.approx(silhouette_score(X, labels), abs=1e-12)
    obs["silhouette"] = silchunk.silhouette_samples(obsm["X_pca"], obs["louvain"])
    assert np.allclose(obs["silhouette"], silhouette_samples(X, labels), rtol=0, atol=1e-12)
    table = silchunk.silhouette_table(obsm["X_pca"], obs["louvain"])
    assert [str(label) for label in table.clusters.labels] == ["B", "NK", "T", "monocyte"]
    obs.loc["cell 7", "louvain"] = None
    with pytest.raises(InputError, match="labels have None or NaN"):
        silchunk.silhouette_score(obsm["X_pca"], obs["louvain"])


@pytest.mark.parametrize("n_jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_grid_search_finds_the_number_of_clusters(n_jobs):
    search = GridSearchCV(
        k_means(2),
        {"n_clusters": [2, 3, 4, 6]},
        scoring={"silhouette": silhouette_scorer, "share": bound_gap_scorer},
        refit="silhouette",
        cv=KFold(3, shuffle=True, random_state=0),
        n_jobs=n_jobs,
        error_score="raise",
    ).fit(X)
    scores = []
    for train, test in search.cv.split(X):
        fitted = k_means(4).fit(X[train])
        scores.append(silhouette_score(X[test], fitted.predict(X[test])))
    found = search.cv_results_["mean_test_silhouette"]
    assert found[2] == pytest.approx(np.mean(scores), abs=1e-9)
    assert search.best_params_ == {"n_clusters": 4}
    share = search.cv_results_["mean_test_share"]
    assert np.all((found < share) & (share < 1))


@pytest.mark.parametrize("n_jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_pipeline_is_held_against_the_points_as_they_were_given(n_jobs):
    model = make_pipeline(StandardScaler(), k_means(4))
    found = cross_validate(
        model, X, scoring=silhouette_scorer, cv=3, n_jobs=n_jobs, error_score="raise"
    )["test_score"]
    expected = [
        silhouette_score(X[test], model.fit(X[train]).predict(X[test]))
        for train, test in KFold(3).split(X)
    ]
    assert found == pytest.approx(expected, abs=1e-9)


def test_a_search_over_who_cannot_predict_goes_on_past_degenerate_labels():
    search = GridSearchCV(
        DBSCAN(), {"eps": [1e-9, 1.5, 1e9]}, scoring=silhouette_scorer, cv=ALL, error_score="raise"
    )
    with pytest.warns(SilchunkWarning, match="have no silhouette"):
        search.fit(X)
    least, middle, last = search.cv_results_["mean_test_score"]
    assert least == last == -1.0
    assert search.best_params_ == {"eps": 1.5}
    labels = DBSCAN(eps=1.5).fit(X).labels_
    alone = np.where(labels < 0, labels.max() + 1 + np.arange(240), labels)
    assert middle == pytest.approx(silhouette_score(X, alone), abs=1e-9)
    assert not math.isclose(middle, -1)
