"""Seconds of one iteration of K-Sil, beside scikit-learn's Lloyd, dask-ml's and k-silhouette's.

python benchmarks/iterations.py              # from memory, against the peers
python benchmarks/iterations.py --stored     # 10,000,000 points in Zarr under 512 MiB

An iteration is the difference of two fits that differ in max_iter alone, from the same centres, by
their difference in iterations; fits of all are taken by turns, and medians of the pairs reported.
K-Sil runs alone, without k-means before it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from common import machine, measure, print_machine, report

import silchunk
from silchunk.cluster.ksil import KSil

SHAPES = ((200_000, 32, 20), (200_000, 128, 50))
ITERATIONS = 10
REPEATS = 7
# Its points pass through lists, so that a fit of all of them would take minutes.
KSILHOUETTE_POINTS = 20_000
STORED = 10_000_000, 16, 10
STORED_BUDGET = "512MiB"
# A multiple of 4,096 rows: chunks of other lengths are read twice in part.
BLOCK = 1 << 16


def data(n: int, d: int, n_clusters: int):
    """Overlapping clusters, float32, and centres far from where they settle."""
    rng = np.random.default_rng(0)
    middles = rng.uniform(-10, 10, (n_clusters, d))
    X = middles[rng.integers(n_clusters, size=n)] + 8 * rng.standard_normal((n, d))
    X = X.astype(np.float32)
    return X, X[rng.choice(n, n_clusters, replace=False)].astype(np.float64)


def ours(X, centres, max_iter):
    options = {"max_iter": max_iter, "tol": 0, "margin": None, "progress": False}
    model = KSil(len(centres), init=centres, **options)
    return model.fit(X).n_iter_


def lloyd(X, centres, max_iter):
    from sklearn.cluster import KMeans

    model = KMeans(len(centres), init=centres.astype(X.dtype), n_init=1, max_iter=max_iter, tol=0)
    return model.fit(X).n_iter_


def dask_ml(X, centres, max_iter):
    import dask.array
    from dask_ml.cluster import KMeans

    X = dask.array.from_array(X, chunks=(len(X) // 4, X.shape[1]))
    model = KMeans(len(centres), init=centres.astype(X.dtype), max_iter=max_iter, tol=0)
    return model.fit(X).n_iter_


def k_silhouette(X, centres, max_iter):
    from ksil import KSil as Peer

    model = Peer(
        len(centres),
        init_method="k-means++",
        sensitivity=1.0,
        approximation=True,
        tol=0,
        n_jobs=1,
        max_iter=max_iter,
    )
    model.fit(X)
    return max_iter


def seconds(fit, X, centres, max_iter) -> tuple[float, int]:
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that fits have not converged
        n_iter = fit(X, centres, max_iter)
    return time.perf_counter() - began, n_iter


def iteration(fit, X, centres, iterations) -> float:
    """Seconds of one iteration, from a short and a long fit."""
    short, fewer = seconds(fit, X, centres, 1)
    long, more = seconds(fit, X, centres, 1 + iterations)
    return (long - short) / (more - fewer)


def compare(n: int, d: int, n_clusters: int, repeats: int) -> dict:
    """Medians of all peers, one after the other within each repeat."""
    X, centres = data(n, d, n_clusters)
    jobs = {"silchunk": (ours, X, 40), "scikit-learn": (lloyd, X, 40), "dask-ml": (dask_ml, X, 5)}
    if n_clusters == SHAPES[0][2]:
        few = X[:KSILHOUETTE_POINTS]
        jobs["silchunk, 20,000 points"] = (ours, few, 40)
        jobs["k-silhouette, 20,000 points"] = (k_silhouette, few, 2)
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for fit, points, _ in jobs.values():
        seconds(fit, points, centres, 1)  # compiled and imported
    for _ in range(repeats):
        for name, (fit, points, iterations) in jobs.items():
            times[name].append(iteration(fit, points, centres, iterations))
    return {
        "n": n,
        "d": d,
        "n_clusters": n_clusters,
        "seconds": {name: statistics.median(all_) for name, all_ in times.items()},
        "all_seconds": times,
    }


def print_comparison(found: dict) -> None:
    print(
        f"\n{found['n']:,} points, d = {found['d']}, K = {found['n_clusters']}, float32, in memory"
    )
    times = found["seconds"]
    for name, value in times.items():
        of = "silchunk, 20,000 points" if "20,000" in name else "silchunk"
        print(f"{name:<30}{value * 1e3:>10.1f} ms{value / times[of]:>10.2f} times silchunk")
    print(f"silchunk / scikit-learn: {times['silchunk'] / times['scikit-learn']:.2f}")


def stored_points(folder: Path) -> Path:
    """Ten million points in Zarr, chunks of 65,536."""
    import zarr

    n, d, n_clusters = STORED
    path = folder / "points.zarr"
    array = zarr.create_array(path, shape=(n, d), chunks=(BLOCK, d), dtype="float32")
    rng = np.random.default_rng(0)
    middles = rng.uniform(-10, 10, (n_clusters, d)).astype(np.float32)
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        noise = rng.standard_normal((size, d), dtype=np.float32)
        array[start : start + size] = middles[rng.integers(n_clusters, size=size)] + 6 * noise
    return path


def fit_stored(path: str, max_iter: int) -> dict:
    """One fit from Zarr, in this process."""
    import zarr

    n_clusters = STORED[2]
    centres = np.asarray(zarr.open_array(path, mode="r")[:n_clusters], np.float64)
    options = {"max_iter": max_iter, "tol": 0, "margin": None, "progress": False}
    model = KSil(n_clusters, init=centres, memory=STORED_BUDGET, **options)
    model.fit(path)
    return {"n_iter": model.n_iter_}


def read_stored(path: str) -> dict:
    """All blocks read once, by as many threads as there are."""
    import os
    from concurrent.futures import ThreadPoolExecutor

    import zarr

    array = zarr.open_array(path, mode="r")
    starts = range(0, array.shape[0], BLOCK)
    began = time.perf_counter()
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        for _ in threads.map(lambda start: array[start : start + BLOCK].shape, starts):
            pass
    return {"reading_seconds": time.perf_counter() - began}


def kernel_in_memory(path: str) -> dict:
    """An iteration over a tenth of the points in memory, times ten."""
    import zarr

    n_clusters = STORED[2]
    X = np.asarray(zarr.open_array(path, mode="r")[: STORED[0] // 10])
    centres = X[:n_clusters].astype(np.float64)
    seconds(ours, X, centres, 1)
    times = [iteration(ours, X, centres, ITERATIONS) for _ in range(3)]
    return {"kernel_seconds": 10 * statistics.median(times)}


def stored(repeats: int) -> dict:
    """Iterations from Zarr under a budget, reading alone, and the kernel alone."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(stored_points(Path(folder)))
        runs = {}
        for max_iter in (1, 6):
            runs[max_iter] = measure(
                __file__, f"fit-{max_iter}", STORED[0], repeats, "--path", path
            )
        reading = measure(__file__, "read", STORED[0], repeats, "--path", path)
        kernel = measure(__file__, "kernel", STORED[0], 1, "--path", path)
    more = runs[6]["n_iter"] - runs[1]["n_iter"]
    iteration_seconds = (runs[6]["seconds"] - runs[1]["seconds"]) / more
    alone = reading["reading_seconds"] + kernel["kernel_seconds"]
    return {
        "iteration_seconds": iteration_seconds,
        "reading_seconds": reading["reading_seconds"],
        "kernel_seconds": kernel["kernel_seconds"],
        "ratio": iteration_seconds / alone,
        "peak_bytes": runs[6]["peak_bytes"],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--stored", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--n", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--path", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        name, _, count = arguments.job.partition("-")
        if name == "fit":
            report(fit_stored, arguments.path, int(count))
        else:
            report({"read": read_stored, "kernel": kernel_in_memory}[name], arguments.path)
        raise SystemExit
    described = machine()
    print_machine(described)
    result: dict = {"machine": described, "silchunk": silchunk.__version__}
    if arguments.stored:
        found = stored(min(arguments.repeats, 3))
        result["stored"] = found
        print(f"\n{STORED[0]:,} points, d = {STORED[1]}, K = {STORED[2]}, Zarr, {STORED_BUDGET}")
        peak = found["peak_bytes"] >> 20
        print(f"iteration {found['iteration_seconds']:.2f} s, peak {peak} MiB")
        print(
            f"reading once {found['reading_seconds']:.2f} s, "
            f"kernel {found['kernel_seconds']:.2f} s: {found['ratio']:.2f} times both"
        )
    else:
        result["memory"] = [compare(*shape, arguments.repeats) for shape in SHAPES]
        for comparison in result["memory"]:
            print_comparison(comparison)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2))
