"""The metrics: one table from name to the class that fills tiles of distances.

To add a metric of our own, write its kernel in ``kernels/distance.py``, a class with the
interface of `Metric` here, and its line in `CORE_METRICS`. Every other name that scikit-learn's
``pairwise_distances`` knows, and any callable, goes through `PairwiseMetric`.
"""

from __future__ import annotations

import difflib
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from silchunk.errors import InputError, SlowMetricWarning
from silchunk.kernels import distance as kernel
from silchunk.points import Block, RowSource

# Pairs of points on which a callable is tried before any work.
CALLABLE_PAIRS = 32

ALIASES = {"l2": "euclidean", "l1": "manhattan", "cityblock": "manhattan"}


class Frame(NamedTuple):
    """Where the points lie: what centring and scaling need, found by one pass over them."""

    centre: Block  # (d,) float64
    extent: Block  # (d,) float64, max - min of each feature
    exponent: int  # points · 2^-exponent, once centred, lie within [-1, 1]


class Prepared(NamedTuple):
    """A block of points made ready for tiles; as columns, ``values`` is transposed."""

    source: Block  # (r, d), as read
    values: Block  # (r, d) for rows, (d, r) for columns
    norms: Block  # (r,) float64, squared norms; empty where the metric needs none


class Metric(Protocol):
    """What a panel needs of a metric."""

    @property
    def name(self) -> str:
        """As the user named it."""

    def rows(self, block: Block) -> Prepared:
        """Make the rows of a tile ready."""

    def columns(self, block: Block) -> Prepared:
        """Make the columns of a tile ready."""

    def fill(
        self, rows: Prepared, columns: Prepared, scratch: Block, panel: Block, first: int
    ) -> None:
        """Write the distances of a tile into ``panel`` (r, n) from column ``first`` on;
        ``scratch`` is a flat float64 buffer of at least r·c elements."""


NO_NORMS = np.empty(0)


@dataclass(frozen=True)
class EuclideanMetric:
    """Euclidean and squared Euclidean distance by matrix product, close pairs recomputed."""

    name: str
    frame: Frame
    threshold: float

    def rows(self, block: Block) -> Prepared:
        source, values, norms = self.columns(block)
        return Prepared(source, np.ascontiguousarray(values.T), norms)

    def columns(self, block: Block) -> Prepared:
        values, norms = np.empty(block.shape[::-1]), np.empty(len(block))
        scale = 2.0**-self.frame.exponent
        kernel.centre_transposed(block, self.frame.centre, scale, values, norms)
        return Prepared(block, values, norms)

    def fill(
        self, rows: Prepared, columns: Prepared, scratch: Block, panel: Block, first: int
    ) -> None:
        product = _product(rows, columns, scratch)
        finish = kernel.FINISHES[self.name]
        finish(
            product,
            rows.norms,
            columns.norms,
            rows.source,
            columns.source,
            2.0**-self.frame.exponent,
            2.0**self.frame.exponent,
            self.threshold,
            panel,
            first,
        )


@dataclass(frozen=True)
class CosineMetric:
    """``1 - cos`` by matrix product of normalised rows, nearly parallel pairs recomputed."""

    name: str
    threshold: float

    def rows(self, block: Block) -> Prepared:
        # Scaling by the largest entry first keeps the norm in range for any magnitude.
        largest = np.abs(block).max(axis=1, keepdims=True).astype(np.float64)
        values = block / largest
        values /= np.sqrt(np.einsum("ij,ij->i", values, values))[:, None]
        return Prepared(values, values, NO_NORMS)

    def columns(self, block: Block) -> Prepared:
        source, values, norms = self.rows(block)
        return Prepared(source, np.ascontiguousarray(values.T), norms)

    def fill(
        self, rows: Prepared, columns: Prepared, scratch: Block, panel: Block, first: int
    ) -> None:
        product = _product(rows, columns, scratch)
        kernel.finish_cosine(product, rows.source, columns.source, self.threshold, panel, first)


@dataclass(frozen=True)
class CoordinateMetric:
    """Manhattan and Chebyshev distance, by direct differences."""

    name: str
    dtype: np.dtype[Any]

    def rows(self, block: Block) -> Prepared:
        values = block.astype(self.dtype, copy=False)
        return Prepared(block, values, NO_NORMS)

    def columns(self, block: Block) -> Prepared:
        values = np.ascontiguousarray(block.T, dtype=self.dtype)
        return Prepared(block, values, NO_NORMS)

    def fill(
        self, rows: Prepared, columns: Prepared, scratch: Block, panel: Block, first: int
    ) -> None:
        tile = kernel.manhattan_tile if self.name == "manhattan" else kernel.chebyshev_tile
        tile(rows.values, columns.values, scratch[: len(columns.source)], panel, first)


