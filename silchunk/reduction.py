"""Rows of distances, reduced to what is kept of them; the tasks that do it for a row panel.

One task reads or computes a panel, sorts its rows, and returns a few numbers for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from silchunk.buffers import borrowed
from silchunk.constraints import FixedSizes, SizeRange
from silchunk.kernels import bound as kernel
from silchunk.kernels import curve, nearest
from silchunk.panels import PanelSource
from silchunk.plan import LEAF_ROWS, ranges
from silchunk.sums import AlignedSum, Node

Vector = np.ndarray[Any, np.dtype[Any]]

# Rows are sorted and reduced this many bytes at a time.
CACHED_BYTES = 1 << 20
# Rows of at least so many distances are sorted in part. A half is what the curve needs, and what
# two like clusters do; the rest is for what the sample that splits a row leaves open.
SPLIT_FROM = 8192
NEAREST_SHARE = 0.55
# Where clusters are many and small, the least quotient is among fewer still. Much less would gain
# little: the distances themselves cost as much as sorting half of them.
SMALL_SHARE = 0.4
# So many rows of a leaf are split before it is judged whether that is any use.
TRIED_ROWS = 4


@dataclass(frozen=True)
class Wanted:
    """What is to become of each row."""

    within: SizeRange | None = None  # bounds for each of its smallest sizes
    curve: bool = False  # and the sum over rows, for all smallest sizes
    fixed: FixedSizes | None = None  # bounds for clusters of just these sizes

    @property
    def n_ranges(self) -> int:
        return 0 if self.within is None else len(self.within.smallest)

    @property
    def n_fixed(self) -> int:
        return 0 if self.fixed is None else len(self.fixed.sizes)

    def curve_length(self, n: int) -> int:
        """Number of smallest sizes there are."""
        return n // self.within.at_least if self.curve and self.within is not None else 0

    def reduce(self, rows: Vector, bounds: Vector, table: Vector, total: Vector) -> None:
        """Sort ``rows`` in place and reduce them, a few at a time, while they are in cache.

        Parameters
        ----------
        rows : (r, n)
        bounds : (r, n_ranges), filled in
        table : (r, n_fixed), filled in
        total : (curve_length(n),), added to
        """
        n = rows.shape[1]
        step = max(1, CACHED_BYTES // (n * rows.itemsize))
        shares = self._shares(n)
        split = np.empty((min(step, len(rows)) if shares else 0, n), rows.dtype)
        tried = failed = first = 0
        while first < len(rows):
            # Rows of one leaf are alike: where most of the first were split in vain, more is sorted
            # of the others at once, and at last the whole.
            if 2 * failed > tried:
                shares, tried, failed = shares[1:], 0, 0
            last = min(len(rows), first + (step if tried or not shares else min(step, TRIED_ROWS)))
            few = slice(first, last)
            if shares:
                near = nearest.split(rows[few], shares[0], split[: last - first])
                tried += last - first
            else:
                rows[few].sort(axis=1)  # the point itself, at distance 0, comes first
                near = kernel.whole(rows[few])
            failed += self._reduce_sorted(near, rows[few], bounds[few], total)
            if self.fixed is not None:
                kernel.size_bounds(near, self.fixed.sizes, table[few])
            first = last

    def _shares(self, n: int) -> tuple[float, ...]:
        """Parts of a row that are worth sorting before the whole, the smallest first."""
        if n < SPLIT_FROM or self.fixed is not None:
            return ()
        return (NEAREST_SHARE,) if self.curve else (SMALL_SHARE, NEAREST_SHARE)

    def _reduce_sorted(
        self, near: kernel.SortedRows, rows: Vector, bounds: Vector, total: Vector
    ) -> int:
        """Reduce rows, in order; returns how many had to be sorted whole after all."""
        failed = done = 0
        while (done := self._reduce_from(near, bounds, total, done)) < len(rows):
            one = slice(done, done + 1)
            rows[one].sort(axis=1)
            self._reduce_from(kernel.whole(rows[one]), bounds[one], total, 0)
            failed += 1
            done += 1
        return failed

    def _reduce_from(
        self, near: kernel.SortedRows, bounds: Vector, total: Vector, start: int
    ) -> int:
        """Reduce rows from ``start`` on; returns the first of which more has to be sorted."""
        if self.within is None:
            return len(bounds)
        sizes = np.array(self.within.smallest, np.int64)
        if self.curve:
            done: int = curve.constraint_curve(
                near, sizes, self.within.at_least, bounds, total, start
            )
            return done
        n = near.values.shape[1]
        done = min(
            kernel.point_bounds(near, m, self.within.largest(m, n), bounds[:, j], start)
            for j, m in enumerate(self.within.smallest)
        )
        return done


@dataclass(frozen=True)
class ReducedRows:
    """What a task returns of its rows."""

    bounds: Vector  # (r, n_ranges)
    table: Vector  # (r, number of fixed sizes)
    totals: list[Node]  # of the curve, over aligned leaves of rows

    def arrays(self) -> dict[str, Vector]:
        """All of it as arrays, to be kept in a file."""
        length = len(self.totals[0].total) if self.totals else 0
        return {
            "bounds": self.bounds,
            "table": self.table,
            "levels": np.array([node.level for node in self.totals], np.int64),
            "totals": np.array([node.total for node in self.totals]).reshape(
                len(self.totals), length
            ),
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, Vector]) -> ReducedRows:
        """The reverse of `arrays`."""
        levels, totals = arrays["levels"].tolist(), arrays["totals"]
        nodes = [Node(level, total) for level, total in zip(levels, totals, strict=True)]
        return cls(arrays["bounds"], arrays["table"], nodes)


@dataclass(frozen=True)
class ReduceRows:
    """Panel task: read or compute a panel and reduce all of its rows."""

    panels: PanelSource
    wanted: Wanted

    def __call__(self, start: int, stop: int) -> ReducedRows:
        n, wanted = self.panels.n, self.wanted
        bounds = np.empty((stop - start, wanted.n_ranges))
        table = np.empty((stop - start, wanted.n_fixed))
        sums = AlignedSum()
        with borrowed((stop - start, n), self.panels.dtype) as panel:
            self.panels.read(start, stop, panel)
            for first, last in ranges(stop - start, LEAF_ROWS):
                total = np.zeros(wanted.curve_length(n))
                leaf = slice(first, last)
                wanted.reduce(panel[leaf], bounds[leaf], table[leaf], total)
                if wanted.curve:
                    sums.add(Node(0, total))
        return ReducedRows(bounds, table, sums.nodes)


@dataclass(frozen=True)
class PickRows:
    """Panel task: read a panel of a matrix and reduce those of its rows that are sampled."""

    panels: PanelSource
    wanted: Wanted
    rows: Vector  # (s,) int64, ascending

    def __call__(self, start: int, stop: int) -> ReducedRows:
        first, last = np.searchsorted(self.rows, [start, stop])
        bounds = np.empty((last - first, self.wanted.n_ranges))
        none = np.empty((last - first, 0))
        with borrowed((stop - start, self.panels.n), self.panels.dtype) as panel:
            self.panels.read(start, stop, panel)
            for i, row in enumerate(self.rows[first:last] - start):
                one = slice(i, i + 1)
                self.wanted.reduce(panel[row : row + 1], bounds[one], none[one], none[0, :])
        return ReducedRows(bounds, none, [])
