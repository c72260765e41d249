"""Sums of distances to clusters along one feature, where distances are differences.

Let x_j be the coordinates of a cluster's points, w_j their weights (1 where none are given) and m
their median. The sum of distances from a point at x,

    Σ w_j |x - x_j|,

is a broken line: it is least at m and bends at each x_j, from where on its slope is the weight that
lies behind less what lies ahead. So it is known everywhere once it is known at the cluster's own
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


def distances_along(ascending: Block, places: Block, weights: Block | None, out: Block) -> None:
    """Sums of distances from each of many coordinates to those of a cluster.

    Parameters
    ----------
    ascending : (n,) float64, ascending
    places : (s,) integers, ascending, where the cluster's coordinates are among them; at least one
    weights : (s,) float64, those of the cluster's points, or None
    out : (n,) float64, filled in
    """
    members = ascending[places]
    behind = np.arange(len(places) + 1.0)
    if weights is not None:
        behind[1:] = np.cumsum(weights)
    middle = int(np.searchsorted(behind[1:], behind[-1] / 2))  # the lower median
    slopes = 2.0 * behind - behind[-1]
    away = np.abs(members - members[middle])
    least = (away if weights is None else away * weights).sum()

    # Lines end where the coordinates do.
    bends = np.concatenate([ascending[:1], members, ascending[-1:]])
    rises = np.abs(slopes) * np.diff(bends)
    rightwards = np.cumsum(np.append(least, rises[middle + 1 :]))
    leftwards = np.cumsum(np.append(least, rises[: middle + 1][::-1]))
    first = places[middle]
    out[first:] = np.interp(ascending[first:], bends[middle + 1 :], rightwards)
    left, bends = -ascending[:first][::-1], -bends[: middle + 2][::-1]
    out[:first] = np.interp(left, bends, leftwards)[::-1]
