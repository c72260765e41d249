"""Distances of points to the centre that each is assigned to."""

from __future__ import annotations

from silchunk.kernels.bound import Block, compiled
from silchunk.kernels.centroids import squared_distance


@compiled  # type: ignore[untyped-decorator]
def assigned_squares(block: Block, labels: Block, centres: Block, out: Block) -> None:
    """``out[i] = ‖x_i - centres[labels[i]]‖²``, by differences in float64.

    Parameters
    ----------
    block : (r, d) float32 or float64
    labels : (r,) int32 in 0 … K-1
    centres : (K, d) float64
    out : (r,) float64
    """
    for i in range(len(block)):
        out[i] = squared_distance(block[i], centres[labels[i]])
