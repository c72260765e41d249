"""Upper confidence limits of a mean from a sample without replacement.

Waudby-Smith & Ramdas, "Estimating means of bounded random variables by betting", J. R. Stat. Soc. B
86 (2024) 1-27, doi:10.1093/jrsssb/qkad009, section on sampling without replacement.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from silchunk.errors import InputError

Vector = np.ndarray[Any, np.dtype[np.float64]]

# What is known of the variance before the first draw, as they recommend: that of the widest spread.
PRIOR_MEAN, PRIOR_VARIANCE = 0.5, 0.25
# Bits of the limit.
BISECTIONS = 60


def checked_confidence(confidence: Any) -> float:
    """A probability strictly between 0 and 1.

    Raises
    ------
    InputError
    """
    if not isinstance(confidence, (int, float, np.number)) or not 0.0 < confidence < 1.0:
        raise InputError(f"confidence must be between 0 and 1, such as 0.95; got {confidence!r}.")
    return float(confidence)


def standard_error(values: Vector, n: int) -> float:
    """Of the mean of ``values`` (s,), drawn without replacement from n: ``√((1 - s/n) v / s)``."""
    count = len(values)
    if count == n:
        return 0.0
    if count < 2:
        return math.inf
    return math.sqrt((1.0 - count / n) * float(values.var(ddof=1)) / count)


def upper_limit(values: Vector, n: int, confidence: float) -> float:
    """Limit that the mean of n numbers in [0, 1] is below, with at least this confidence.

    Parameters
    ----------
    values : (s,) float64 in [0, 1]
        s of them, drawn without replacement, in the order they were drawn.
    n : int
    confidence : float
        In (0, 1).

    Notes
    -----
    Whoever bets, before each draw, that it is below its expectation if the mean were m, has a
    capital that is a martingale if it is, and reaches 1/α with probability α at most (Ville). The
    limit is the least m under which that has happened. It holds for any s and any numbers, with no
    appeal to a normal distribution. Time O(s).
    """
    count = len(values)
    if count == n:
        return float(values.mean())
    alpha = 1.0 - confidence
    drawn = np.arange(count)
    sums = np.concatenate([[0.0], np.cumsum(values)[:-1]])
    # The stake is set before each draw, from the variance of those before it.
    means = (PRIOR_MEAN + np.cumsum(values)) / (drawn + 2.0)
    variances = (PRIOR_VARIANCE + np.cumsum((values - means) ** 2)) / (drawn + 2.0)
    variances = np.concatenate([[PRIOR_VARIANCE], variances[:-1]])
    stakes = np.minimum(np.sqrt(2.0 * math.log(1.0 / alpha) / (variances * count)), 1.0)

    def refuted(mean: float) -> bool:
        """Whether betting against this mean has ever made 1/α of 1."""
        expected = (n * mean - sums) / (n - drawn)
        if (expected > 1.0).any():  # more is left than can be
            return True
        growth = 1.0 - stakes * (values - np.maximum(expected, 0.0))
        with np.errstate(divide="ignore"):
            capital = np.cumsum(np.log(np.maximum(growth, 0.0)))
        return bool(capital.max() >= -math.log(alpha))

    # What was not drawn is at least 0 and at most 1; the capital grows with the mean.
    low = math.fsum(values) / n
    high = min(1.0, (math.fsum(values) + n - count) / n)
    if not refuted(high):
        return high
    for _ in range(BISECTIONS):
        middle = (low + high) / 2.0
        if refuted(middle):
            high = middle
        else:
            low = middle
    return high
