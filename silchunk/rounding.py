"""How far computed bounds may be off, and how they are rounded outward.

A bound is 1 - q, or a mean of such. Whatever may make a computed quotient too large is a relative
error of q; it is taken off q, so that what is left of the bound's distance to 1 is a lower limit.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Decimal
from typing import Any

import numpy as np

from silchunk.kernels.bound import quotient_error
from silchunk.plan import LEAF_ROWS

Vector = np.ndarray[Any, np.dtype[np.float64]]

UNIT_ROUNDOFF = 2.0**-53


def mean_error(n: int) -> float:
    """Largest relative error of a mean over n rows: leaves of 64 in order, then a binary tree."""
    leaves = -(-n // LEAF_ROWS)
    return (min(n, LEAF_ROWS) + math.ceil(math.log2(leaves)) + 2.0) * UNIT_ROUNDOFF


def numerical_slack(n: int) -> float:
    """How far a computed bound may lie below the exact bound of the same distances, at most.

    The sum of the largest relative errors of a quotient, of 1 minus it, and of a mean; below 1e-13
    for any n. ``certify=True`` takes it off, and returns bounds in exact arithmetic.
    """
    return quotient_error(n) + mean_error(n) + UNIT_ROUNDOFF


def outward(bounds: Vector, relative_error: float) -> Vector:
    """Bounds that hold for the true distances, from distances off by up to ``relative_error``.

    With δ' = δ (1 + ε), abs(ε) ≤ e, sums of the smallest distances are at least S' / (1 + e) and
    of the largest at most R' / (1 - e), so that q ≥ q' (1 - e) / (1 + e). The map is linear in the
    bound, so it may be applied to a mean of bounds.
    """
    if not relative_error:
        return bounds
    return 1.0 - (1.0 - bounds) * ((1.0 - relative_error) / (1.0 + relative_error))


def certified(bounds: Vector, n: int, relative_error: float, mean_of: int = 0) -> Vector:
    """Bounds of rows of n distances, or means of ``mean_of`` of them, that hold in exact
    arithmetic for distances that are off by up to ``relative_error``.

    With a relative error g of the quotient, q ≥ q' (1 - g - 2e); what this formula itself rounds
    is less than the two units in the last place that are added.
    """
    loss = (quotient_error(n) + 2.0 * relative_error) * (1.0 + 1e-9)
    raised = bounds + (1.0 - bounds) * loss
    if mean_of:
        raised = raised * (1.0 + mean_error(mean_of)) + UNIT_ROUNDOFF
    return np.minimum(np.nextafter(np.nextafter(raised, 2.0), 2.0), 1.0)


def at_most(bound: float, digits: int = 6) -> str:
    """A bound in decimals, rounded up: to nearest, what is printed could be below it."""
    return str(Decimal(bound).quantize(Decimal(1).scaleb(-digits), ROUND_CEILING))
