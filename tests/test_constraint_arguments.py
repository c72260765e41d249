"""What constraints may be given as, and what is refused before any work."""

from __future__ import annotations

import numpy as np
import oracles
import pytest
from constraint_inputs import METHODS

from silchunk import (
    InputError,
    macro_silhouette_upper_bound,
    silhouette_bounds,
    silhouette_upper_bound,
    silhouette_upper_bound_samples,
)
from silchunk.errors import InputNotFoundError


@pytest.fixture(scope="module")
def unread(tmp_path_factory):
    """Six points that no pass over the data would let through."""
    path = tmp_path_factory.mktemp("unread") / "x.npy"
    np.save(path, np.full((6, 2), np.nan))
    return path


def test_the_points_are_bad_where_they_are_read(unread):
    with pytest.raises(InputError, match="X has nan at row 0, column 0"):
        silhouette_upper_bound(unread, cluster_sizes=[4, 2])


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([4, 3], "cluster_sizes add up to 7, but X has 6 points"),
        ([4, 1], "cluster_sizes add up to 5, but X has 6 points"),
        ([2**62, 2**62], "add up to 9,223,372,036,854,775,808, but X has 6"),
        ([6], "cluster_sizes has 1 size; a silhouette needs two clusters"),
        ([], "cluster_sizes has 0 size"),
        ([6, 0], "no cluster can have 0 points"),
        ([7, -1], "no cluster can have -1 points"),
        ([4.0, 2.0], "cluster_sizes takes integers; got 4.0"),
        (np.array([4.0, 2.0]), "cluster_sizes takes integers; got 4.0"),
        ([5, True], "cluster_sizes takes integers; got True"),
        ([5, np.True_], "cluster_sizes takes integers; got .*True"),
        (["4", "2"], "cluster_sizes takes integers; got '4'"),
        ([4, None], "cluster_sizes takes integers; got None"),
        (6, "cluster_sizes must be a list of integers; got 6"),
        ("42", "cluster_sizes must be a list of integers; got '42'"),
        ([[4, 2]], "cluster_sizes must be a list of integers"),
        ({4, 2}, "cluster_sizes must be a list of integers"),
    ],
)
@pytest.mark.parametrize("method", METHODS)
def test_wrong_cluster_sizes(sizes, message, method, unread):
    with pytest.raises(InputError, match=message):
        silhouette_upper_bound(unread, cluster_sizes=sizes, method=method)
    with pytest.raises(InputError, match=message):
        macro_silhouette_upper_bound(unread, sizes, method=method)
    with pytest.raises(InputError, match=message):
        silhouette_bounds(unread, cluster_sizes=sizes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": [0, 1, 0, 1, 0]}, r"labels must have one entry for each of the 6 .*\(5,\)"),
        ({"labels": np.zeros((6, 1))}, r"each of the 6 points; their shape is \(6, 1\)"),
        ({"labels": [None, 0, 0, 0, 1, 1]}, "labels have None or NaN"),
        ({"labels": [3] * 6}, "labels name one cluster only"),
        (
            {"labels": [0, 0, 0, 1, 1, 1], "cluster_sizes": [4, 2]},
            "cluster_sizes 4, 2 are not those of the labels, which have 3, 3",
        ),
        (
            {"labels": [0, 1, 2, 3, 4, 5], "cluster_sizes": [2, 1, 1, 1, 1]},
            "2, 1, 1, 1, 1 are not those of the labels, which have 1, 1, 1, 1, 1, 1",
        ),
    ],
)
def test_wrong_labels(options, message, unread):
    for function in (silhouette_upper_bound, macro_silhouette_upper_bound, silhouette_bounds):
        with pytest.raises(InputError, match=message):
            function(unread, **options)


def test_labels_that_are_a_file(unread, tmp_path):
    np.save(tmp_path / "labels.npy", list("aaabbb"))
    expected = macro_silhouette_upper_bound(oracles.X6, [3, 3])
    for path in (tmp_path / "labels.npy", str(tmp_path / "labels.npy")):
        assert macro_silhouette_upper_bound(oracles.X6, labels=path) == expected
    with pytest.raises(InputNotFoundError, match="labels: there is no file or folder 'aabbcc'"):
        macro_silhouette_upper_bound(unread, labels="aabbcc")
    (tmp_path / "labels.npy").write_text("a b c")
    with pytest.raises(InputError, match=r"is not a readable \.npy file"):
        macro_silhouette_upper_bound(unread, labels=tmp_path / "labels.npy")


