"""Where the time of a bound goes: ns for each distance in each step, on one thread.

python benchmarks/steps.py            # float32, 32 dimensions, 20,000 points
python benchmarks/steps.py --shapes   # whole bounds of several kinds of data
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
from common import PEER_SIZE, machine, points, print_machine

import silchunk
from silchunk import reduction
from silchunk.blas import one_blas_thread
from silchunk.kernels import bound, curve, nearest
from silchunk.panels import PointPanels
from silchunk.plan import LEAF_ROWS, TILE_COLUMNS
from silchunk.prepare import Arguments, prepared

ROWS = 128
REPEATS = 5


def nanoseconds(job, distances: int, repeats: int = REPEATS) -> float:
    """Median time of a job, for each distance; a long one is repeated but once."""
    began = time.perf_counter()
    job()
    long = time.perf_counter() - began > 2.0
    times = []
    for _ in range(1 if long else repeats):
        began = time.perf_counter()
        job()
        times.append(time.perf_counter() - began)
    return statistics.median(times) / distances * 1e9


def steps(X) -> None:
    """The steps of one panel."""
    n = len(X)
    with prepared(X, Arguments(scheduler="synchronous")) as job, one_blas_thread():
        panels = job.panels
        assert isinstance(panels, PointPanels)
        metric = panels.metric
        panel = np.empty((ROWS, n), panels.dtype)
        rows, columns = metric.rows(X[:LEAF_ROWS]), metric.columns(X[:TILE_COLUMNS])
        scratch = np.empty(LEAF_ROWS * TILE_COLUMNS)
        fill = nanoseconds(
            lambda: metric.fill(rows, columns, scratch, panel[:LEAF_ROWS], 0),
            LEAF_ROWS * TILE_COLUMNS,
            200,
        )
        ready = nanoseconds(
            lambda: metric.columns(X[:TILE_COLUMNS]), job.plan.panel_rows * TILE_COLUMNS, 200
        )
        whole = nanoseconds(lambda: panels.read(0, ROWS, panel), ROWS * n)
    unsorted = panel.copy()
    # As many rows at a time as a bound takes.
    together = max(1, reduction.CACHED_BYTES // (n * panel.itemsize))
    few = np.empty((together, n), panel.dtype)
    part = np.empty_like(few)
    out, total = np.empty(together), np.zeros(n // 2)
    one, bounds = np.array([1]), np.empty((together, 1))

    def each_row(work):
        whole = ROWS // together * together

        def run() -> None:
            for i in range(0, whole, together):
                few[:] = unsorted[i : i + together]
                work()

        return nanoseconds(run, whole * n)

    def split() -> bound.SortedRows:
        return nearest.split(few, reduction.NEAREST_SHARE, part)

    copying = each_row(lambda: None)
    sorting = each_row(lambda: few.sort(axis=1))
    half = int(reduction.NEAREST_SHARE * n)
    partitioning = each_row(lambda: few.partition(half, axis=1))
    splitting = each_row(split)
    minimum = each_row(lambda: bound.point_bounds(split(), 1, n - 1, out))
    minima = each_row(lambda: curve.constraint_curve(split(), one, 2, bounds, total))

    def plain() -> None:
        few.sort(axis=1)
        bound.point_bounds(bound.whole(few), 1, n - 1, out)

    def plain_curve() -> None:
        few.sort(axis=1)
        curve.constraint_curve(bound.whole(few), one, 2, bounds, total)

    plain_minimum, plain_minima = each_row(plain), each_row(plain_curve)
    print(f"\nns for each distance, n = {n:,}, one thread")
    for name, value in (
        ("tile of distances", fill),
        ("columns made ready", ready),
        ("panel of distances, in all", whole),
        ("row sorted whole", sorting - copying),
        ("  its quotient minimum", plain_minimum - sorting),
        ("  its constraint curve", plain_minima - sorting),
        (f"row sorted to {reduction.NEAREST_SHARE:.0%}", splitting - copying),
        ("  its quotient minimum", minimum - splitting),
        ("  its constraint curve", minima - splitting),
        ("numpy's partition of a row there", partitioning - copying),
    ):
        print(f"{name:<36}{value:>6.2f}")


def shapes() -> None:
    """Whole bounds, both threads, of several kinds of data; rows sorted in part and all whole."""
    rng = np.random.default_rng(0)

    def blobs(n, d, spread):
        centres = rng.uniform(-10, 10, (20, d))
        return centres[rng.integers(20, size=n)] + spread * rng.standard_normal((n, d))

    n = 20_000
    data = {
        "Gaussian, d = 2": rng.standard_normal((n, 2)),
        "Gaussian, d = 32": rng.standard_normal((n, 32)),
        "Gaussian, d = 128": rng.standard_normal((n, 128)),
        "Gaussian, d = 784": rng.standard_normal((n, 784)),
        "tight blobs, d = 32": blobs(n, 32, 0.05),
        "loose blobs, d = 32": blobs(n, 32, 4.0),
        "uniform, d = 2": rng.random((n, 2)),
        "uniform, d = 32": rng.random((n, 32)),
        "1,000 distinct of 20,000": rng.standard_normal((1000, 32))[rng.integers(1000, size=n)],
        "outliers, heavy tail": rng.standard_t(1.5, (n, 8)),
        "n = 1,000": rng.standard_normal((1000, 32)),
        "n = 5,000": rng.standard_normal((5000, 32)),
    }
    usual = reduction.SPLIT_FROM
    print(f"\n{'data':<28}{'seconds':>9}{'all sorted':>12}{'curve':>8}{'all sorted':>12}")
    for name, X in data.items():
        X = X.astype(np.float32)
        figures = []
        for work in (silchunk.silhouette_upper_bound, silchunk.silhouette_bounds):
            for split_from in (usual, 1 << 60):
                reduction.SPLIT_FROM = split_from
                figures.append(nanoseconds(lambda work=work, X=X: work(X), 1, 3) / 1e9)
        reduction.SPLIT_FROM = usual
        print(
            f"{name:<28}{figures[0]:>9.3f}{figures[1]:>12.3f}{figures[2]:>8.3f}{figures[3]:>12.3f}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", action="store_true")
    print_machine(machine())
    if parser.parse_args().shapes:
        shapes()
    else:
        steps(points(PEER_SIZE))
