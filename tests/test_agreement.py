"""Agreement of labelings against scikit-learn, hand computation and all matchings."""

from __future__ import annotations

from itertools import permutations

import dask.array as da
import numpy as np
import pytest
import zarr
from sklearn import metrics

from silchunk.agreement import compare_labels
from silchunk.errors import InputError, InputNotFoundError, InputTypeError
from silchunk.labels import read_labels


def labelings(n, n_classes, n_clusters, seed):
    """Labels that agree in about two of three points; every class and cluster has a point."""
    rng = np.random.default_rng(seed)
    true = np.r_[np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)]
    other = np.r_[np.arange(n_clusters), rng.integers(0, n_clusters, n - n_clusters)]
    return true, np.where(rng.random(n) < 2 / 3, true % n_clusters, other)


def scores(agreement):
    return agreement.ari, agreement.ami, agreement.nmi, agreement.accuracy


def best_accuracy(true, predicted):
    """Over all one-to-one matchings, some of which leave classes or clusters over."""
    classes, clusters = sorted(set(true)), sorted(set(predicted))
    none = [object()] * len(clusters)
    return max(
        np.mean([name == of[clusters.index(p)] for name, p in zip(true, predicted, strict=True)])
        for of in permutations([*classes, *none], len(clusters))
    )


@pytest.mark.parametrize(("n", "n_classes", "n_clusters"), [(300, 3, 3), (90, 2, 7), (200, 9, 4)])
def test_scores_are_those_of_scikit_learn(n, n_classes, n_clusters):
    true, predicted = labelings(n, n_classes, n_clusters, n)
    found = compare_labels(true, predicted)
    assert found.ari == pytest.approx(metrics.adjusted_rand_score(true, predicted), abs=1e-13)
    expected = metrics.adjusted_mutual_info_score(true, predicted)
    assert found.ami == pytest.approx(expected, abs=1e-13)
    expected = metrics.normalized_mutual_info_score(true, predicted)
    assert found.nmi == pytest.approx(expected, abs=1e-13)
    assert (found.n, found.n_classes, found.n_clusters) == (n, n_classes, n_clusters)


