"""What a bound gives back: one data set's bounds, for every minimum cluster size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from silchunk.errors import InputError
from silchunk.kernels import bound as kernel
from silchunk.plan import Plan

Vector = np.ndarray[Any, np.dtype[np.float64]]
Sizes = int | Sequence[int]

# Scores come from elsewhere, often in single precision.
SCORE_SLACK = 1e-6


def numerical_slack(n: int) -> float:
    """How far a computed bound may lie below the exact bound of the same distances, at most.

    S and R in a quotient are sums of up to n - 1 positive float64 terms, in blocks of 256: each
    is off by less than ``(n/256 + 256) u`` relative, u = 2⁻⁵³, and the quotient by twice that and
    a few roundings more.
    """
    return (2.0 * (n / kernel.BLOCK + min(n, kernel.BLOCK)) + 8.0) * 2.0**-53


def outward(bounds: Vector, relative_error: float) -> Vector:
    """Bounds that hold for the true distances, from distances off by up to ``relative_error``.

    With δ' = δ (1 + ε), abs(ε) ≤ e, sums of the smallest distances are at least S' / (1 + e) and
    of the largest at most R' / (1 - e), so that q ≥ q' (1 - e) / (1 + e). The map is linear in the
    bound, so it may be applied to a mean of bounds.
    """
    if not relative_error:
        return bounds
    return 1.0 - (1.0 - bounds) * ((1.0 - relative_error) / (1.0 + relative_error))


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
    asw : float, or array of shape (len(min_cluster_size),)
        Upper bound of the average silhouette width for clusters of at least that size.
    samples : float64 array of shape (n,), or (n, len(min_cluster_size))
        Upper bound of each point's silhouette.
    plan : Plan
        How the job was cut.
    """

    n: int
    metric: str
    min_cluster_size: int | tuple[int, ...]
    samples: Vector
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
            If m is not in 1 … n/2: two clusters are the fewest there can be.
        """
        if np.ndim(m) != 0:
            raise InputError(f"at() takes one size; got {m!r}. curve() has all of them.")
        return float(self._curve[checked_sizes(m, self.n)[0] - 1])

    def curve(self) -> Vector:
        """Array of shape (n // 2,) whose entry m - 1 is ``at(m)``; it never increases."""
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
        score = float(asw)
        if not -1.0 <= score <= 1.0:
            raise InputError(f"an average silhouette width lies in [-1, 1]; got {asw!r}.")
        bound = float(np.ravel(self.asw)[0]) if m is None else self.at(m)
        if score > bound + SCORE_SLACK:
            raise InputError(
                f"the score {score:.6g} is above the upper bound {bound:.6g}, which no clustering "
                "of these points can be: was it computed on the same points, in the same metric "
                f"({self.metric}), and with no cluster smaller than asked for?"
            )
        return max(0.0, (bound - score) / bound) if bound > 0 else 0.0

    def __repr__(self) -> str:
        lines = [f"Silhouette upper bound of {self.n:,} points ({self.metric} distance)"]
        sizes = np.ravel(self.min_cluster_size).tolist()
        lines += [
            f"  clusters of {m:,} or more points: average silhouette width <= {self.at(m):.6f}"
            for m in sizes
        ]
        low, middle, high = np.quantile(self.samples.reshape(self.n, -1)[:, 0], [0, 0.5, 1])
        lines.append(f"  single points: {low:.3f} to {high:.3f}, median {middle:.3f}")
        lines.append("  .at(m) and .curve() bound larger smallest clusters, .wcre(score) rates one")
        return "\n".join(lines)


def checked_sizes(min_cluster_size: Sizes, n: int) -> tuple[int, ...]:
    """Minimum cluster sizes as a tuple, each in 1 … n/2."""
    sizes = []
    for m in np.ravel(np.asarray(min_cluster_size, dtype=object)):
        if isinstance(m, bool) or not isinstance(m, (int, np.integer)):
            raise InputError(f"min_cluster_size takes integers; got {m!r}.")
        if not 1 <= m <= n // 2:
            raise InputError(
                f"min_cluster_size must be from 1 to n/2 = {n // 2} for {n:,} points, since there "
                f"are two clusters at least; got {m}."
            )
        sizes.append(int(m))
    if not sizes:
        raise InputError("min_cluster_size is an empty list; give at least one size.")
    return tuple(sizes)
