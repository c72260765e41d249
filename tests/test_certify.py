"""Certified bounds of small matrices against every clustering, in exact arithmetic."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import oracles
import pytest
from certify_inputs import SMALL_KINDS, small_matrix

from silchunk import (
    InputError,
    macro_silhouette_upper_bound,
    silhouette_bounds,
    silhouette_upper_bound,
    silhouette_upper_bound_samples,
)


@cache
def clusterings(n, kind, dtype):
    """(sizes, exact average width, exact mean of cluster means) of every clustering."""
    D = oracles.exact(small_matrix(n, kind, dtype))
    found = []
    for labels in oracles.partitions(n):
        values = oracles.silhouettes(D, labels)
        members = [
            [v for v, own in zip(values, labels, strict=True) if own == c] for c in {*labels}
        ]
        macro = sum(sum(m) / len(m) for m in members) / len(members)
        found.append((tuple(sorted(map(len, members))), Fraction(sum(values), n), macro))
    return found


small = pytest.mark.parametrize(
    ("n", "kind", "dtype"),
    [(n, k, d) for n in (2, 3, 5, 6) for k in SMALL_KINDS for d in ("float32", "float64")]
    + [(7, k, "float64") for k in ("uniform", "ties", "tiny against huge")],
)


@small
def test_small_matrices_in_rationals(n, kind, dtype):
    D = small_matrix(n, kind, dtype)
    rational = oracles.exact(D)
    options = {"metric": "precomputed", "certify": True}
    whole = silhouette_bounds(D, **options)
    assert whole.certified
    sizes = list(range(1, n // 2 + 1))
    together = silhouette_upper_bound(D, min_cluster_size=sizes, **options)
    for m in sizes:
        exact = [oracles.point_bound(rational, i, m) for i in range(n)]
        samples = silhouette_upper_bound_samples(D, min_cluster_size=m, **options)
        for value, limit in zip(exact, samples, strict=True):
            assert value <= Fraction(float(limit))
            assert Fraction(float(limit)) - value <= Fraction(1, 10**13)
        mean = oracles.upper_bound(rational, m)
        assert mean == Fraction(sum(exact), n)
        for limit in (
            silhouette_upper_bound(D, min_cluster_size=m, **options),
            together[m - 1],
            whole.at(m),
            silhouette_bounds(D, min_cluster_size=[m], **options).asw[0],
        ):
            assert mean <= Fraction(float(limit)) <= mean + Fraction(1, 10**13)
        best = max((asw for s, asw, _ in clusterings(n, kind, dtype) if s[0] >= m), default=-1)
        assert best <= Fraction(float(together[m - 1]))


@small
def test_small_matrices_with_a_number_of_clusters(n, kind, dtype):
    D = small_matrix(n, kind, dtype)
    rational = oracles.exact(D)
    options = {"metric": "precomputed", "certify": True}
    for clusters in range(2, n + 1):
        whole = silhouette_bounds(D, n_clusters=clusters, **options)
        for m in range(1, n // clusters + 1):
            largest = n - (clusters - 1) * m
            exact = [oracles.point_bound(rational, i, m, largest) for i in range(n)]
            constraints = {"min_cluster_size": m, "n_clusters": clusters}
            samples = silhouette_upper_bound_samples(D, **constraints, **options)
            limits = [Fraction(float(limit)) for limit in samples]
            assert all(value <= limit for value, limit in zip(exact, limits, strict=True))
            limit = Fraction(silhouette_upper_bound(D, **constraints, **options))
            best = max(
                asw for s, asw, _ in clusterings(n, kind, dtype) if s[0] >= m and len(s) == clusters
            )
            assert best <= Fraction(sum(exact), n) <= min(limit, Fraction(whole.at(m)))


@small
def test_small_matrices_with_fixed_sizes(n, kind, dtype):
    D = small_matrix(n, kind, dtype)
    options = {"metric": "precomputed", "certify": True}
    found = clusterings(n, kind, dtype)
    for sizes in {s for s, _, _ in found}:
        asw = max(value for s, value, _ in found if s == sizes)
        macro = max(value for s, _, value in found if s == sizes)
        sized = silhouette_bounds(D, cluster_sizes=sizes, **options).sized
        assert asw <= min(Fraction(sized.asw), Fraction(sized.asw_rearrangement))
        assert macro <= min(Fraction(sized.macro), Fraction(sized.macro_rearrangement))
        for method in ("assignment", "rearrangement"):
            given = {"cluster_sizes": sizes, "method": method, **options}
            assert asw <= Fraction(silhouette_upper_bound(D, **given))
            assert macro <= Fraction(macro_silhouette_upper_bound(D, **given))


def test_fixed_sizes_are_tight_where_a_clustering_attains_them():
    D = np.array([[0, 0, 1, 1], [0, 0, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0]], float)
    options = {"cluster_sizes": [2, 2], "metric": "precomputed", "certify": True}
    assert silhouette_upper_bound(D, **options) == 1.0
    assert macro_silhouette_upper_bound(D, **options) == 1.0


def test_a_float64_matrix_is_not_certified_in_float32(tmp_path):
    D = small_matrix(6, "uniform", "float64")
    options = {"metric": "precomputed", "certify": True, "dtype": "float32"}
    with pytest.raises(InputError, match="works in float64"):
        silhouette_upper_bound(D, **options)
    single = D.astype(np.float32)
    exact = oracles.upper_bound(oracles.exact(single))
    assert exact <= Fraction(silhouette_upper_bound(single, **options))