@dataclass(frozen=True)
class PairwiseMetric:
    """Any metric of scikit-learn's ``pairwise_distances``, by name or as a callable."""

    name: str
    function: str | Callable[..., float]
    params: Mapping[str, Any] = field(default_factory=dict)
    boolean: bool = False
    # Formulas of the kind 1 - x may fall below zero by rounding.
    tolerance: float = 1e-12

    def rows(self, block: Block) -> Prepared:
        values = block != 0 if self.boolean else block
        return Prepared(block, values, NO_NORMS)

    def columns(self, block: Block) -> Prepared:
        return self.rows(block)

    def fill(
        self, rows: Prepared, columns: Prepared, scratch: Block, panel: Block, first: int
    ) -> None:
        from sklearn.metrics import pairwise_distances

        out = panel[:, first : first + len(columns.source)]
        with np.errstate(all="ignore"):  # what comes out is checked
            out[:] = pairwise_distances(
                rows.values, columns.values, metric=self.function, **self.params
            )
        self._check(rows, columns, out)

    def _check(self, rows: Prepared, columns: Prepared, out: Block) -> None:
        if not (np.isfinite(out).all() and out.min() >= -self.tolerance):
            i, j = np.argwhere(~(np.isfinite(out) & (out >= -self.tolerance)))[0]
            raise InputError(
                f"metric {self.name!r} gave {out[i, j]} for the points "
                f"{_shown(rows.source[i])} and {_shown(columns.source[j])}; "
                f"distances must be finite {out.dtype} numbers that are not negative."
            )
        np.maximum(out, 0, out=out)

    def fill_square(self, block: Prepared, out: Block) -> None:
        """Distances among the points of one block into ``out`` (r, r), each pair computed once."""
        function = self.function
        if callable(function):
            for i in range(len(out)):
                for j in range(i + 1, len(out)):
                    out[i, j] = out[j, i] = function(
                        block.values[i], block.values[j], **self.params
                    )
            self._check(block, block, out)
            return
        self.fill(block, block, np.empty(0), out, 0)
        mirror_upper(out)
        np.fill_diagonal(out, 0)


def mirror_upper(square: Block) -> None:
    """Copy the upper triangle of a square onto its lower one."""
    below = np.tri(len(square), k=-1, dtype=bool)
    square[below] = square.T[below]


def _shown(point: Block) -> str:
    return np.array2string(point, threshold=8, edgeitems=3, precision=6)


def _product(rows: Prepared, columns: Prepared, scratch: Block) -> Block:
    shape = rows.values.shape[0], columns.values.shape[1]
    product = scratch[: shape[0] * shape[1]].reshape(shape)
    np.matmul(rows.values, columns.values, out=product)
    return product


def _euclidean(name: str, frame: Frame, source: np.dtype[Any], out: np.dtype[Any]) -> Metric:
    # The scale and its inverse have to be normal numbers of the result's dtype.
    low, high = (-100, 120) if out == np.float32 else (-1000, 1000)
    frame = frame._replace(exponent=min(max(frame.exponent, low), high))
    threshold = kernel.cancellation_threshold(frame.centre.size, _relative_error(out))
    return EuclideanMetric(name, frame, threshold)


def _cosine(name: str, frame: Frame, source: np.dtype[Any], out: np.dtype[Any]) -> Metric:
    threshold = 2.0 * kernel.cancellation_threshold(frame.centre.size, _relative_error(out))
    return CosineMetric(name, threshold)


def _coordinate(name: str, frame: Frame, source: np.dtype[Any], out: np.dtype[Any]) -> Metric:
    both_single = source == np.float32 and out == np.float32
    return CoordinateMetric(name, np.dtype(np.float32 if both_single else np.float64))


CORE_METRICS: dict[str, Callable[[str, Frame, np.dtype[Any], np.dtype[Any]], Metric]] = {
    "euclidean": _euclidean,
    "sqeuclidean": _euclidean,
    "cosine": _cosine,
    "manhattan": _coordinate,
    "chebyshev": _coordinate,
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
        diagonal = math.hypot(*extent.tolist())
        return diagonal * diagonal if name == "sqeuclidean" else diagonal


def known_names() -> list[str]:
    """Every metric name, in alphabetical order."""
    from sklearn.metrics.pairwise import _VALID_METRICS

    return sorted((set(_VALID_METRICS) | set(CORE_METRICS) | set(ALIASES)) - {"precomputed"})


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


def make_metric(
    metric: str | Callable[..., float],
    params: Mapping[str, Any],
    frame: Frame,
    source: RowSource,
    dtype: np.dtype[Any],
) -> Metric:
    """Build the metric for points that lie in ``frame``; distances are wanted in ``dtype``."""
    name = canonical_name(metric)
    if name in CORE_METRICS and not callable(metric):
        if params:
            raise InputError(f"metric {name!r} takes no metric_params; got {sorted(params)}.")
        largest = largest_distance(name, frame.extent)
        if largest > float(np.finfo(dtype).max):
            raise InputError(
                f"{name} distances of these points can reach {largest:.3g}, beyond {dtype}. "
                + ('Pass dtype="float64", or rescale' if dtype == np.float32 else "Rescale")
                + " the points: the bound does not depend on the unit."
            )
        source_dtype = np.dtype(np.float32 if source.dtype == np.float32 else np.float64)
        return CORE_METRICS[name](name, frame, source_dtype, dtype)
    from sklearn.metrics.pairwise import PAIRWISE_BOOLEAN_FUNCTIONS

    function = metric if callable(metric) else name
    return PairwiseMetric(name, function, dict(params), name in PAIRWISE_BOOLEAN_FUNCTIONS)


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
    warnings.warn(
        f"the callable metric {name!r} runs serially in Python, {points.shape[0]:,} x "
        f"{points.shape[0]:,} calls, whatever the number of threads. A metric given by name is "
        f"far faster; {', '.join(CORE_METRICS)} are the fastest.",
        SlowMetricWarning,
        stacklevel=2,
    )
    pairs = np.random.default_rng(0).integers(points.shape[0], size=(CALLABLE_PAIRS, 2))
    for i, j in pairs.tolist():
        x, y = points.rows(i, i + 1)[0], points.rows(j, j + 1)[0]
        values = {
            (i, j): float(metric(x, y, **params)),
            (j, i): float(metric(y, x, **params)),
            (i, i): float(metric(x, x, **params)),
        }
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
