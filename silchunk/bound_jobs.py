"""The one pass behind every bound: rows to point bounds, their means, and a table of sizes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from silchunk import checkpoint as checkpoints
from silchunk.constraints import Sizes, size_range
from silchunk.panels import FromPoints
from silchunk.plan import LEAF_ROWS, OPTIMISER_BYTES, TABLE_ROWS, ranges
from silchunk.prepare import Arguments, Job, Needs, prepared
from silchunk.reduction import PickRows, ReducedRows, ReduceRows, Wanted
from silchunk.rounding import certified, outward
from silchunk.rows import Block, RowSource
from silchunk.streaming import StreamRows
from silchunk.sums import AlignedSum, Node

Vector = np.ndarray[Any, np.dtype[Any]]
Path = str | os.PathLike[str] | None

# Up to so many sizes are reduced one by one, which is faster than the whole curve.
FEW_SIZES = 3


@dataclass(frozen=True)
class Reduced:
    """What is known of all rows, or of a sample of them in the order of the draw."""

    wanted: Wanted
    samples: Vector  # (rows, ranges of sizes)
    means: Vector  # (ranges,), or of the whole curve
    table: RowSource  # (rows, fixed sizes)


@contextmanager
def bound_job(
    X: Any,
    arguments: Arguments,
    wanted_of: Callable[[int], Wanted],
    *,
    rows_of: Callable[[int], Vector] | None = None,
    checkpoint: Path = None,
) -> Iterator[tuple[Job, Reduced]]:
    """Reduce the rows of ``X``; the table lives as long as the context.

    Parameters
    ----------
    wanted_of : callable of n
        What is to become of each row; refuses constraints that n points cannot meet.
    rows_of : callable of n, optional
        The sampled rows (s,), in the order they were drawn.
    """
    with prepared_job(X, arguments, wanted_of, rows_of=rows_of, checkpoint=checkpoint) as ready:
        yield ready[0], reduce_all(*ready, arguments, checkpoint)


@contextmanager
def prepared_job(
    X: Any,
    arguments: Arguments,
    wanted_of: Callable[[int], Wanted],
    *,
    rows_of: Callable[[int], Vector] | None = None,
    checkpoint: Path = None,
) -> Iterator[tuple[Job, Wanted, Vector | None]]:
    """As `bound_job`, with nothing reduced yet."""
    known: list[tuple[Wanted, Vector | None]] = []

    def needs(n: int) -> Needs:
        known.append((wanted_of(n), None if rows_of is None else rows_of(n)))
        return needs_of(n, *known[-1])

    panel_rows = checkpoints.panel_rows(checkpoint)
    with prepared(X, arguments, needs_of=needs, panel_rows=panel_rows) as job:
        yield (job, *known[-1])


def needs_of(n: int, wanted: Wanted, drawn: Vector | None = None) -> Needs:
    """What bounds of n points, or of those ``drawn``, keep of each row."""
    n_rows = n if drawn is None else len(drawn)
    # Samples; and the curve's tree of sums, a level for each doubling of the leaves.
    numbers = n_rows * 2 * wanted.n_ranges + (16 * n if wanted.curve else 0)
    if drawn is not None:  # a draw without replacement shuffles all where it takes many
        numbers += 4 * n_rows + min(n, 50 * n_rows)
    return Needs(
        outputs=1 if wanted.curve else 0,
        row_results=wanted.n_ranges + wanted.n_fixed,
        result_bytes=8 * numbers,
        table_columns=wanted.n_fixed,
        runtime_bytes=optimiser_bytes(wanted.n_fixed),
        sampled_rows=None if drawn is None else len(drawn),
    )


def optimiser_bytes(n_sizes: int) -> int:
    """What the sweeps over a table of sizes take: its libraries, terms of blocks of rows with a
    matrix of sizes each, and blocks of the table."""
    if not n_sizes:
        return 0
    return OPTIMISER_BYTES + 16 * 8 * n_sizes**2 + 3 * 8 * TABLE_ROWS * n_sizes


def reduce_all(
    job: Job, wanted: Wanted, drawn: Vector | None, arguments: Arguments, checkpoint: Path
) -> Reduced:
    """Map all panels, or those of the ``drawn`` rows; bounds are rounded as asked for."""
    n_rows = job.n if drawn is None else len(drawn)
    samples = np.empty((n_rows, wanted.n_ranges))
    sums = AlignedSum()
    panels = job.plan.panels()
    task: Any = ReduceRows(job.panels, wanted)
    if drawn is not None:
        rows = np.sort(drawn)
        if isinstance(job.panels, FromPoints):
            task = StreamRows(job.panels, wanted, rows)
        else:
            task = PickRows(job.panels, wanted, rows)
            panels = job.panels_of(rows)
    filled = 0

    def combine(_: int, reduced: ReducedRows) -> None:
        nonlocal filled
        count = len(reduced.bounds)
        samples[filled : filled + count] = reduced.bounds
        filled += count
        job.table.append(_rounded(reduced.table, job, arguments))
        for node in reduced.totals:
            sums.add(node)

    with _kept(checkpoint, job, arguments, wanted, drawn) as kept:
        checkpoints.map_panels(
            job, task, combine, "silhouette bound", kept, ReducedRows.from_arrays, panels
        )
    assert filled == n_rows
    if drawn is not None:  # back to the order of the draw
        samples = samples[np.searchsorted(rows, drawn)]
    means = sums.total() / job.n if wanted.curve else mean_over_rows(samples)
    return Reduced(
        wanted,
        _rounded(samples, job, arguments),
        _rounded(means, job, arguments, mean_of=n_rows),
        job.table.source,
    )


def whole_curve_pays(n_sizes: int) -> bool:
    """Whether bounds for so many smallest sizes are read off the whole curve."""
    return n_sizes > FEW_SIZES


def point_bounds(
    X: Any,
    arguments: Arguments,
    min_cluster_size: Sizes,
    n_clusters: int | None,
    checkpoint: Path,
    *,
    keep_samples: bool = True,
) -> Reduced:
    """Bounds of all points for each minimum size, and their means.

    Without ``keep_samples``, memory does not grow with the number of sizes.
    """
    asked: Vector = np.ravel(np.asarray(min_cluster_size, dtype=object))
    curve = whole_curve_pays(len(asked))

    def wanted_of(n: int) -> Wanted:
        within = size_range(min_cluster_size, n_clusters, n)
        if curve and not keep_samples:
            within = replace(within, smallest=within.smallest[:1])
        return Wanted(within, curve=curve)

    with bound_job(X, arguments, wanted_of, checkpoint=checkpoint) as (_, reduced):
        if curve:
            return replace(reduced, means=reduced.means[asked.astype(np.int64) - 1])
        return reduced


def _rounded(bounds: Vector, job: Job, arguments: Arguments, mean_of: int = 0) -> Vector:
    if arguments.certify:
        return certified(bounds, job.n, job.relative_error, mean_of)
    return outward(bounds, job.relative_error)


def _kept(
    checkpoint: Path, job: Job, arguments: Arguments, wanted: Wanted, drawn: Vector | None
) -> Any:
    if checkpoint is None:
        return nullcontext(None)
    within, sample = wanted.within, None
    if drawn is not None:
        sample = f"{len(drawn)} rows, {hashlib.sha256(drawn.tobytes()).hexdigest()[:16]}"
    task: Mapping[str, Any] = {
        "min_cluster_size": None if within is None else within.smallest,
        "n_clusters": None if within is None else within.n_clusters,
        "cluster_sizes": [] if wanted.fixed is None else wanted.fixed.sizes.tolist(),
        "curve": wanted.curve,
        "sample (by sample_size and random_state)": sample,
        "certify": arguments.certify,
    }
    return checkpoints.opened(checkpoint, job, arguments, task)


def mean_over_rows(samples: Block) -> Vector:
    """Column means, added in the same order as the curve: equal to it to the last bit."""
    if not samples.shape[1]:
        return np.empty(0)
    sums = AlignedSum()
    for first, last in ranges(len(samples), LEAF_ROWS):
        sums.add(Node(0, np.cumsum(samples[first:last], axis=0)[-1]))
    means: Vector = sums.total() / len(samples)
    return means
