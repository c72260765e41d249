"""Where the time of a bound goes: ns for each distance in each step, on one thread.

python benchmarks/steps.py
"""

from __future__ import annotations

import statistics
import time

import numpy as np
from bound import PEER_SIZE, machine, points

from silchunk.blas import one_blas_thread
from silchunk.engine import executor
from silchunk.kernels import bound as kernel
from silchunk.metric_kinds import _product
from silchunk.panels import PointPanels
from silchunk.plan import LEAF_ROWS, TILE_COLUMNS
from silchunk.prepare import Arguments, prepared

ROWS = 256
REPEATS = 15


def nanoseconds(job, distances: int, repeats: int = REPEATS) -> float:
    """Median time of a job, for each distance."""
    job()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        job()
        times.append(time.perf_counter() - began)
    return statistics.median(times) / distances * 1e9


def main() -> None:
    for name, value in machine().items():
        print(f"{name:<24}{value}")
    X = points(PEER_SIZE)
    n = len(X)
    with prepared(X, Arguments(scheduler="synchronous")) as job, one_blas_thread():
        panels = job.panels
        assert isinstance(panels, PointPanels)
        assert executor("synchronous").concurrency == 1
        metric = panels.metric
        panel = np.empty((ROWS, n), panels.dtype)
        rows, columns = metric.rows(X[:LEAF_ROWS]), metric.columns(X[:TILE_COLUMNS])
        scratch = np.empty(LEAF_ROWS * TILE_COLUMNS)
        tile = LEAF_ROWS * TILE_COLUMNS
        product = nanoseconds(lambda: _product(rows, columns, scratch), tile, 200)
        fill = nanoseconds(
            lambda: metric.fill(rows, columns, scratch, panel[:LEAF_ROWS], 0), tile, 200
        )
        ready = nanoseconds(lambda: metric.columns(X[:TILE_COLUMNS]), ROWS * TILE_COLUMNS, 200)
        whole = nanoseconds(lambda: panels.read(0, ROWS, panel), ROWS * n)
        unsorted = panel.copy()
        row = np.empty_like(panel[:1])
        out = np.empty(1)

        def copy_rows() -> None:
            for i in range(ROWS):
                row[0] = unsorted[i]

        def sort_rows() -> None:
            for i in range(ROWS):
                row[0] = unsorted[i]
                row.sort(axis=1)

        def reduce_rows() -> None:
            for i in range(ROWS):
                row[0] = unsorted[i]
                row.sort(axis=1)
                kernel.point_bounds(row, 1, out)

        copying, sorting, reducing = (
            nanoseconds(job_, ROWS * n) for job_ in (copy_rows, sort_rows, reduce_rows)
        )
    print(f"\nns for each distance, n = {n:,}, one thread")
    for name, value in (
        ("matrix product of a tile", product),
        ("finish of a tile", fill - product),
        ("columns made ready", ready),
        ("a panel of distances, in all", whole),
        ("sort of a row", sorting - copying),
        ("quotient minimum of a row", reducing - sorting),
    ):
        print(f"{name:<32}{value:>6.2f}")


if __name__ == "__main__":
    main()
