"""Distance tiles: the fused finish of a matrix product, direct differences, and L1 / L∞ loops.

A tile is the block of distances between a few rows and a few columns. All arithmetic is in
float64, whatever the dtype of the points and of the result. A tile is written into rows of a
panel from column ``first`` on; a slice of columns would not be contiguous, and its loops not be
compiled to vector instructions.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

Block = np.ndarray[Any, np.dtype[Any]]

# Squared distances below this, in units of the scaled data, would underflow in float32.
FLOAT32_FLOOR = 1e-30
OVERFLOW_CEILING = 1e300
# A sum of squares below this has lost bits to underflow and is formed again from scaled terms.
UNDERFLOW_FLOOR = 1e-280
# Features summed at a time where a proven error is wanted: each such sum is rounded this often, and
# their sum once for each of them.
SUMMED_FEATURES = 16

# Kernels run inside panel tasks, several at once.
compiled = numba.njit(cache=True, nogil=True, error_model="numpy")


def cancellation_threshold(n_features: int, relative_error: float) -> float:
    """Least ratio of squared distance to squared norms that the matrix product resolves.

    The two norms and the product in ``‖x‖² + ‖y‖² - 2x·y`` are sums of d terms, so it carries an
    absolute error of up to ``2 (d + 2) u (‖x‖² + ‖y‖²)``, u = 2⁻⁵³, half of which shows in the
    distance. For many features ``8 √d`` stands for d, the probabilistic bound of Higham & Mary
    (2019), doi:10.1137/18M1226312, at eight standard deviations. Pairs below the returned ratio
    are recomputed by direct differences.
    """
    unit_roundoff = 2.0**-53
    effective_length = min(float(n_features), 8.0 * math.sqrt(n_features))
    return (effective_length + 2.0) * unit_roundoff / relative_error


@compiled  # type: ignore[untyped-decorator]
def centre_transposed(
    block: Block, centre: Block, scale: float, values: Block, norms: Block
) -> None:
    """``values`` (d, c) = scaled and centred ``block`` (c, d), transposed; ``norms`` (c,) squared.

    A few points at a time, so that each write fills a cache line.
    """
    for first in range(0, block.shape[0], 8):
        last = min(first + 8, block.shape[0])
        norms[first:last] = 0.0
        for k in range(block.shape[1]):
            middle = centre[k] * scale
            for j in range(first, last):
                value = np.float64(block[j, k]) * scale - middle
                values[k, j] = value
                norms[j] += value * value


@compiled  # type: ignore[untyped-decorator]
def difference_norm(x: Block, y: Block, scale: float) -> float:
    """``√(Σ ((x - y)·scale)²)`` in float64, exact in range down to the least float64."""
    total = largest = 0.0
    for first in range(0, x.shape[0], SUMMED_FEATURES):
        part = 0.0
        for k in range(first, min(first + SUMMED_FEATURES, x.shape[0])):
            difference = (np.float64(x[k]) - np.float64(y[k])) * scale
            part += difference * difference
            largest = max(largest, abs(difference))
        total += part
    if total >= UNDERFLOW_FLOOR or largest == 0.0:
        return math.sqrt(total)
    total = 0.0
    for first in range(0, x.shape[0], SUMMED_FEATURES):
        part = 0.0
        for k in range(first, min(first + SUMMED_FEATURES, x.shape[0])):
            difference = (np.float64(x[k]) - np.float64(y[k])) * scale / largest
            part += difference * difference
        total += part
    return math.sqrt(total) * largest


@compiled  # type: ignore[untyped-decorator]
def small_angle(x: Block, y: Block) -> float:
    """``1 - cos(x, y)`` of nearly parallel points, without its cancellation.

    With e = y - x and s = x + y, let r be e less its part along s. Then
    ``1 - cos = ‖r‖² ‖s‖² / (4 ‖x‖ ‖y‖ · (x·y + ‖x‖ ‖y‖))``, all of whose terms are sums of
    positive ones, and r is as exact as e, which is formed from the points as given.
    """
    xx = yy = 0.0
    for k in range(x.shape[0]):
        xx += x[k] * x[k]
        yy += y[k] * y[k]
    # Lengths within a factor of two of each other; a power of two changes no digit.
    _, exponent = math.frexp(math.sqrt(xx) / math.sqrt(yy) * math.sqrt(0.5))
    factor = math.ldexp(1.0, exponent)
    xy = es = ss = 0.0
    for k in range(x.shape[0]):
        scaled = y[k] * factor
        s = x[k] + scaled
        xy += x[k] * scaled
        es += (scaled - x[k]) * s
        ss += s * s
    along = es / ss
    rr = 0.0
    for k in range(x.shape[0]):
        scaled = y[k] * factor
        r = (scaled - x[k]) - along * (x[k] + scaled)
        rr += r * r
    norms = math.sqrt(xx) * math.sqrt(yy) * factor
    return rr * ss / (4.0 * norms * (xy + norms))


@compiled  # type: ignore[untyped-decorator]
def finish_euclidean(
    product: Block,
    row_norms: Block,
    column_norms: Block,
    rows: Block,
    columns: Block,
    scale: float,
    unscale: float,
    threshold: float,
    panel: Block,
    first: int,
) -> None:
    """Turn the products ``x·y`` (r, c) of one tile into distances.

    ``product``, ``row_norms`` and ``column_norms`` are of centred and scaled points, ``rows`` and
    ``columns`` the points as given. A row's close pairs are counted in the vectorised loop and
    recomputed in a second one, so that a row without any costs nothing more.
    """
    zero = panel.dtype.type(0)
    factor = panel.dtype.type(unscale)
    for i in range(product.shape[0]):
        out = panel[i, first : first + product.shape[1]]
        norm = row_norms[i]
        close = 0
        for j in range(product.shape[1]):
            norms = norm + column_norms[j]
            squared = norms - 2.0 * product[i, j]
            close += squared - threshold * norms < FLOAT32_FLOOR
            out[j] = np.sqrt(max(panel.dtype.type(squared), zero)) * factor
        if close:
            for j in range(product.shape[1]):
                norms = norm + column_norms[j]
                squared = norms - 2.0 * product[i, j]
                if squared - threshold * norms < FLOAT32_FLOOR:
                    out[j] = difference_norm(rows[i], columns[j], scale) * unscale


@compiled  # type: ignore[untyped-decorator]
def finish_sqeuclidean(
    product: Block,
    row_norms: Block,
    column_norms: Block,
    rows: Block,
    columns: Block,
    scale: float,
    unscale: float,
    threshold: float,
    panel: Block,
    first: int,
) -> None:
    """As `finish_euclidean`, for squared distances."""
    factor = unscale * unscale
    for i in range(product.shape[0]):
        out = panel[i, first : first + product.shape[1]]
        norm = row_norms[i]
        close = 0
        for j in range(product.shape[1]):
            norms = norm + column_norms[j]
            squared = norms - 2.0 * product[i, j]
            close += squared - threshold * norms < FLOAT32_FLOOR
            out[j] = max(squared, 0.0) * factor
        if close:
            for j in range(product.shape[1]):
                norms = norm + column_norms[j]
                squared = norms - 2.0 * product[i, j]
                if squared - threshold * norms < FLOAT32_FLOOR:
                    length = difference_norm(rows[i], columns[j], scale) * unscale
                    out[j] = length * length


@compiled  # type: ignore[untyped-decorator]
def finish_cosine(
    product: Block, rows: Block, columns: Block, threshold: float, panel: Block, first: int
) -> None:
    """Turn the products of normalised points into cosine distances ``1 - x·y`` in [0, 2].

    ``product`` is of normalised points, ``rows`` and ``columns`` the points themselves; where the
    difference cancels, `small_angle` takes these.
    """
    for i in range(product.shape[0]):
        out = panel[i, first : first + product.shape[1]]
        close = 0
        for j in range(product.shape[1]):
            distance = 1.0 - product[i, j]
            close += distance < threshold
            out[j] = min(max(distance, 0.0), 2.0)
        if close:
            for j in range(product.shape[1]):
                if 1.0 - product[i, j] < threshold:
                    out[j] = small_angle(rows[i], columns[j])


@compiled  # type: ignore[untyped-decorator]
def manhattan_tile(
    rows: Block, columns_transposed: Block, scratch: Block, panel: Block, first: int
) -> None:
    """``Σ |x - y|``: rows (r, d), columns (d, c), scratch (c,) float64, panel (r, n)."""
    for i in range(rows.shape[0]):
        out = panel[i, first : first + scratch.shape[0]]
        scratch[:] = 0.0
        for k in range(rows.shape[1]):
            x = rows[i, k]
            for j in range(scratch.shape[0]):
                scratch[j] += abs(x - columns_transposed[k, j])
        for j in range(scratch.shape[0]):
            out[j] = scratch[j]


@compiled  # type: ignore[untyped-decorator]
def chebyshev_tile(
    rows: Block, columns_transposed: Block, scratch: Block, panel: Block, first: int
) -> None:
    """``max |x - y|``: shapes as in `manhattan_tile`."""
    for i in range(rows.shape[0]):
        out = panel[i, first : first + scratch.shape[0]]
        scratch[:] = 0.0
        for k in range(rows.shape[1]):
            x = rows[i, k]
            for j in range(scratch.shape[0]):
                scratch[j] = max(scratch[j], abs(x - columns_transposed[k, j]))
        for j in range(scratch.shape[0]):
            out[j] = scratch[j]


@compiled  # type: ignore[untyped-decorator]
def nan_euclidean_tile(
    rows: Block, columns_transposed: Block, scratch: Block, panel: Block, first: int
) -> None:
    """``√(d / m · Σ (x - y)²)`` over the m coordinates that both points have; NaN if there is none.

    As scikit-learn defines it (Dixon 1979, doi:10.1109/TSMC.1979.4310090).
    """
    n_features = rows.shape[1]
    for i in range(rows.shape[0]):
        out = panel[i, first : first + scratch.shape[0]]
        for j in range(scratch.shape[0]):
            total = 0.0
            largest = 0.0
            present = 0
            for k in range(n_features):
                difference = np.float64(rows[i, k]) - np.float64(columns_transposed[k, j])
                if difference == difference:
                    total += difference * difference
                    largest = max(largest, abs(difference))
                    present += 1
            if present and not UNDERFLOW_FLOOR <= total <= OVERFLOW_CEILING and largest > 0.0:
                total = 0.0
                for k in range(n_features):
                    difference = np.float64(rows[i, k]) - np.float64(columns_transposed[k, j])
                    if difference == difference:
                        total += (difference / largest) * (difference / largest)
            else:
                largest = 1.0
            out[j] = largest * math.sqrt(total * n_features / present) if present else np.nan


COORDINATE_TILES = {
    "manhattan": manhattan_tile,
    "chebyshev": chebyshev_tile,
    "nan_euclidean": nan_euclidean_tile,
}
FINISHES = {"euclidean": finish_euclidean, "sqeuclidean": finish_sqeuclidean}