def test_neither_sizes_nor_labels(unread):
    with pytest.raises(InputError, match="give cluster_sizes, a list of how many points"):
        macro_silhouette_upper_bound(unread)


@pytest.mark.parametrize("method", ["best", "Assignment", None, ""])
def test_unknown_methods(method, unread):
    message = "method must be one of assignment, rearrangement; got"
    with pytest.raises(InputError, match=message):
        silhouette_upper_bound(unread, cluster_sizes=[4, 2], method=method)
    with pytest.raises(InputError, match=message):
        macro_silhouette_upper_bound(unread, [4, 2], method=method)


@pytest.mark.parametrize("given_as", [{"cluster_sizes": [4, 2]}, {"labels": [0, 0, 0, 0, 1, 1]}])
@pytest.mark.parametrize(
    "further",
    [
        {"min_cluster_size": 2},
        {"min_cluster_size": [1]},
        {"min_cluster_size": [1, 2]},
        {"n_clusters": 2},
        {"sample_size": 4},
        {"sample_size": 4, "n_clusters": 2},
    ],
)
def test_fixed_sizes_leave_nothing_else_to_ask_for(given_as, further, unread):
    with pytest.raises(InputError, match="with cluster_sizes .*leave these out"):
        silhouette_upper_bound(unread, **given_as, **further)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_clusters": 0}, "n_clusters must be from 2 to n = 6.*; got 0"),
        ({"n_clusters": 1}, "n_clusters must be from 2 to n = 6.*; got 1"),
        ({"n_clusters": 7}, "n_clusters must be from 2 to n = 6.*; got 7"),
        ({"n_clusters": -2}, "n_clusters must be from 2 to n = 6.*; got -2"),
        ({"n_clusters": 2.5}, "n_clusters takes an integer; got 2.5"),
        ({"n_clusters": 3.0}, "n_clusters takes an integer; got 3.0"),
        ({"n_clusters": True}, "n_clusters takes an integer; got True"),
        ({"n_clusters": "3"}, "n_clusters takes an integer; got '3'"),
        ({"n_clusters": [3]}, r"n_clusters takes an integer; got \[3\]"),
        (
            {"n_clusters": 3, "min_cluster_size": 3},
            "from 1 to n/3 = 2 for 6 points, since all must fit in; got 3",
        ),
        (
            {"n_clusters": 4, "min_cluster_size": [1, 2]},
            "from 1 to n/4 = 1 for 6 points, since all must fit in; got 2",
        ),
        ({"n_clusters": 3, "min_cluster_size": []}, "min_cluster_size is an empty list"),
    ],
)
def test_wrong_numbers_of_clusters(options, message, unread):
    for function in (silhouette_upper_bound, silhouette_upper_bound_samples, silhouette_bounds):
        with pytest.raises(InputError, match=message):
            function(unread, **options)


def test_integers_of_numpy_are_integers():
    X = oracles.X6
    for integer in (np.int32(3), np.uint8(3)):
        assert silhouette_upper_bound(X, n_clusters=integer) == silhouette_upper_bound(
            X, n_clusters=3
        )
    expected = silhouette_upper_bound(X, cluster_sizes=[4, 2])
    assert silhouette_upper_bound(X, cluster_sizes=np.array([4, 2], np.uint8)) == expected
    assert silhouette_upper_bound(X, cluster_sizes=(np.int64(2), 4)) == expected


def test_labels_need_no_order_but_have_to_tell_clusters_apart():
    expected = silhouette_upper_bound(oracles.X6, cluster_sizes=[3, 3])
    assert silhouette_upper_bound(oracles.X6, labels=[1j, 1j, 1, 1, "a", "a"]) != expected
    assert silhouette_upper_bound(oracles.X6, labels=[-1, -1, -1, "a", "a", "a"]) == expected
    for labels, message in (
        ([[1], [1, 2], 1, 1, 1, 1], "must be hashable"),
        (np.array([{}] * 6), "must be hashable"),
        ([0.0, 0.0, np.nan, 1.0, 1.0, 1.0], "labels have None or NaN"),
    ):
        with pytest.raises(InputError, match=message):
            silhouette_upper_bound(oracles.X6, labels=labels)


def test_an_array_of_sizes_beside_fixed_ones():
    with pytest.raises(InputError, match="follow from them"):
        silhouette_upper_bound(oracles.X6, cluster_sizes=[3, 3], min_cluster_size=np.array([1, 2]))
