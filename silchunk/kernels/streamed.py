"""Quotient minima of rows that are never held: for samples of very many points.

A row's distances come in blocks of columns, again and again. Edges cut its values into bins, whose
counts and sums give S and R, and so the quotient, exactly at each edge; within a bin

    S_{k-1} ≥ S at its start + (its values so far) · (its lower edge),
    R_k ≤ R at its end + (its values still to come) · (its upper edge),

which bounds the quotient from below. Only bins whose bound is not above the least quotient at an
edge can hold the minimum: their values are collected in the next pass and gone through one by one,
or, where they are too many to hold, cut into finer bins. Memory does not depend on n.

Notation as in `silchunk.kernels.bound`; a bin that holds the sorted positions [k0, k1) is asked for
q(k) of these k.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from silchunk.kernels.bound import (
    BLOCK,
    PRUNING_SLACK,
    add_exactly,
    block_sum,
    compiled,
    reordered,
    running_sums,
)

Block = np.ndarray[Any, np.dtype[Any]]

# Bins a row begins with.
BINS = 256
# A bin is bounded in this many steps.
STEPS = 8


def first_edges(sample: Block) -> Block:
    """Edges for a row, from the sorted distances to some points: at equal shares of the sample,
    and closer at its ends, where the least quotient often is."""
    count = len(sample)
    tail = np.unique(np.round(np.geomspace(1, max(2, count // 8), BINS // 8)).astype(np.int64))
    even = np.linspace(0, count - 1, BINS - 2 * len(tail)).astype(np.int64)
    ranks = np.unique(np.concatenate([tail, even, count - tail]))
    edges: Block = np.unique(sample[ranks[(ranks >= 0) & (ranks < count)]])
    return edges


def finer_bins(edges: Block, wanted: Block, largest: float) -> tuple[Block, Block]:
    """Edges of the wanted bins, each cut into parts that hold equally many floating-point numbers.

    ``wanted`` (len(edges) + 1,) tells for each bin whether it can hold the minimum; ``largest`` is
    the row's largest distance.

    Returns
    -------
    edges : ascending
    within : (len(edges) + 1,) uint8, whether each of the new bins is part of a wanted one
    """
    integer = np.int32 if edges.dtype == np.float32 else np.int64
    # Of positive numbers the bits are in the order of the values.
    bottom = np.zeros(1, edges.dtype)
    top = np.nextafter(np.full(1, largest, edges.dtype), edges.dtype.type(np.inf))
    low = np.concatenate([bottom, edges]).view(integer).astype(np.int64)
    high = np.concatenate([edges, top]).view(integer).astype(np.int64)
    parts = max(2, BINS // max(1, int(wanted.sum())))
    cuts = [
        # Many equal values are most likely at an edge, since edges are taken from the values.
        np.append(
            np.arange(low[b], high[b], max(1, (high[b] - low[b]) // parts)), [low[b] + 1, high[b]]
        )
        for b in np.flatnonzero(wanted)
    ]
    finer: Block = np.unique(np.concatenate(cuts)).astype(integer).view(edges.dtype)
    finer = finer[finer > 0]
    within = wanted[np.searchsorted(edges, np.concatenate([bottom, finer]), side="right")]
    return finer, within


@compiled  # type: ignore[untyped-decorator]
def _first_not_below(values: Block, first: int, edge: float) -> int:
    """First position from ``first`` on whose value is not below ``edge``; values ascend."""
    step = 1
    low = first
    high = values.shape[0]
    while low + step < high and values[low + step] < edge:
        low += step
        step *= 2
    high = min(high, low + step + 1)
    while low < high:
        middle = (low + high) // 2
        if values[middle] < edge:
            low = middle + 1
        else:
            high = middle
    return low


@compiled  # type: ignore[untyped-decorator]
def add_to_bins(values: Block, edges: Block, counts: Block, sums: Block, lost: Block) -> None:
    """Add ascending values of a row to its bins: bin b has edges[b-1] ≤ value < edges[b].

    ``counts`` (e + 1,) int64, ``sums`` (e + 1,) float64 with what they have ``lost`` to rounding.
    """
    position = 0
    for b in range(edges.shape[0] + 1):
        stop = values.shape[0]
        if b < edges.shape[0]:
            stop = _first_not_below(values, position, edges[b])
        counts[b] += stop - position
        while position < stop:
            end = min(position + BLOCK, stop)
            term = block_sum(values[position:end])
            sums[b], lost[b] = add_exactly(sums[b], lost[b], term)
            position = end


@compiled  # type: ignore[untyped-decorator]
def _around_bins(counts: Block, sums: Block) -> tuple[Block, Block, Block]:
    """First sorted position of each bin, and the sums of what is left and right of it."""
    n_bins = counts.shape[0]
    starts, before, after = np.empty(n_bins, np.int64), np.empty(n_bins), np.empty(n_bins)
    position = 0
    for b in range(n_bins):
        starts[b] = position
        position += counts[b]
    running_sums(sums, 0.0, before, after)
    return starts, before, after


@compiled  # type: ignore[untyped-decorator]
def _least_within(
    k0: int, k1: int, before: float, after: float, low: float, high: float, n: int
) -> float:
    """A lower limit of q(k) for k0 ≤ k < k1, of a bin with edges ``low`` and ``high``."""
    limit = np.inf
    for step in range(STEPS):
        a = k0 + (k1 - k0) * step // STEPS
        b = k0 + (k1 - k0) * (step + 1) // STEPS
        if b == a or b < 2:
            continue
        own = (before + (a - k0) * low) / (a - 1) if a >= 2 else 0.0
        rest = (after + (k1 - b) * high) / (n - b) if b < n else high
        limit = min(limit, own / rest * PRUNING_SLACK)
    return limit


@compiled  # type: ignore[untyped-decorator]
def _least_of_equal_values(
    first: int, last: int, k0: int, k1: int, value: float, before: float, after: float, n: int
) -> float:
    """The least q(k) for first ≤ k ≤ last, where all of the sorted positions [k0, k1) hold
    ``value``."""
    least = 1.0
    for k in range(max(first, 2), min(last, n - 1) + 1):
        rest = after + (k1 - k) * value
        least = min(least, ((before + (k - k0) * value) * (n - k)) / (rest * (k - 1)))
    return least


@compiled  # type: ignore[untyped-decorator]
def mark_bins(
    n: int,
    edges: Block,
    largest: float,
    counts: Block,
    sums: Block,
    smallest_sizes: Block,
    largest_sizes: Block,
    least: Block,
    wanted: Block,
) -> int:
    """Find the bins that can hold the least quotient, and how many values they have.

    For each range of sizes [smallest, largest], ``least`` is lowered to the least quotient at an
    edge or in a bin that has but one value; ``wanted`` (e + 1,), which tells on entry what bins are
    still in question, tells then for which other bins it can be lowered for any of them.
    """
    n_bins = counts.shape[0]
    zero, infinite = edges.dtype.type(0), edges.dtype.type(np.inf)
    starts, before, after = _around_bins(counts, sums)
    in_question = wanted.copy()
    wanted[:] = 0
    for r in range(least.shape[0]):
        first, last = smallest_sizes[r], largest_sizes[r]
        for b in range(n_bins):
            k = starts[b]
            if max(first, 2) <= k <= last and counts[b]:
                quotient = (before[b] * (n - k)) / ((sums[b] + after[b]) * (k - 1))
                least[r] = min(least[r], quotient)
        for b in range(n_bins):
            k0, k1 = starts[b], starts[b] + counts[b]
            if not in_question[b] or k1 - 1 < max(first, 2) or k0 > last or counts[b] < 1:
                continue
            if counts[b] == 1 and k0 >= 2:
                continue  # q at its only k is known
            low = edges[b - 1] if b else zero
            high = edges[b] if b < n_bins - 1 else infinite
            top = min(high, largest)
            if _least_within(k0, k1, before[b], after[b], low, top, n) > least[r]:
                continue
            if low == largest or np.nextafter(low, infinite) == high:
                value = np.float64(low)
                quotient = _least_of_equal_values(
                    max(k0, first), min(k1 - 1, last), k0, k1, value, before[b], after[b], n
                )
                least[r] = min(least[r], quotient)
            else:
                wanted[b] = 1
    held = 0
    for b in range(n_bins):
        held += counts[b] * wanted[b]
    return held


def intervals_of(edges: Block, wanted: Block) -> Block:
    """The wanted bins as (i, 2) values [low, high), neighbours joined."""
    low = np.concatenate([np.zeros(1, edges.dtype), edges])
    high = np.concatenate([edges, np.full(1, np.inf, edges.dtype)])
    marked = np.concatenate([[0], wanted, [0]]).astype(np.int8)
    turns = np.flatnonzero(np.diff(marked))
    intervals: Block = np.stack([low[turns[::2]], high[turns[1::2] - 1]], axis=1)
    return intervals


@reordered  # type: ignore[untyped-decorator]
def _count_between(values: Block, low: float, high: float) -> int:
    count = 0
    for t in range(values.shape[0]):
        count += (values[t] >= low) & (values[t] < high)
    return count


@compiled  # type: ignore[untyped-decorator]
def collect(values: Block, intervals: Block, kept: Block, filled: int) -> int:
    """Append those of a row's values, in any order, that are within an interval to ``kept``.

    They are few: whole blocks are passed over at the speed of comparing.
    """
    for i in range(intervals.shape[0]):
        low, high = intervals[i, 0], intervals[i, 1]
        for first in range(0, values.shape[0], BLOCK):
            block = values[first : first + BLOCK]
            if not _count_between(block, low, high):
                continue
            for t in range(block.shape[0]):
                if low <= block[t] < high:
                    if filled < kept.shape[0]:
                        kept[filled] = block[t]
                    filled += 1
    return filled


@compiled  # type: ignore[untyped-decorator]
def least_of_bins(
    n: int,
    kept: Block,
    counts: Block,
    sums: Block,
    wanted: Block,
    smallest_sizes: Block,
    largest_sizes: Block,
    least: Block,
) -> None:
    """Lower ``least`` to the least quotient within the wanted bins.

    ``kept`` ascends and holds the values of the wanted bins.
    """
    n_bins = counts.shape[0]
    starts, before, after = _around_bins(counts, sums)
    own = np.empty(kept.shape[0])
    position = 0
    for b in range(n_bins):
        if not wanted[b]:
            continue
        k0, count = starts[b], counts[b]
        total = lost = 0.0
        for t in range(count):
            own[t] = before[b] + total
            total, lost = add_exactly(total, lost, kept[position + t])
        total = lost = 0.0
        for t in range(count - 1, -1, -1):
            k = k0 + t
            total, lost = add_exactly(total, lost, kept[position + t])
            if k < 2 or k > n - 1:
                continue
            quotient = (own[t] * (n - k)) / ((after[b] + total) * (k - 1))
            for r in range(least.shape[0]):
                if smallest_sizes[r] <= k <= largest_sizes[r]:
                    least[r] = min(least[r], quotient)
        position += count
