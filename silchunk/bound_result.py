"""What a bound gives back: one data set's bounds, for every minimum cluster size."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from silchunk.constraints import SizeRange, size_range
from silchunk.errors import InputError
from silchunk.plan import Plan
from silchunk.rounding import at_most

Vector = np.ndarray[Any, np.dtype[np.float64]]

# Scores come from elsewhere, often in single precision.
SCORE_SLACK = 1e-6


def worst_case_error(score: float, bound: float, above: str) -> float:
    """``(bound - score) / bound``, 0 if both are 0; ``above`` says what a score above it means.

    Raises
    ------
    InputError
        If ``score`` is no silhouette, or above the bound.
    """
    value = float(score)
    if not -1.0 <= value <= 1.0:
        raise InputError(f"a silhouette lies in [-1, 1]; got {score!r}.")
    if value > bound + SCORE_SLACK:
        raise InputError(f"the score {value:.6g} is above the upper {above}")
    return max(0.0, (bound - value) / bound) if bound > 0 else 0.0


def doubted(bound: float, whose: str) -> str:
    """What a score above a bound means; ``whose`` says what clusterings the bound is over."""
    return (
        f"bound {bound:.6g}, which no clustering of these points can be: was it computed on the "
        f"same points, {whose}?"
    )


def family(m: int, n_clusters: int | None) -> str:
    """The clusterings that a bound is over, in words."""
    if n_clusters is None:
        return "any clustering" if m == 1 else f"clusters of {m:,} or more points"
    return f"{n_clusters:,} clusters" + ("" if m == 1 else f" of {m:,} or more points")


def certificate(certified_for: str | None) -> list[str]:
    """What a certified result says of itself, in no or one line."""
    if certified_for is None:
        return []
    whose = "the points as given" if certified_for == "points" else "these distances as they are"
    return [f"  certified: rounded outward, bounds in exact arithmetic for {whose}"]


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

    def wcre(self, asw: float) -> float:
        """Worst-case relative error of a clustering with these sizes whose average silhouette
        width is ``asw``; see `BoundResult.wcre`.

        Raises
        ------
        InputError
            If ``asw`` is no silhouette, or above the bound.
        """
        return worst_case_error(asw, self.asw, doubted(self.asw, "with clusters of these sizes"))

    def macro_wcre(self, score: float) -> float:
        """The same of the mean of the clusters' means.

        Raises
        ------
        InputError
            If ``score`` is no silhouette, or above the bound.
        """
        whose = "with clusters of these sizes"
        return worst_case_error(score, self.macro, doubted(self.macro, whose))

    @property
    def family(self) -> str:
        """The clusterings that these bounds are over, in words."""
        listed = ", ".join(f"{size:,}" for size in self.cluster_sizes[:8])
        return f"clusters of {listed}{', ...' if len(self.cluster_sizes) > 8 else ''} points"


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
    certified_for : "points", "distances" or None
        What all of these hold for in exact arithmetic: the points as given, the distances as they
        are, or not certified.
    plan : Plan
        How the job was cut.
    """

    n: int
    metric: str
    min_cluster_size: int | tuple[int, ...]
    n_clusters: int | None
    samples: Vector
    sized: SizedBounds | None
    certified_for: str | None
    plan: Plan
    _curve: Vector = field(compare=False)

    @property
    def certified(self) -> bool:
        """Whether all of these hold in exact arithmetic."""
        return self.certified_for is not None

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
        return worst_case_error(asw, bound, doubted(bound, whose))

    def __repr__(self) -> str:
        lines = [f"Silhouette upper bound of {self.n:,} points ({self.metric} distance)"]
        lines += [
            f"  {family(m, self.n_clusters)}: average silhouette width <= {at_most(self.at(m))}"
            for m in np.ravel(self.min_cluster_size).tolist()
        ]
        if self.sized is not None:
            lines.append(
                f"  {self.sized.family}: average silhouette width <= {at_most(self.sized.asw)}, "
                f"mean of cluster means <= {at_most(self.sized.macro)}"
            )
        low, middle, high = np.quantile(self.samples.reshape(self.n, -1)[:, 0], [0, 0.5, 1])
        lines.append(f"  single points: {low:.3f} to {at_most(high, 3)}, median {middle:.3f}")
        lines += certificate(self.certified_for)
        lines.append("  .at(m) and .curve() bound larger smallest clusters, .wcre(score) rates one")
        return "\n".join(lines)
