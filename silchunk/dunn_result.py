"""A Dunn index, and the two pairs of points that it comes from."""

from __future__ import annotations

import math
from dataclasses import dataclass

from silchunk.errors import ZeroDiameterWarning, warn


@dataclass(frozen=True)
class DunnResult:
    """A Dunn index and its witnesses; points are rows of ``X``, counted from 0.

    Attributes
    ----------
    score : float
        ``separation / diameter``.
    separation : float
        Least distance between two points of different clusters.
    separation_points : (i, j), i < j
        Two points at that distance; of several pairs the lowest.
    diameter : float
        Largest distance between two points of one cluster.
    diameter_points : (i, j), i < j
        Two points at that distance; of several pairs the lowest.
    """

    score: float
    separation: float
    separation_points: tuple[int, int]
    diameter: float
    diameter_points: tuple[int, int]

    def __repr__(self) -> str:
        return (
            f"Dunn index {self.score:.6g}\n"
            f"  separation {self.separation:.6g}, from point {self.separation_points[0]:,} to "
            f"point {self.separation_points[1]:,} of another cluster\n"
            f"  diameter   {self.diameter:.6g}, from point {self.diameter_points[0]:,} to "
            f"point {self.diameter_points[1]:,} of the same cluster"
        )


def ratio(separation: float, diameter: float) -> float:
    """``separation / diameter``; over 0 it is inf or, of 0, 0, with a warning."""
    if diameter > 0:
        return separation / diameter
    score = math.inf if separation > 0 else 0.0
    warn(
        f"all clusters have diameter 0, and the separation is {separation:.6g}: the index is "
        f"taken as {score:g}. Are there clusters of more than equal points?",
        ZeroDiameterWarning,
    )
    return score
