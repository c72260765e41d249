"""Sums of distances to clusters along one feature, where distances are differences.

Let x_j be the coordinates of a cluster's points, w_j their weights (1 where none are given) and m
their median. The sum of distances from a point at x,

    Σ w_j |x - x_j|,

is a broken line: it is least at m and bends at each x_j, from where on its slope is the weight that
lies behind less what lies ahead. So it is known everywhere once it is known at the cluster's own
coordinates, and these sums are added up from the median outwards.

Nothing cancels, however far the points lie from the origin or from each other: lines are followed
outwards, so that all that is added to a sum is positive. Slopes are differences, of the weight W of
all and twice what lies behind: exact without weights, and with them off by a few N u of W; but
W |x - m| is at most twice the sum at x. Over d features a sum is off by less than (2 N + d + 10) u
of itself, with weights (8 N + d + 12) u, u = 2⁻⁵³ and N the number of points in the cluster, unless
it underflows; far less than that as a rule.
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
    at, first = middle + 1, places[middle]  # the median, among the bends and the coordinates
    out[first:] = _outwards(ascending[first:], bends[at:], least, rises[at:])
    mirrored = -ascending[:first][::-1], -bends[: at + 1][::-1]
    out[:first] = _outwards(*mirrored, least, rises[:at][::-1])[::-1]


def _outwards(coordinates: Block, bends: Block, least: float, rises: Block) -> Block:
    """Sums at ascending coordinates along a line that bends at ``bends``, ascending, from where it
    is ``least`` on, and that rises by so much from each bend to the next."""
    found: Block = np.interp(coordinates, bends, np.cumsum(np.append(least, rises)))
    return found
