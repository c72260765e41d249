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


def silhouettes(means: Block, within: Block, codes: Block) -> Block:
    """Reduce mean distances to silhouettes.

    Parameters
    ----------
    means : (r, K) float64, of a point to each cluster; its own is not looked at
    within : (r,) float64, of a point to the others of its own cluster; NaN where it is alone
    codes : (r,) integers, own cluster of each point; negative where it is left out

    Returns
    -------
    (r, 4) float64
        a (NaN where the point is alone), b, s and the nearest other cluster, the first of equals;
        NaN throughout for points that are left out.
    """
    points = np.arange(len(means))
    others = means.copy()
    others[points, np.maximum(codes, 0)] = np.inf
    nearest = others.argmin(axis=1)
    least = others[points, nearest]
    larger = np.maximum(within, least)
    out = np.empty((len(means), 4))
    out[:, A], out[:, B], out[:, S], out[:, NEAREST] = within, least, 0.0, nearest
    np.divide(least - within, larger, out=out[:, S], where=larger > 0.0)
    out[codes < 0] = np.nan
    return out
