"""What clusterings a bound is over: a least cluster size, a number of clusters, or fixed sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from silchunk.errors import InputError
from silchunk.labels import read_labels

Sizes = int | Sequence[int]
Vector = np.ndarray[Any, np.dtype[Any]]

METHODS = ("assignment", "rearrangement")


@dataclass(frozen=True)
class SizeRange:
    """Cluster sizes of at least m points, where there are K clusters or, if unset, any number.

    The cluster of a point then has between m and n - (K-1) m points; two clusters are the fewest,
    so that an unset K counts as 2.
    """

    smallest: tuple[int, ...]  # one m, or several
    n_clusters: int | None = None

    @property
    def at_least(self) -> int:
        """Number of clusters that the range of sizes follows from."""
        return self.n_clusters or 2

    def largest(self, m: int, n: int) -> int:
        """Most points that a cluster can have if all have at least m."""
        return n - (self.at_least - 1) * m


def size_range(min_cluster_size: Sizes, n_clusters: int | None, n: int) -> SizeRange:
    """Checked constraints: K in 2 … n, and each m in 1 … n/K.

    Raises
    ------
    InputError
    """
    if n_clusters is not None:
        if not _is_integer(n_clusters):
            raise InputError(f"n_clusters takes an integer; got {n_clusters!r}.")
        if not 2 <= n_clusters <= n:
            raise InputError(
                f"n_clusters must be from 2 to n = {n:,}: a silhouette needs two clusters, none of "
                f"them empty; got {n_clusters}."
            )
        n_clusters = int(n_clusters)
    clusters = n_clusters or 2
    sizes = []
    for m in np.ravel(np.asarray(min_cluster_size, dtype=object)):
        if not _is_integer(m):
            raise InputError(f"min_cluster_size takes integers; got {m!r}.")
        if not 1 <= m <= n // clusters:
            reason = "there are two clusters at least" if n_clusters is None else "all must fit in"
            raise InputError(
                f"min_cluster_size must be from 1 to n/{clusters} = {n // clusters} for {n:,} "
                f"points, since {reason}; got {m}."
            )
        sizes.append(int(m))
    if not sizes:
        raise InputError("min_cluster_size is an empty list; give at least one size.")
    return SizeRange(tuple(sizes), n_clusters)


@dataclass(frozen=True)
class FixedSizes:
    """The sizes of all clusters: J distinct ones, ascending, and how many clusters have each."""

    sizes: Vector  # (J,) int64
    counts: Vector  # (J,) int64

    @property
    def n_clusters(self) -> int:
        """K, the number of clusters."""
        return int(self.counts.sum())

    @property
    def capacities(self) -> Vector:
        """(J,) int64, points in clusters of each size."""
        capacities: Vector = self.sizes * self.counts
        return capacities

    @property
    def asw_weights(self) -> Vector:
        """(J,) float64, n times the weight of a point in the mean over points."""
        return np.ones(len(self.sizes))

    @property
    def macro_weights(self) -> Vector:
        """(J,) float64, n times the weight of a point in the mean of the clusters' means."""
        weights: Vector = self.capacities.sum() / (self.n_clusters * self.sizes)
        return weights


def fixed_sizes(cluster_sizes: Any, labels: Any, n: int) -> FixedSizes:
    """Checked sizes of all clusters, as given, or as ``labels`` have them, or both.

    Parameters
    ----------
    cluster_sizes : sequence of int, or None
    labels : sequence of n hashables, or the path of a .npy file of them, or None
    n : int

    Raises
    ------
    InputError
        If neither is given, fewer than two clusters, a size below 1, sizes that do not add up to
        n, or labels that have other sizes.
    """
    if labels is None and cluster_sizes is None:
        raise InputError("give cluster_sizes, a list of how many points each cluster has.")
    found = None if labels is None else _sizes_of(labels, n)
    if cluster_sizes is None:
        sizes = found
    else:
        sizes = _checked_list(cluster_sizes, n)
        if found is not None and sorted(sizes) != sorted(found):
            raise InputError(
                f"cluster_sizes {_shown(sizes)} are not those of the labels, which have "
                f"{_shown(found)}."
            )
    distinct, counts = np.unique(np.array(sizes, np.int64), return_counts=True)
    return FixedSizes(distinct, counts.astype(np.int64))


def _checked_list(cluster_sizes: Any, n: int) -> list[int]:
    values = np.asarray(cluster_sizes, dtype=object)
    if values.ndim != 1:
        raise InputError(f"cluster_sizes must be a list of integers; got {cluster_sizes!r}.")
    for size in values:
        if not _is_integer(size):
            raise InputError(f"cluster_sizes takes integers; got {size!r}.")
        if size < 1:
            hint = " Are these labels? Pass them as labels=." if len(values) == n else ""
            raise InputError(f"no cluster can have {size} points; cluster_sizes start at 1.{hint}")
    if len(values) < 2:
        raise InputError(
            f"cluster_sizes has {len(values)} size; a silhouette needs two clusters at least."
        )
    sizes = [int(size) for size in values]
    if sum(sizes) != n:
        raise InputError(f"cluster_sizes add up to {sum(sizes):,}, but X has {n:,} points.")
    return sizes


def _sizes_of(labels: Any, n: int) -> list[int]:
    sizes: list[int] = read_labels(labels, n, noise="cluster").sizes.tolist()
    if len(sizes) < 2:
        raise InputError("labels name one cluster only; a silhouette needs two at least.")
    return sizes


def checked_method(method: str) -> str:
    """One of METHODS.

    Raises
    ------
    InputError
    """
    if method not in METHODS:
        raise InputError(f"method must be one of {', '.join(METHODS)}; got {method!r}.")
    return method


def refuse_contradiction(within: SizeRange, fixed: FixedSizes) -> None:
    """Raise if clusters of these fixed sizes are not within the range asked for beside them.

    Raises
    ------
    InputError
    """
    if within.n_clusters not in (None, fixed.n_clusters):
        raise InputError(
            f"n_clusters is {within.n_clusters}, but cluster_sizes (or labels) are those of "
            f"{fixed.n_clusters} clusters; leave one of them out."
        )


def _is_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _shown(sizes: Sequence[int]) -> str:
    listed = sorted(sizes, reverse=True)
    return ", ".join(map(str, listed[:8])) + (", ..." if len(listed) > 8 else "")
