"""The pass over the distances that a Dunn index takes: extremes, and the pairs they are of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from silchunk.kernels import dunn as kernel
from silchunk.panels import FromPoints, PanelSource
from silchunk.prepare import Job
from silchunk.tiles import Codes, Tile, labelled_tiles

Vector = np.ndarray[Any, np.dtype[Any]]


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
        rows, own = counted_rows(self.codes, start, stop)
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


def counted_rows(codes: Codes, start: int, stop: int) -> tuple[Vector, Vector]:
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
