"""What a Dunn index comes from: two distances, the points they are of, and how they are found."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from silchunk.errors import ZeroDiameterWarning, warn
from silchunk.kernels import dunn as kernel
from silchunk.panels import FromPoints, PanelSource
from silchunk.prepare import Job
from silchunk.tiles import Codes, Tile, labelled_tiles

Vector = np.ndarray[Any, np.dtype[Any]]


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


class Witnessed(NamedTuple):
    """A distance and the two points it is of, the lower one first."""

    value: float
    points: tuple[int, int]


@dataclass(frozen=True)
class _FindExtremes:
    """Panel task: least distance between clusters and largest one within, of a panel's rows."""

    panels: PanelSource
    codes: Codes

    def __call__(self, start: int, stop: int) -> list[Witnessed]:
        rows, own = kept_rows(self.codes, start, stop)
        values = np.array([np.inf, -1.0], self.panels.dtype)
        pairs = np.zeros((2, 2), np.int64)
        for tile in panel_tiles(self.panels, self.codes, rows, start):
            part, distances, columns, clusters, edges = tile
            kernel.update_extremes(
                distances, rows[part], own[part], columns, clusters, edges, values, pairs
            )
        return [
            Witnessed(value, (i, j))
            for value, (i, j) in zip(values.tolist(), pairs.tolist(), strict=True)
        ]


def extremes(job: Job, codes: Codes) -> tuple[Witnessed, Witnessed]:
    """Least distance between clusters, largest one within."""
    found = [Witnessed(np.inf, (0, 0)), Witnessed(-1.0, (0, 0))]

    def combine(_: int, of_panel: list[Witnessed]) -> None:
        found[0] = min(found[0], of_panel[0])
        found[1] = min(found[1], of_panel[1], key=lambda pair: (-pair.value, pair.points))

    job.map(_FindExtremes(job.panels, codes), combine, "Dunn index")
    return found[0], found[1]


def kept_rows(codes: Codes, start: int, stop: int) -> tuple[Vector, Vector]:
    """(r,), (r,) int64: the points of a range that count, and their clusters."""
    own = codes[start:stop].astype(np.int64)
    kept = np.flatnonzero(own >= 0)
    return start + kept, own[kept]


def panel_tiles(
    panels: PanelSource, codes: Codes, rows: Vector, start: int, *, once: bool = True
) -> Iterable[Tile]:
    """Tiles of a panel that begins at ``start``; ``once`` if one look at each pair is enough.

    A matrix may differ a little from its transpose, and all of it counts.
    """
    if not len(rows):
        return ()
    first = start if once and isinstance(panels, FromPoints) else 0
    return labelled_tiles(panels, codes, rows, first)
