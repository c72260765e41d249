"""Evaluations from a sample: what they are made of, and how sure they say they are."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import pairwise_distances

import silchunk
from silchunk import InputError, evaluate


@pytest.fixture(scope="module")
def many():
    """Points of four clusters, the last one of ten points."""
    rng = np.random.default_rng(3)
    labels = np.repeat([0, 1, 2, 3], [900, 700, 390, 10])
    centres = rng.uniform(-6, 6, (4, 5))
    return centres[labels] + rng.standard_normal((2000, 5)), labels


def test_a_sample_is_that_of_the_functions_it_is_made_of(many):
    X, labels = many
    page = evaluate(X, labels, sample_size=300, random_state=7)
    table = silchunk.silhouette_table(X, labels, sample_size=300, random_state=7)
    assert (page.micro, page.macro) == (table.micro, table.macro)
    assert page.sample_size == 300
    for ceiling, m in ((page.any_clustering, 1), (page.smallest_cluster, 10)):
        bound = silchunk.silhouette_upper_bound(
            X, min_cluster_size=[m], sample_size=300, random_state=7
        )
        assert ceiling.bound == bound.upper_limit[0]
        assert ceiling.wcre == pytest.approx(1 - page.micro / ceiling.bound, abs=1e-12)
    assert page.davies_bouldin == silchunk.davies_bouldin_score(X, labels)
    assert page.calinski_harabasz == silchunk.calinski_harabasz_score(X, labels)
    assert page.dunn is page.these_sizes is page.macro_these_sizes is None
    assert page.plan == page.silhouettes.plan


def test_a_sample_is_near_the_whole(many):
    X, labels = many
    whole, page = evaluate(X, labels), evaluate(X, labels, sample_size=500, random_state=0)
    table = page.silhouettes
    assert 0 < table.micro_standard_error < 0.05
    assert abs(page.micro - whole.micro) < 5 * table.micro_standard_error
    assert abs(page.macro - whole.macro) < 5 * table.macro_standard_error
    for name in ("any_clustering", "smallest_cluster"):
        there, here = getattr(whole, name), getattr(page, name)
        assert there.whose == here.whose
        assert there.bound < here.bound < there.bound + 0.1


def test_a_sample_of_all_points_is_exact(many):
    X, labels = many
    whole, page = evaluate(X, labels), evaluate(X, labels, sample_size=len(X), random_state=0)
    assert page.micro == pytest.approx(whole.micro, abs=1e-12)
    assert page.smallest_cluster.bound == pytest.approx(whole.smallest_cluster.bound, abs=1e-9)


def test_the_page_of_a_sample_says_so(many):
    X, labels = many
    page = evaluate(X, labels, sample_size=300, random_state=7, confidence=0.9)
    text = str(page)
    assert f"{page.micro:.3f} +- {page.silhouettes.micro_standard_error:.3f}\n" in text
    assert "from 300 points, each against all others" in text
    assert "with confidence 0.9" in text
    about = int(100 * page.smallest_cluster.reached)
    assert f"reaches about {about}% of the best possible with clusters of 10 or more" in " ".join(
        text.split()
    )
    assert "Dunn" not in text
    assert "these sizes" not in text
    facts = json.loads(json.dumps(page.facts()))
    assert (facts["sample_size"], facts["confidence"], facts["dunn"]) == (300, 0.9, None)
    assert set(facts["ceilings"]) == {"any_clustering", "smallest_cluster"}
    assert facts["micro_standard_error"] == page.silhouettes.micro_standard_error


def test_noise_is_in_no_sample(many):
    X, labels = many
    page = evaluate(
        X, np.where(labels == 2, -1, labels), noise="drop", sample_size=300, random_state=1
    )
    kept = labels != 2
    bound = silchunk.silhouette_upper_bound(
        X[kept], min_cluster_size=[1], sample_size=300, random_state=1
    )
    assert page.bounds.n == kept.sum()
    assert page.any_clustering.bound == bound.upper_limit[0]
    assert not np.isin(page.silhouettes.points, np.flatnonzero(~kept)).any()


def test_a_matrix_is_sampled_by_rows(many):
    X, labels = many
    D = pairwise_distances(X)
    page = evaluate(D, labels, metric="precomputed", sample_size=300, random_state=7)
    points = evaluate(X, labels, sample_size=300, random_state=7)
    assert page.micro == pytest.approx(points.micro, abs=1e-9)
    assert page.any_clustering.bound == pytest.approx(points.any_clustering.bound, abs=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sample_size": 5}, "sample_size"),
        ({"sample_size": 3000}, "sample_size"),
        ({"sample_size": 300, "confidence": 1.5}, "confidence"),
        ({"confidence": 0.9}, "confidence and random_state go with sample_size"),
        ({"random_state": 0}, "confidence and random_state go with sample_size"),
    ],
)
def test_samples_that_cannot_be_drawn(many, options, message):
    with pytest.raises(InputError, match=message):
        evaluate(*many, **options)
