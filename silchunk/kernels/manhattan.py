"""Sums of distances to clusters along one feature, where distances are differences.

Let x_j be the coordinates of a cluster's points, w_j their weights (1 where none are given) and m
their median. The sum of distances from a point at x,

    Σ w_j |x - x_j|,

is a broken line: it is least at m and bends at each x_j, from where on its slope is the weight it
has passed less what lies ahead. So it is known everywhere once it is known at the cluster's own
coordinates, and these sums are added up from the median outwards.

All that is added is positive, and lines are followed outwards: nothing cancels, however far the
points lie from the origin or from each other. Over d features a sum is off by less than
(2 N + d + 10) u of itself, with weights (8 N + d + 12) u, u = 2⁻⁵³ and N the number of points in
the cluster; far less than that as a rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Block = np.ndarray[Any, np.dtype[Any]]


def distances_along(ascending: Block, members: Block, weights: Block | None, out: Block) -> None:
    """Sums of distances from each of many coordinates to those of a cluster.

    Parameters
    ----------
    ascending : (n,) float64, ascending
    members : (s,) float64, ascending; at least one
    weights : (s,) float64, those of ``members``, or None
    out : (n,) float64, filled in
    """
    passed = np.arange(1.0, len(members) + 1) if weights is None else np.cumsum(weights)
    total = passed[-1]
    middle = int(np.searchsorted(passed, total / 2))  # the lower median
    median = members[middle]
    away = np.abs(members - median)
    least = float((away if weights is None else away * weights).sum())
    before = np.concatenate([[0.0], passed[:-1]])

    first = int(np.searchsorted(ascending, median))
    right, left = ascending[first:], -ascending[:first][::-1]
    slopes = 2.0 * passed[middle:] - total
    out[first:] = _outwards(right, members[middle:], slopes, least)
    slopes = total - 2.0 * before[: middle + 1][::-1]
    out[:first] = _outwards(left, -members[: middle + 1][::-1], slopes, least)[::-1]


def _outwards(places: Block, members: Block, slopes: Block, least: float) -> Block:
    """Sums of distances on one side of the median, the first of ``members``.

    Parameters
    ----------
    places : (m,) float64, ascending, none of them before the median
    members : (s,) float64, ascending
    slopes : (s,) float64, behind each of the members
    least : float
        The sum at the median.
    """
    if not len(places):
        return places
    bends = np.append(members, max(places[-1], members[-1]))
    sums = np.cumsum(np.concatenate([[least], slopes * np.diff(bends)]))
    found: Block = np.interp(places, bends, sums)
    return found
