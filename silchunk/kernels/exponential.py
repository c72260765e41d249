"""The exponential function of many values at once: a call of the C library's for each of them would
take a good part of the time of a pass."""

from __future__ import annotations

import math

import numba
import numpy as np

from silchunk.kernels.distance import Block

contracted = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})

# ln 2 in two parts: a whole number of up to eleven bits times the first one is exact.
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
PER_LN2 = 1 / math.log(2)
# Added to a number below 2⁵¹, it leaves no digits after the point.
ROUNDER = 1.5 * 2.0**52
# 1 / k! of the series: what is left out is below 2⁻⁵⁷ of its sum for |r| ≤ ln 2 / 2.
C3, C4, C5, C6, C7, C8, C9, C10, C11, C12, C13 = (1 / math.factorial(k) for k in range(3, 14))
LARGEST = 708.0
MANTISSA_BITS, EXPONENT_BIAS = 52, 1023


@contracted  # type: ignore[untyped-decorator]
def exponentials(values: Block, factor: float, results: Block) -> None:
    """``results[i] = exp(factor · values[i])``, off by at most a unit in the last place.

    Both are (r,) float64, and no product is beyond ±LARGEST. Loops without a call run in vectors:
    exp(x) = 2^m · exp(x - m ln 2), the first factor by its bits and the second by its series.
    """
    bits = np.empty(values.shape[0], np.int64)
    for i in range(values.shape[0]):
        x = factor * values[i]
        whole = (x * PER_LN2 + ROUNDER) - ROUNDER
        bits[i] = (np.int64(whole) + EXPONENT_BIAS) << MANTISSA_BITS
        rest = (x - whole * LN2_HIGH) - whole * LN2_LOW
        # By hand, for a loop over the terms would not be taken apart.
        high = ((C13 * rest + C12) * rest + C11) * rest + C10
        high = ((high * rest + C9) * rest + C8) * rest + C7
        high = ((high * rest + C6) * rest + C5) * rest + C4
        results[i] = (((high * rest + C3) * rest + 0.5) * rest + 1.0) * rest + 1.0
    powers = bits.view(np.float64)
    for i in range(values.shape[0]):
        results[i] *= powers[i]
