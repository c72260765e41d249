"""Silhouettes from mean distances (Rousseeuw 1987, doi:10.1016/0377-0427(87)90125-7).

Of a point i in cluster C, a(i) is the mean distance to the others of C, b(i) the least mean
distance to the points of another cluster, and s(i) = (b - a) / max(a, b); s = 0 for a point alone
in its cluster, and where a = b = 0. A weight w counts as w copies of a point, of which the w - 1
others are at distance 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Block = np.ndarray[Any, np.dtype[Any]]

# Columns of a result.
A, B, S, NEAREST = range(4)


def silhouettes(means: Block, codes: Block, weights: Block, out: Block) -> None:
    """Reduce mean distances to silhouettes.

    Parameters
    ----------
    means : (r, K) float64, of a point to each cluster; to the others of its own
        Overwritten.
    codes : (r,) int64, own cluster of each point; negative where it is left out
    weights : (K,) float64, number of points of each cluster, or sum of their weights
    out : (r, 4) float64, filled with a (NaN where the point is alone), b, s and the nearest other
        cluster, the first of equals; NaN throughout for points that are left out
    """
    points = np.arange(len(means))
    own = np.maximum(codes, 0)
    within = means[points, own]
    means[points, own] = np.inf
    nearest = means.argmin(axis=1)
    least = means[points, nearest]
    larger = np.maximum(within, least)
    together = weights[own] > 1.0
    out[:, A] = np.where(together, within, np.nan)
    out[:, B] = least
    out[:, S] = 0.0
    np.divide(least - within, larger, out=out[:, S], where=together & (larger > 0.0))
    out[:, NEAREST] = nearest
    out[codes < 0] = np.nan


def empty_result(n: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Room for the silhouettes of n points, NaN for those that are left out."""
    return np.full((n, 4), np.nan)
