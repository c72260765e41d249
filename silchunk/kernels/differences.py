"""Sums of squared differences in vector registers: Euclidean distance without a matrix product.

``Σ (x - y)²`` by differences never cancels, so it may run in the precision of the points, where
one instruction handles twice as many float32 values as a float64 product does. The innermost loop
is `silchunk.kernels.blocks.fill_squares`.

Every sum is formed by the same operations in the same order, whatever its place in a tile: the
distance from x to y has the bits of that from y to x, in any tile.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from silchunk.kernels.blocks import ROWS, block_columns, fill_squares
from silchunk.kernels.distance import (
    FLOAT32_FLOOR,
    SUMMED_FEATURES,
    Block,
    compiled,
    difference_norm,
)
from silchunk.kernels.ranking import transpose_square
from silchunk.kernels.vectors import LANES


def relative_error(n_features: int, dtype: np.dtype[Any], squared: bool) -> float:
    """Largest relative error of a distance, or of a squared one, formed in ``dtype``.

    A difference is off by u, its square by 2u and one more where the processor has no fused
    multiply-add; sums of positive terms by u for each addition; the root halves all of that and
    adds its own.
    """
    roundings = 4 + SUMMED_FEATURES + -(-n_features // SUMMED_FEATURES)
    unit_roundoff = float(np.finfo(dtype).eps) / 2
    return (roundings if squared else roundings / 2 + 1) * unit_roundoff


@compiled  # type: ignore[untyped-decorator]
def square_sums(rows: Block, columns: Block, sums: Block) -> None:
    """``sums`` (r, c) = Σ (x - y)² of rows (r, d) and columns (d, at least c), all C-contiguous.

    r is a multiple of ROWS, c of COLUMNS, d at least 1.
    """
    for i in range(0, rows.shape[0], ROWS):
        for j in range(0, sums.shape[1], block_columns(columns)):
            fill_squares(rows, i, columns, j, sums, i, j)


@compiled  # type: ignore[untyped-decorator]
def scale_transposed(block: Block, anchor: Block, scale: float, values: Block) -> None:
    """``values`` (d, c) = (block (c, d) - anchor)·scale, transposed; columns past c are zero.

    ``anchor`` is zero but for features that are constant: every other feature spans at least a
    unit in the last place of its values, so that ``scale`` cannot take these out of range. All are
    of one dtype and C-contiguous.
    """
    factor = values.dtype.type(scale)
    points, features = block.shape[0] // LANES * LANES, block.shape[1] // LANES * LANES
    for j in range(0, points, LANES):
        for k in range(0, features, LANES):
            transpose_square(block, j, k, anchor, values, j)
    for k in range(values.shape[0]):
        line = values[k]
        for j in range(points if k < features else 0, block.shape[0]):
            line[j] = block[j, k] - anchor[k]
        for j in range(line.shape[0]):
            line[j] *= factor
        line[block.shape[0] :] = 0


@compiled  # type: ignore[untyped-decorator]
def finish_sums(
    sums: Block,
    rows: Block,
    columns: Block,
    scale: float,
    squared: bool,
    panel: Block,
    first: int,
) -> None:
    """Write the distances of one tile into ``panel`` from column ``first`` on.

    ``sums`` (at least r, c) are of scaled points, ``rows`` (r, d) and ``columns`` (c, d) the points
    as given, from which sums that have lost digits to underflow are formed again.
    """
    unscale = 1.0 / scale
    factor = panel.dtype.type(unscale)
    factor_squared = unscale * unscale
    floor = sums.dtype.type(FLOAT32_FLOOR)
    for i in range(rows.shape[0]):
        out = panel[i, first : first + columns.shape[0]]
        close = 0
        if squared:
            for j in range(columns.shape[0]):
                close += sums[i, j] < floor
                out[j] = sums[i, j] * factor_squared
        else:
            for j in range(columns.shape[0]):
                close += sums[i, j] < floor
                out[j] = panel.dtype.type(math.sqrt(sums[i, j])) * factor
        if close:
            for j in range(columns.shape[0]):
                if sums[i, j] < floor:
                    length = difference_norm(rows[i], columns[j], scale) * unscale
                    out[j] = length * length if squared else length
