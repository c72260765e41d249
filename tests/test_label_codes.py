"""Codes of labels: noise, their bytes and order, and what is left without some points."""

from __future__ import annotations

import numpy as np
import pytest

from silchunk.errors import InputError, SilchunkWarning
from silchunk.labels import LEFT_OUT, Labels, check_number_of_clusters, read_labels

# Noise.

WITH_NOISE = [4, -1, 0, -1, 4, 2]


def test_noise_as_a_cluster():
    found = read_labels(WITH_NOISE, 6, noise="cluster")
    assert found.classes == [-1, 0, 2, 4]
    assert found.codes.tolist() == [3, 0, 1, 0, 3, 2]
    assert found.sizes.tolist() == [2, 1, 1, 2]


def test_noise_that_nobody_spoke_of():
    with pytest.warns(SilchunkWarning, match="clusters have -1 for 2 points, which count as a cl"):
        found = read_labels(WITH_NOISE, 6, name="clusters")
    assert found.classes == [-1, 0, 2, 4]
    assert found.codes.tolist() == [3, 0, 1, 0, 3, 2]
    with pytest.warns(SilchunkWarning, match="have -1 for 1 points"):
        read_labels(["a", -1], 2)
    read_labels(["a", "-1"], 2)  # a name like any other


def test_dropped_noise():
    found = read_labels(WITH_NOISE, 6, noise="drop")
    assert found.classes == [0, 2, 4]
    assert found.codes.tolist() == [2, LEFT_OUT, 0, LEFT_OUT, 2, 1]
    assert found.sizes.tolist() == [1, 1, 2]
    assert found.n_kept == 4
    assert found.order().tolist() == [2, 5, 0, 4]
    nothing_left = read_labels([-1, -1], 2, noise="drop")
    assert (nothing_left.n_clusters, nothing_left.n_kept) == (0, 0)
    assert nothing_left.order().tolist() == []


def test_noise_points_as_clusters_of_their_own():
    found = read_labels([-7, 4, -1, 0, -1, 4], 6, noise="singleton")
    assert found.classes == [-7, 0, 4, -1, -1]
    assert found.codes.tolist() == [0, 2, 3, 1, 4, 2]
    assert found.sizes.tolist() == [1, 1, 2, 1, 1]
    assert found.n_kept == 6


@pytest.mark.parametrize("noise", ["cluster", "drop", "singleton", None])
def test_without_noise_nothing_depends_on_it(noise):
    found = read_labels([3, 5, 3], 3, noise=noise)
    assert found.classes == [3, 5]
    assert found.codes.tolist() == [0, 1, 0]


def test_noise_among_labels_without_an_order():
    found = read_labels(["b", -1, 3, "b", -1], 5, noise="drop")
    assert found.classes == ["b", 3]
    assert found.codes.tolist() == [0, LEFT_OUT, 1, 0, LEFT_OUT]
    assert read_labels([1.5, -1.0, 1.5], 3, noise="drop").codes.tolist() == [0, LEFT_OUT, 0]


@pytest.mark.parametrize("noise", ["keep", "Drop", -1, ""])
def test_unknown_kinds_of_noise(noise):
    with pytest.raises(InputError, match="noise must be one of cluster, drop, singleton; got"):
        read_labels([0, 1], 2, noise=noise)


# What is made of them.


@pytest.mark.parametrize(
    ("n_clusters", "dtype"),
    [
        (2, "int8"),
        (127, "int8"),
        (128, "int16"),
        (32_767, "int16"),
        (32_768, "int32"),
    ],
)
def test_codes_take_few_bytes(n_clusters, dtype):
    listed = np.arange(n_clusters)[::-1]
    found = read_labels(listed, n_clusters)
    assert found.codes.dtype == dtype
    assert np.array_equal(found.codes, listed)
    singletons = read_labels(np.full(n_clusters, -1), n_clusters, noise="singleton")
    assert singletons.codes.dtype == dtype
    assert np.array_equal(singletons.codes, np.arange(n_clusters))
    dropped = read_labels(np.r_[-1, listed], n_clusters + 1, noise="drop")
    assert dropped.codes.dtype == dtype
    assert np.array_equal(dropped.codes, np.r_[LEFT_OUT, listed])


def test_points_cluster_by_cluster():
    codes = np.random.default_rng(0).integers(-1, 5, 200)
    found = read_labels(codes, 200, noise="drop")
    expected = [i for cluster in range(5) for i in range(200) if codes[i] == cluster]
    assert found.order().tolist() == expected
    assert found.order().dtype == np.int64
    assert np.cumsum(found.sizes)[-1] == len(expected)


def test_further_points_left_out():
    found = read_labels(["d", "a", "b", "d", "c", "b", -1], 7, noise="drop")
    assert found.classes == ["d", "a", "b", "c"]
    left_out = np.array([True, False, False, True, True, False, False])
    rest = found.without(left_out)
    assert rest.classes == ["a", "b"]
    assert rest.codes.tolist() == [LEFT_OUT, 0, 1, LEFT_OUT, LEFT_OUT, 1, LEFT_OUT]
    assert rest.sizes.tolist() == [1, 2]
    assert rest.order().tolist() == [1, 2, 5]
    assert found.codes.tolist() == [0, 1, 2, 0, 3, 2, LEFT_OUT], "it was to stay as it is"
    same = found.without(np.zeros(7, bool))
    assert (same.codes.tolist(), same.classes) == (found.codes.tolist(), found.classes)
    nothing_left = found.without(np.ones(7, bool))
    assert (nothing_left.n_clusters, nothing_left.n_kept) == (0, 0)


def test_fewer_clusters_take_fewer_bytes():
    found = read_labels(np.arange(200), 200)
    rest = found.without(np.arange(200) >= 100)
    assert (found.codes.dtype, rest.codes.dtype) == (np.int16, np.int8)
    assert np.array_equal(rest.codes[:100], np.arange(100))
    assert (rest.codes[100:] == LEFT_OUT).all()


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ([1, 1, 1], "labels name 1 cluster among 3 points; from 2 to n - 1 = 2 are needed"),
        ([1, 2, 3], "labels name 3 clusters among 3 points; from 2 to n - 1 = 2 are needed"),
        (range(1200), "labels name 1,200 clusters among 1,200 points; from 2 to n - 1 = 1,199 "),
        ([1, 1, -1], "labels name 1 cluster among 2 points; from 2 to n - 1 = 1 are needed"),
    ],
)
def test_too_few_or_many_clusters(listed, message):
    with pytest.raises(InputError, match=message):
        check_number_of_clusters(read_labels(listed, None, noise="drop"))


def test_enough_clusters():
    for listed in ([1, 1, 2], [1, 2, 3, 3], list("abca")):
        check_number_of_clusters(read_labels(listed, None))
    few = Labels(np.zeros(5, np.int8), ["a"], np.array([5]))
    with pytest.raises(InputError, match="clusters name 1 cluster among 5 points"):
        check_number_of_clusters(few, "clusters")
