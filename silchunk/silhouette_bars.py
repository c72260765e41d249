"""What a picture shows of the silhouettes of points: few of them, in order, cluster by cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from silchunk.bound_result import BoundResult
from silchunk.errors import InputError
from silchunk.silhouette_result import SilhouetteTable

Vector = np.ndarray[Any, np.dtype[Any]]

MOST_CLUSTERS = 200


@dataclass(frozen=True)
class Bars:
    """What is drawn of one cluster.

    Attributes
    ----------
    label : the cluster's
    size : int
        Number of its points that were looked at.
    values : (k,) float64
        Silhouettes, descending: of all points, or of evenly spaced ranks.
    envelope : (k,) float64 or None
        Upper bounds, of the same ranks.
    """

    label: Any
    size: int
    values: Vector
    envelope: Vector | None


def aligned(bounds: BoundResult | Vector | None, table: SilhouetteTable) -> Vector | None:
    """(m,) upper bound of each point that the table has a row for; NaN where it was left out."""
    if bounds is None:
        return None
    values = bounds.samples if isinstance(bounds, BoundResult) else np.asarray(bounds, float)
    values = values.reshape(len(values), -1)[:, 0]
    codes = table._codes()
    kept = np.flatnonzero(codes >= 0)
    if table.points is not None and len(values) == table.n:
        return values[table.points]
    if len(values) == len(codes):
        return values
    if len(values) != len(kept):
        raise InputError(
            f"bounds are of {len(values):,} points; the silhouettes are of {len(kept):,}."
        )
    spread = np.full(len(codes), np.nan)
    spread[kept] = values
    return spread


def bars_of(table: SilhouetteTable, bounds: Vector | None, most_points: int) -> Iterator[Bars]:
    """What to draw of the largest clusters, in the order of their labels.

    Parameters
    ----------
    table : SilhouetteTable
    bounds : (m,) array or None
        Upper bounds of the points, as from `aligned`.
    most_points : int
        Above so many, silhouettes are those of evenly spaced ranks in each cluster.

    Notes
    -----
    O(m log m) time; holds the points of few clusters at once.
    """
    own = table._codes()
    looked_at = np.bincount(own[own >= 0], minlength=table.n_clusters)
    largest = np.argsort(-looked_at, kind="stable")[:MOST_CLUSTERS]
    chosen = np.zeros(table.n_clusters, bool)
    chosen[largest] = looked_at[largest] > 0
    stride = max(1.0, looked_at[chosen].sum() / most_points)
    for first, last in table._groups():
        if not chosen[first:last].any():
            continue
        codes, values, _ = table._of_clusters(first, last)
        edges = np.r_[0, np.cumsum(looked_at[first:last])]
        values = values[np.lexsort((-values, codes))]
        upper = None
        if bounds is not None:
            upper = bounds[(own >= first) & (own < last)]
            upper = upper[np.lexsort((-upper, codes))]
        for cluster in np.flatnonzero(chosen[first:last]) + first:
            size = int(looked_at[cluster])
            n_ranks = max(1, round(size / stride))
            ranks = ((np.arange(n_ranks) + 0.5) * size / n_ranks).astype(np.int64)
            ranks += edges[cluster - first]
            yield Bars(
                table._labels.classes[cluster],
                size,
                values[ranks],
                None if upper is None else upper[ranks],
            )