@pytest.mark.parametrize("n_classes", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("n_clusters", [1, 2, 3, 4, 5])
def test_accuracy_is_that_of_the_best_matching(n_classes, n_clusters):
    for seed in range(3):
        true, predicted = (labels.tolist() for labels in labelings(12, n_classes, n_clusters, seed))
        found = compare_labels(true, predicted)
        assert found.accuracy == pytest.approx(best_accuracy(true, predicted), abs=1e-15)
        # The matching is one-to-one, and has just as many points.
        assert len({*found.matching.values()}) == len(found.matching)
        pairs = zip(true, predicted, strict=True)
        matched = sum(p in found.matching and found.matching[p] == t for t, p in pairs)
        assert matched / 12 == found.accuracy


def test_by_hand():
    found = compare_labels([0, 0, 0, 1, 1, 1], [5, 5, 6, 6, 6, 6])
    assert found.accuracy == 5 / 6
    # Pairs together in both 4, in one or the other 6 and 7, of 15.
    assert found.ari == pytest.approx((4 - 6 * 7 / 15) / ((6 + 7) / 2 - 6 * 7 / 15), abs=1e-15)
    own = np.log(2)
    other = np.log(3) - 2 / 3 * np.log(2)
    shared = np.log(2) / 3 - np.log(2) / 6 + np.log(1.5) / 2
    assert found.nmi == pytest.approx(shared / ((own + other) / 2), abs=1e-14)


def test_names_of_labels_do_not_matter():
    true, predicted = labelings(150, 4, 5, 1)
    expected = compare_labels(true, predicted)
    as_strings = [f"class {label}" for label in true]
    as_mixed = [("x", 1) if label == 2 else int(label) - 1 for label in predicted]
    found = compare_labels(as_strings, as_mixed)
    assert scores(found) == pytest.approx(scores(expected), abs=1e-13)
    names = {label: ("x", 1) if label == 2 else label - 1 for label in range(5)}
    assert found.matching == {
        names[cluster]: f"class {of}" for cluster, of in expected.matching.items()
    }


@pytest.mark.parametrize("n_clusters", [1, 2, 6, 40])
def test_permuted_names_are_the_same_clustering(n_clusters):
    rng = np.random.default_rng(n_clusters)
    true = np.r_[np.arange(n_clusters), rng.integers(0, n_clusters, 40 - n_clusters)]
    renamed = rng.permutation(n_clusters)
    found = compare_labels(true, renamed[true])
    assert scores(found) == pytest.approx((1.0, 1.0, 1.0, 1.0), abs=1e-12)
    assert found.matching == {renamed[label]: label for label in range(n_clusters)}


def test_the_order_of_points_does_not_matter():
    true, predicted = labelings(100, 3, 4, 2)
    order = np.random.default_rng(0).permutation(100)
    moved = compare_labels(true[order], predicted[order])
    assert scores(moved) == pytest.approx(scores(compare_labels(true, predicted)), abs=1e-14)


def test_clusters_that_match_nothing_are_left_out():
    found = compare_labels(["a", "a", "a", "b"], [0, 1, 2, 2])
    assert found.accuracy == 0.5
    assert found.matching == {0: "a", 2: "b"} or found.matching == {1: "a", 2: "b"}
    # Matched with its larger class, the first cluster leaves one that the second has no point of.
    found = compare_labels(["a", "a", "a", "a", "b"], [0, 0, 0, 1, 0])
    assert found.accuracy == 0.6
    assert found.matching == {0: "a"}


def test_noise_is_a_label_like_any_other():
    found = compare_labels([-1, -1, 0, 0], ["n", "n", "n", "k"])
    assert found.matching == {"n": -1, "k": 0}
    assert found.accuracy == 0.75


def test_points_that_are_left_out_do_not_count():
    true = ["a", "b", "a", "c", "b", "b"]
    predicted = [0, 1, 0, -1, -1, 0]
    expected = compare_labels(["a", "b", "a", "b"], [0, 1, 0, 0])
    assert compare_labels(true, read_labels(predicted, 6, noise="drop")) == expected
    assert (expected.n, expected.n_classes, expected.n_clusters) == (4, 2, 2)
    swapped = compare_labels(read_labels(predicted, 6, noise="drop"), true)
    assert scores(swapped) == pytest.approx(scores(expected), abs=1e-14)
    with pytest.raises(InputError, match="have no point in common"):
        compare_labels(["a"], read_labels([-1], 1, noise="drop"))


def test_noise_points_as_clusters_of_their_own():
    true = ["a", "b", "a", "c", "c", "b"]
    found = compare_labels(true, read_labels([0, 1, 0, -1, -1, 0], 6, noise="singleton"))
    named = compare_labels(true, [0, 1, 0, "one", "two", 0])
    assert scores(found) == pytest.approx(scores(named), abs=1e-14)
    assert found.n_clusters == 4
    assert found.matching == {0: "a", 1: "b"}


def test_labels_out_of_memory(tmp_path):
    true, predicted = labelings(120, 3, 3, 3)
    expected = compare_labels(true, predicted)
    np.save(tmp_path / "true.npy", true)
    stored = zarr.create_array(tmp_path / "predicted.zarr", data=predicted, chunks=(50,))
    for source in (stored, tmp_path / "predicted.zarr", da.from_array(predicted, chunks=(33,))):
        assert compare_labels(tmp_path / "true.npy", source) == expected
    lazy = da.from_array(predicted, chunks=(33,))
    assert compare_labels(tmp_path / "true.npy", lazy[lazy >= 0]) == expected


def test_the_result_explains_itself():
    lines = repr(compare_labels([0, 0, 0, 1, 1, 1], [5, 5, 6, 6, 6, 6])).splitlines()
    assert lines[0].startswith("Agreement of two labelings of 6 points, into 2 true and 2 pred")
    assert lines[1].startswith("  adjusted Rand index 0.324324: of pairs of points")
    assert lines[2].startswith("  adjusted mutual information ")
    assert lines[3].startswith("  normalized mutual information ")
    assert lines[4].startswith("  accuracy 0.833333: share of points")


def test_wrong_labels():
    with pytest.raises(InputError, match="true_labels are 3 and predicted_labels 2; give one of"):
        compare_labels([0, 1, 1], [0, 1])
    with pytest.raises(InputError, match="true_labels are 1,200 and predicted_labels 1,201"):
        compare_labels(np.zeros(1200), da.zeros(1201, chunks=500))
    with pytest.raises(InputError, match="have no point in common"):
        compare_labels([], da.zeros(0, chunks=1))
    with pytest.raises(InputError, match="true_labels have None or NaN"):
        compare_labels([0, None], [0, 1])
    with pytest.raises(InputError, match="predicted_labels have None or NaN"):
        compare_labels([0, 1], [0.0, np.nan])
    with pytest.raises(InputError, match=r"predicted_labels must have .* shape is \(2, 1\)"):
        compare_labels([0, 1], np.zeros((2, 1)))
    with pytest.raises(InputTypeError, match="true_labels must be a sequence; got 3"):
        compare_labels(3, [0, 1])
    with pytest.raises(InputNotFoundError, match="predicted_labels: there is no file"):
        compare_labels([0, 1], "nowhere.npy")
