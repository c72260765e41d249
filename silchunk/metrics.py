"""The metrics: one table from name to the class that fills tiles of distances.

To add a metric of our own, write its kernel in ``kernels/distance.py``, a class with the
interface of `Metric` in ``metric_kinds.py``, and its line in `CORE_METRICS`. Every other name that
scikit-learn's ``pairwise_distances`` knows, and any callable, goes through `PairwiseMetric`.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from silchunk.errors import InputError, SlowMetricWarning, warn
from silchunk.kernels import distance as kernel
from silchunk.metric_kinds import (
    SCIPY_METRICS,
    CoordinateMetric,
    CosineMetric,
    DifferenceMetric,
    EuclideanMetric,
    Frame,
    Metric,
    PairwiseMetric,
)
from silchunk.rows import Block, RowSource

# Pairs of points on which a callable is tried before any work.
CALLABLE_PAIRS = 32

# What is promised of every distance in float32, its rounding included.
PROMISED_FLOAT32_ERROR = 1e-6

ALIASES = {"l2": "euclidean", "l1": "manhattan", "cityblock": "manhattan"}


class _Wanted(NamedTuple):
    """What a core metric is made for."""

    name: str
    frame: Frame
    source: np.dtype[Any]  # of the points
    out: np.dtype[Any]  # of the distances
    proven: bool  # whether the error of a distance has to be a proven one

    @property
    def computed_in(self) -> np.dtype[Any]:
        """Dtype in which differences of coordinates are formed."""
        both_single = self.source == np.float32 and self.out == np.float32
        return np.dtype(np.float32 if both_single else np.float64)


def _euclidean(wanted: _Wanted) -> Metric:
    name, frame, _, out, proven = wanted
    # The scale and its inverse have to be normal numbers of the result's dtype.
    low, high = (-100, 120) if out == np.float32 else (-1000, 1000)
    frame = frame._replace(exponent=min(max(frame.exponent, low), high))
    direct = DifferenceMetric(name, frame, wanted.computed_in, out)
    if direct.dtype == np.float32 and direct.relative_error <= PROMISED_FLOAT32_ERROR:
        return direct
    if proven:
        return DifferenceMetric(name, frame, np.dtype(np.float64), out)
    threshold = kernel.cancellation_threshold(frame.centre.size, _relative_error(out))
    return EuclideanMetric(name, frame, threshold)


def _cosine(wanted: _Wanted) -> Metric:
    n_features = wanted.frame.centre.size
    threshold = 2.0 * kernel.cancellation_threshold(n_features, _relative_error(wanted.out))
    return CosineMetric(wanted.name, threshold)


def _coordinate(wanted: _Wanted) -> Metric:
    n_features = wanted.frame.centre.size
    return CoordinateMetric(wanted.name, wanted.computed_in, wanted.out, n_features)


CORE_METRICS: dict[str, Callable[[_Wanted], Metric]] = {
    "euclidean": _euclidean,
    "sqeuclidean": _euclidean,
    "cosine": _cosine,
    "manhattan": _coordinate,
    "chebyshev": _coordinate,
    "nan_euclidean": _coordinate,
}


def _relative_error(dtype: np.dtype[Any]) -> float:
    """Error that the product may bring in; the promise is 1e-6 and 1e-12, rounding included."""
    return 4e-7 if dtype == np.float32 else 5e-13


def largest_distance(name: str, extent: Block) -> float:
    """Upper limit of a core metric's values for points in a box of this extent."""
    with np.errstate(over="ignore"):
        if name == "manhattan":
            return float(extent.sum())
        if name == "chebyshev":
            return float(extent.max())
        if name == "cosine":
            return 2.0
        if name == "nan_euclidean":  # what is missing counts as much as what is there
            return math.hypot(*extent.tolist()) * math.sqrt(extent.size)
        diagonal = math.hypot(*extent.tolist())
        return diagonal * diagonal if name == "sqeuclidean" else diagonal


def known_names() -> list[str]:
    """Every metric name, in alphabetical order."""
    from sklearn.metrics.pairwise import _VALID_METRICS

    names = {*_VALID_METRICS, *CORE_METRICS, *ALIASES, *SCIPY_METRICS}
    # Names that scikit-learn lists and scipy has dropped.
    return sorted(names - {"precomputed", "matching", "wminkowski"})


def canonical_name(metric: str | Callable[..., float]) -> str:
    """The name a metric goes by here; unknown names raise with the nearest known ones."""
    if callable(metric):
        return getattr(metric, "__name__", type(metric).__name__)
    if not isinstance(metric, str):
        raise InputError(f"metric must be a name or a callable, not {metric!r}.")
    name = ALIASES.get(metric, metric)
    if name in CORE_METRICS or name == "precomputed":
        return name
    known = known_names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3)
        hint = f"Did you mean {' or '.join(map(repr, near))}? " if near else ""
        raise InputError(f"unknown metric {metric!r}. {hint}Known: {', '.join(known)}.")
    return name


