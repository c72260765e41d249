"""Sampled rows over all points in blocks of columns: memory does not grow with n."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from silchunk.kernels import streamed as kernel
from silchunk.panels import FromPoints
from silchunk.plan import HELD_VALUES, LEAF_ROWS, STREAM_COLUMNS, TILE_COLUMNS, ranges
from silchunk.reduction import ReducedRows, Wanted
from silchunk.rows import Block
from silchunk.tiles import picked_rows

# Points that a row's first edges are taken from, in as many blocks at equal distances.
EDGE_BLOCKS, EDGE_ROWS = 8, 512
# Columns that rows of the buffer are longer: whole pages apart, they would all compete for the same
# lines of the cache.
PADDING = 16


class _Row:
    """One row on its way: binned until what can hold its least quotients is few, then collected."""

    def __init__(self, n: int, edges: Block, smallest: Block, largest: Block) -> None:
        self.n = n
        self.sizes = smallest, largest
        self.least = np.ones(len(smallest))
        self.farthest = 0.0
        self.done = self.collecting = False
        self.kept, self.filled, self.intervals = edges[:0], 0, edges[:0]
        self._begin(edges, np.ones(len(edges) + 1, np.uint8))

    def _begin(self, edges: Block, in_question: Block) -> None:
        self.edges = edges
        self.wanted = in_question
        self.counts = np.zeros(len(edges) + 1, np.int64)
        self.sums, self.lost = np.zeros(len(edges) + 1), np.zeros(len(edges) + 1)

    def take(self, values: Block) -> None:
        """Values of one block of columns; sorts them where it has to."""
        if self.collecting:
            self.filled = kernel.collect(values, self.intervals, self.kept, self.filled)
            return
        values.sort()
        kernel.add_to_bins(values, self.edges, self.counts, self.sums, self.lost)
        self.farthest = max(self.farthest, float(values[-1]))

    def end_pass(self) -> None:
        """All columns have been seen once more."""
        if self.collecting:
            assert self.filled == len(self.kept), "a row was not the same in two passes"
            self.kept.sort()
            kernel.least_of_bins(
                self.n, self.kept, self.counts, self.sums, self.wanted, *self.sizes, self.least
            )
            self.done = True
            return
        if self.farthest == 0.0:  # as in a cluster of one
            self.done = True
            return
        held = kernel.mark_bins(
            self.n,
            self.edges,
            self.edges.dtype.type(self.farthest),
            self.counts,
            self.sums,
            *self.sizes,
            self.least,
            self.wanted,
        )
        if not held:
            self.done = True
        elif held <= HELD_VALUES:
            self.collecting = True
            self.intervals = kernel.intervals_of(self.edges, self.wanted)
            self.kept, self.filled = np.empty(held, self.edges.dtype), 0
        else:
            self._begin(*kernel.finer_bins(self.edges, self.wanted, self.farthest))


@dataclass(frozen=True)
class StreamRows:
    """Task: the bounds of sampled rows [start, stop), by a few passes over all points."""

    panels: FromPoints
    wanted: Wanted
    rows: Block  # (s,) int64, ascending

    def __call__(self, start: int, stop: int) -> ReducedRows:
        picked = self.rows[start:stop]
        n = self.panels.n
        own = picked_rows(self.panels.points, picked, self.panels.read_rows)
        bounds = np.empty((len(picked), self.wanted.n_ranges))
        none = np.empty((len(picked), 0))
        if n <= HELD_VALUES:  # whole rows, reduced as those of a panel are
            whole = np.empty((len(picked), n), self.panels.dtype)
            for column, block in self._column_blocks(own, picked):
                whole[:, column : column + block.shape[1]] = block
            for i in range(len(picked)):  # each by itself, whichever others are in the batch
                one = slice(i, i + 1)
                self.wanted.reduce(whole[one], bounds[one], none[one], np.empty(0))
        else:
            self._stream(own, picked, bounds)
        return ReducedRows(bounds, none, [])

    def _stream(self, own: Block, picked: Block, bounds: Block) -> None:
        within = self.wanted.within
        assert within is not None
        n = self.panels.n
        smallest = np.array(within.smallest, np.int64)
        largest = np.array([within.largest(m, n) for m in within.smallest], np.int64)
        rows = [
            _Row(n, kernel.first_edges(sample), smallest, largest) for sample in self._sample(own)
        ]
        while True:
            left = [i for i, row in enumerate(rows) if not row.done]
            if not left:
                break
            # A row keeps its place in its tile: it has to have the same bits in every pass.
            leaves = sorted({i // LEAF_ROWS for i in left})
            for _, block in self._column_blocks(own, picked, leaves):
                for i in left:
                    rows[i].take(block[i])
            for i in left:
                rows[i].end_pass()
        bounds[:] = [1.0 - row.least for row in rows]

    def _sample(self, own: Block) -> Block:
        """Sorted distances from each row to some of the points (r, EDGE_BLOCKS · EDGE_ROWS)."""
        n, points = self.panels.n, self.panels.points
        padded = len(own) + -len(own) % LEAF_ROWS
        sample = np.empty((padded, EDGE_BLOCKS * EDGE_ROWS), self.panels.dtype)
        ready = self._ready(own)
        scratch = np.empty(LEAF_ROWS * TILE_COLUMNS)
        for part in range(EDGE_BLOCKS):
            first = part * (n - EDGE_ROWS) // (EDGE_BLOCKS - 1)
            columns = self.panels.metric.columns(points.rows(first, first + EDGE_ROWS))
            for rows, prepared in ready:
                self.panels.metric.fill(prepared, columns, scratch, sample[rows], part * EDGE_ROWS)
        sample.sort(axis=1)
        return sample[: len(own)]

    def _ready(self, own: Block) -> list[tuple[slice, Any]]:
        """Rows made ready, in whole leaves: a matrix product rounds by the shape of its tile."""
        own = np.concatenate([own, np.repeat(own[-1:], -len(own) % LEAF_ROWS, axis=0)])
        return [
            (slice(a, b), self.panels.metric.rows(own[a:b])) for a, b in ranges(len(own), LEAF_ROWS)
        ]

    def _column_blocks(
        self, own: Block, picked: Block, leaves: list[int] | None = None
    ) -> Iterator[tuple[int, Block]]:
        """(first column, distances (r, c)) of all columns, c up to STREAM_COLUMNS; zero from a
        point to itself. The array is used again for the next block. ``leaves`` are those of the
        rows, by 64, that are wanted; by default all."""
        ready = self._ready(own)
        ready = ready if leaves is None else [ready[leaf] for leaf in leaves]
        scratch = np.empty(LEAF_ROWS * TILE_COLUMNS)
        padded = len(own) + -len(own) % LEAF_ROWS
        buffer = np.empty((padded, STREAM_COLUMNS + PADDING), self.panels.dtype)
        metric, points = self.panels.metric, self.panels.points
        for a, b in ranges(self.panels.n, self.panels.read_rows):
            read = points.rows(a, b)
            for c, d in ranges(len(read), STREAM_COLUMNS):
                block = buffer[: len(own), : d - c]
                for first, last in ranges(d - c, TILE_COLUMNS):
                    columns = metric.columns(read[c + first : c + last])
                    for rows, prepared in ready:
                        metric.fill(prepared, columns, scratch, buffer[rows], first)
                inside = np.flatnonzero((picked >= a + c) & (picked < a + d))
                block[inside, picked[inside] - (a + c)] = 0
                yield a + c, block
