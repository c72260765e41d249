"""The kinds of metric: each fills tiles of distances in its own way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from silchunk.errors import InputError
from silchunk.kernels import blocks, differences
from silchunk.kernels import distance as kernel
from silchunk.rows import Block

# What scipy's ``cdist`` knows beyond scikit-learn.
SCIPY_METRICS = ("jensenshannon",)


class Frame(NamedTuple):
    """Where the points lie: what centring and scaling need, found by one pass over them."""

    centre: Block  # (d,) float64
    low: Block  # (d,) float64, least value of each feature
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

    @property
    def relative_error(self) -> float | None:
        """Largest relative error of a distance against exact arithmetic; None if not proven."""

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
PAGE_BYTES = 4096


@dataclass(frozen=True)
class EuclideanMetric:
    """Euclidean and squared Euclidean distance by matrix product, close pairs recomputed."""

    name: str
    frame: Frame
    threshold: float

    @property
    def relative_error(self) -> None:
        return None  # for many features, `cancellation_threshold` is an estimate, if a safe one

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
class DifferenceMetric:
    """Euclidean and squared Euclidean distance by direct differences in ``dtype``.

    Padded to at least whole register blocks: ``values`` of rows (r', d) and of columns (d, c').
    """

    name: str
    frame: Frame
    dtype: np.dtype[Any]
    out: np.dtype[Any]

    @property
    def squared(self) -> bool:
        return self.name == "sqeuclidean"

    @property
    def scale(self) -> float:
        """By which points are multiplied when they are made ready."""
        return 2.0**-self.frame.exponent

    @property
    def relative_error(self) -> float:
        own = differences.relative_error(self.frame.centre.size, self.dtype, self.squared)
        return own + float(np.finfo(self.out).eps)

    def rows(self, block: Block) -> Prepared:
        return self._ready(block, blocks.ROWS, transposed=False)

    def columns(self, block: Block) -> Prepared:
        return self._ready(block, blocks.COLUMNS, transposed=True)

    def _ready(self, block: Block, unit: int, *, transposed: bool) -> Prepared:
        width = whole(len(block), unit)
        if transposed and width * self.dtype.itemsize % PAGE_BYTES == 0:
            width += unit  # or all features would compete for the same places in the cache
        points = np.ascontiguousarray(block, self.dtype)
        values = blocks.at_a_cache_line(block.shape[1], width, points)
        anchor = np.where(self.frame.extent == 0, self.frame.low, 0.0)
        differences.scale_transposed(points, anchor.astype(self.dtype), self.scale, values)
        return Prepared(block, values if transposed else np.ascontiguousarray(values.T), NO_NORMS)

    def fill(
        self, rows: Prepared, columns: Prepared, scratch: Block, panel: Block, first: int
    ) -> None:
        shape = rows.values.shape[0], whole(len(columns.source), blocks.COLUMNS)
        sums = scratch.view(self.dtype)[: shape[0] * shape[1]].reshape(shape)
        differences.square_sums(rows.values, columns.values, sums)
        differences.finish_sums(
            sums, rows.source, columns.source, self.scale, self.squared, panel, first
        )


@dataclass(frozen=True)
class CosineMetric:
    """``1 - cos`` by matrix product of normalised rows, nearly parallel pairs recomputed."""

    name: str
    threshold: float

    @property
    def relative_error(self) -> None:
        return None

    def rows(self, block: Block) -> Prepared:
        # Exact powers of two keep the norm in range for any magnitude, and the direction exact.
        _, exponent = np.frexp(np.abs(block).max(axis=1, keepdims=True).astype(np.float64))
        scaled = np.ldexp(block.astype(np.float64), -exponent)
        norms = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
        return Prepared(scaled, scaled / norms[:, None], NO_NORMS)

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
    """Distances whose every pair is a loop over direct differences of coordinates."""

    name: str
    dtype: np.dtype[Any]
    out: np.dtype[Any]
    n_features: int

    @property
    def relative_error(self) -> float:
        # Differences in ``dtype``, their sum (or its root and ratio) in float64, the result in
        # ``out``.
        single = [float(np.finfo(dtype).eps) for dtype in (self.dtype, self.out)]
        return sum(single) + (self.n_features + 8) * 2.0**-53

    def rows(self, block: Block) -> Prepared:
        values = block.astype(self.dtype, copy=False)
        return Prepared(block, values, NO_NORMS)

    def columns(self, block: Block) -> Prepared:
        values = np.ascontiguousarray(block.T, dtype=self.dtype)
        return Prepared(block, values, NO_NORMS)

    def fill(
        self, rows: Prepared, columns: Prepared, scratch: Block, panel: Block, first: int
    ) -> None:
        tile = kernel.COORDINATE_TILES[self.name]
        width = len(columns.source)
        tile(rows.values, columns.values, scratch[:width], panel, first)
        if self.name == "nan_euclidean":
            apart = np.argwhere(np.isnan(panel[:, first : first + width]))
            if len(apart):
                i, j = apart[0]
                raise InputError(
                    f"metric 'nan_euclidean': the points {_shown(rows.source[i])} and "
                    f"{_shown(columns.source[j])} have no coordinate in common."
                )


@dataclass(frozen=True)
class PairwiseMetric:
    """Any metric of scikit-learn's ``pairwise_distances``, by name or as a callable."""

    name: str
    function: str | Callable[..., float]
    params: Mapping[str, Any] = field(default_factory=dict)
    boolean: bool = False
    # Formulas of the kind 1 - x may fall below zero by rounding.
    tolerance: float = 1e-12

    @property
    def relative_error(self) -> None:
        return None

    def rows(self, block: Block) -> Prepared:
        values = block != 0 if self.boolean else block
        return Prepared(block, values, NO_NORMS)

    def columns(self, block: Block) -> Prepared:
        return self.rows(block)

    def fill(
        self, rows: Prepared, columns: Prepared, scratch: Block, panel: Block, first: int
    ) -> None:
        from scipy.spatial.distance import cdist
        from sklearn.metrics import pairwise_distances

        out = panel[:, first : first + len(columns.source)]
        with np.errstate(all="ignore"):  # what comes out is checked
            if self.function in SCIPY_METRICS:
                out[:] = cdist(rows.values, columns.values, self.function, **self.params)
            else:
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


def whole(count: int, unit: int) -> int:
    """The least multiple of ``unit`` that is not below ``count``."""
    return -(-count // unit) * unit


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