def allows_missing(name: str) -> bool:
    """Whether NaN is a missing coordinate to this metric rather than an error."""
    return name == "nan_euclidean"


def refuse_out_of_range(
    largest: float, dtype: np.dtype[Any], what: str, *, n: int, proven: bool = False
) -> None:
    """Refuse distances that the dtype cannot hold with its precision, or n of them not be summed.

    Raises
    ------
    InputError
        If the largest is beyond the dtype's range, or too small for its digits; for a proven
        error, also if others that are not negligible beside it could be.
    """
    # A quotient is formed of sums of n distances, times n.
    summable = float(np.finfo(np.float64).max) / (4.0 * n * n)
    info = np.finfo(dtype)
    # Below the normal numbers digits are lost one by one; six are left here.
    smallest = float(info.tiny) * 2.0**60 if proven else float(info.smallest_subnormal) * 2.0**20
    if largest > min(float(info.max), summable) or 0.0 < largest < smallest:
        raise InputError(
            f"{what} up to {largest:.3g}, out of the range of {dtype}. "
            + ('Pass dtype="float64", or rescale' if dtype == np.float32 else "Please rescale")
            + ": silhouettes and their bounds do not depend on the unit."
        )


def make_metric(
    metric: str | Callable[..., float],
    params: Mapping[str, Any],
    frame: Frame,
    source: RowSource,
    dtype: np.dtype[Any],
    *,
    proven: bool = False,
) -> Metric:
    """Build the metric for points that lie in ``frame``; distances are wanted in ``dtype``.

    ``proven`` prefers a kernel whose error is proven over a faster one, where there is one.
    """
    name = canonical_name(metric)
    if name in CORE_METRICS and not callable(metric):
        if params:
            raise InputError(f"metric {name!r} takes no metric_params; got {sorted(params)}.")
        largest = largest_distance(name, frame.extent)
        what = f"{name} distances of these points are"
        refuse_out_of_range(largest, dtype, what, n=source.shape[0], proven=proven)
        source_dtype = np.dtype(np.float32 if source.dtype == np.float32 else np.float64)
        return CORE_METRICS[name](_Wanted(name, frame, source_dtype, dtype, proven))
    from sklearn.metrics.pairwise import PAIRWISE_BOOLEAN_FUNCTIONS

    function = metric if callable(metric) else name
    boolean = not callable(metric) and name in PAIRWISE_BOOLEAN_FUNCTIONS
    return PairwiseMetric(name, function, dict(params), boolean)


def check_callable(
    metric: Callable[..., float], params: Mapping[str, Any], points: RowSource
) -> None:
    """Try a callable on a few pairs: a distance is a finite number ≥ 0, symmetric, 0 to itself.

    Raises
    ------
    InputError
        With the first pair that it fails on.
    """
    name = canonical_name(metric)
    warn(
        f"the callable metric {name!r} runs serially in Python for every pair of "
        f"{points.shape[0]:,} points, whatever the number of threads. A metric given by name is "
        f"far faster; {', '.join(CORE_METRICS)} are the fastest.",
        SlowMetricWarning,
    )
    pairs = np.random.default_rng(0).integers(points.shape[0], size=(CALLABLE_PAIRS, 2))

    def measure(a: int, b: int) -> float:
        value: Any = metric(points.rows(a, a + 1)[0], points.rows(b, b + 1)[0], **params)
        try:
            return float(value)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"the callable metric {name!r} gave {value!r} for points {a} and {b}; a distance "
                "is one number."
            ) from error

    for i, j in pairs.tolist():
        values = {pair: measure(*pair) for pair in ((i, j), (j, i), (i, i))}
        for (a, b), value in values.items():
            if not (math.isfinite(value) and value >= -1e-12):
                raise InputError(
                    f"the callable metric {name!r} gave {value} for points {a} and {b}; "
                    "distances must be finite and not negative."
                )
        there, back, itself = values[i, j], values[j, i], values[i, i]
        scale = max(abs(there), abs(back))
        if abs(there - back) > 1e-6 * scale:
            raise InputError(
                f"the callable metric {name!r} is not symmetric: {there:g} from point {i} to "
                f"{j}, {back:g} back. Silhouettes need symmetric distances; for a divergence, "
                "use a symmetric form of it."
            )
        if i != j and itself > 1e-6 * scale and scale > 0:
            raise InputError(
                f"the callable metric {name!r} gave {itself:g} from point {i} to itself, not 0."
            )


def try_metric(metric: PairwiseMetric, points: RowSource) -> None:
    """Compute one distance, so that wrong parameters show before any work.

    Raises
    ------
    InputError
        With the message of scikit-learn or scipy.
    """
    row = metric.rows(points.rows(0, 1))
    try:
        metric.fill(row, row, np.empty(0), np.empty((1, 1)), 0)
    except InputError:
        raise
    except (ValueError, TypeError) as error:
        raise InputError(f"metric {metric.name!r} does not work on these points: {error}") from (
            error
        )
