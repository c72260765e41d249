"""What a bound gives back: one data set's bounds, for every minimum cluster size."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from silchunk.constraints import SizeRange, size_range
from silchunk.errors import InputError
from silchunk.plan import Plan

Vector = np.ndarray[Any, np.dtype[np.float64]]

# Scores come from elsewhere, often in single precision.
SCORE_SLACK = 1e-6


def worst_case_error(score: float, bound: float, whose: str) -> float:
    """``(bound - score) / bound``, 0 if both are 0; ``whose`` says what the bound is over.

    Raises
    ------
    InputError
        If ``score`` is no silhouette, or above the bound.
    """
    value = float(score)
    if not -1.0 <= value <= 1.0:
        raise InputError(f"an average silhouette width lies in [-1, 1]; got {score!r}.")
    if value > bound + SCORE_SLACK:
        raise InputError(
            f"the score {value:.6g} is above the upper bound {bound:.6g}, which no clustering "
            f"of these points can be: was it computed on the same points, {whose}?"
        )
    return max(0.0, (bound - value) / bound) if bound > 0 else 0.0


@dataclass(frozen=True)
class SizedBounds:
    """Bounds over clusterings whose clusters have given sizes.

    Attributes
    ----------
    cluster_sizes : tuple of int
        Descending.
    asw, macro : float
        Upper bounds of the average silhouette width and of the mean of cluster means, by
        assignment: each size class takes just as many points as it has room for.
    asw_rearrangement, macro_rearrangement : float
        The same in the weaker form of Sträng & Dinh.
    asw_gap, macro_gap : float
        How far ``asw`` and ``macro`` may be above the least value that the assignment bound has;
        they are valid bounds whatever the gap.
    """

    cluster_sizes: tuple[int, ...]
    asw: float
    macro: float
    asw_rearrangement: float
    macro_rearrangement: float
    asw_gap: float
    macro_gap: float


@dataclass(frozen=True, repr=False, eq=False)
class BoundResult:
    """Upper bounds of the silhouette of one data set.

    Attributes
    ----------
    n : int
        Number of points.
    metric : str
        The metric the distances were measured in.
    min_cluster_size : int or tuple of int
        As asked for.
    n_clusters : int or None
        As asked for.
    asw : float, or array of shape (len(min_cluster_size),)
        Upper bound of the average silhouette width for clusters of at least that size.
    samples : float64 array of shape (n,), or (n, len(min_cluster_size))
        Upper bound of each point's silhouette.
    sized : SizedBounds or None
        Bounds for fixed cluster sizes, if these were given.
    certified : bool
        Whether all of these hold in exact arithmetic.
    plan : Plan
        How the job was cut.
    """

    n: int
    metric: str
    min_cluster_size: int | tuple[int, ...]
    n_clusters: int | None
    samples: Vector
    sized: SizedBounds | None
    certified: bool
    plan: Plan
    _curve: Vector = field(compare=False)

    @property
    def asw(self) -> Any:
        """Upper bound of the average silhouette width."""
        if isinstance(self.min_cluster_size, int):
            return self.at(self.min_cluster_size)
        return np.array([self.at(m) for m in self.min_cluster_size])

    def at(self, m: int) -> float:
        """Upper bound of the ASW over clusterings whose clusters all have at least m points.

        Raises
        ------
        InputError
            If m is not in 1 … n/K, K the number of clusters, or 2 where it is not given.
        """
        if np.ndim(m) != 0:
            raise InputError(f"at() takes one size; got {m!r}. curve() has all of them.")
        return float(self._curve[self._range(m).smallest[0] - 1])

    def _range(self, m: int) -> SizeRange:
        return size_range(m, self.n_clusters, self.n)

    def curve(self) -> Vector:
        """Array of shape (n // K,) whose entry m - 1 is ``at(m)``; it never increases.

        K is the number of clusters, or 2 where it is not given.
        """
        return self._curve.copy()

    def wcre(self, asw: float, m: int | None = None) -> float:
        """Worst-case relative error ``(UB - asw) / UB`` of a clustering that scored ``asw``.

        0.14 says: no clustering of these points can be better by more than 14% of the bound.
        ``m`` is the size of the smallest cluster, if the bound for that size is wanted; by
        default the (first) size that was asked for. 0 if both score and bound are 0.

        Raises
        ------
        InputError
            If ``asw`` is no silhouette, or above the bound: it then belongs to other data,
            another metric, or to smaller clusters.
        """
        bound = float(np.ravel(self.asw)[0]) if m is None else self.at(m)
        whose = f"in the same metric ({self.metric}), and with no cluster smaller than asked for"
        if self.n_clusters is not None:
            whose += f", in {self.n_clusters} clusters"
        return worst_case_error(asw, bound, whose)

    def __repr__(self) -> str:
        lines = [f"Silhouette upper bound of {self.n:,} points ({self.metric} distance)"]
        clusters = "clusters" if self.n_clusters is None else f"{self.n_clusters:,} clusters"
        lines += [
            f"  {clusters} of {m:,} or more points: average silhouette width <= {self.at(m):.6f}"
            for m in np.ravel(self.min_cluster_size).tolist()
        ]
        if self.sized is not None:
            listed = ", ".join(f"{size:,}" for size in self.sized.cluster_sizes[:5])
            more = ", ..." if len(self.sized.cluster_sizes) > 5 else ""
            lines.append(
                f"  clusters of {listed}{more} points: average silhouette width <= "
                f"{self.sized.asw:.6f}, mean of cluster means <= {self.sized.macro:.6f}"
            )
        low, middle, high = np.quantile(self.samples.reshape(self.n, -1)[:, 0], [0, 0.5, 1])
        lines.append(f"  single points: {low:.3f} to {high:.3f}, median {middle:.3f}")
        lines.append("  .at(m) and .curve() bound larger smallest clusters, .wcre(score) rates one")
        return "\n".join(lines)
