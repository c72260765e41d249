"""Time and peak memory of the silhouette bound, against the reference package.

    python benchmarks/bound.py              # everything, about eight minutes on two cores
    python benchmarks/bound.py --no-peer    # silchunk alone
    python benchmarks/bound.py --json out.json

Every figure is the median of runs in fresh processes: compiled code is loaded and warmed up on a
small input first, then the job from points to bound is timed. Peak memory is the process's high
water mark (VmHWM), interpreter and libraries included.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

N_FEATURES = 32
PEER_SIZE = 20_000
GROWTH_SIZES = (10_000, 20_000, 40_000)


def points(n: int):
    """Twenty Gaussian clusters in 32 dimensions, float32."""
    import numpy as np

    rng = np.random.default_rng(0)
    centres = rng.uniform(-10, 10, (20, N_FEATURES))
    labels = rng.integers(20, size=n)
    return (centres[labels] + 2 * rng.standard_normal((n, N_FEATURES))).astype(np.float32)


def one_size(X):
    import silchunk

    return silchunk.silhouette_upper_bound(X)


def ten_sizes(X):
    import silchunk

    sizes = [1 + i * len(X) // 20 for i in range(10)]
    return float(silchunk.silhouette_upper_bound(X, min_cluster_size=sizes)[0])


def whole_curve(X):
    import silchunk

    return silchunk.silhouette_bounds(X).asw


def peer(X):
    import numpy as np
    import silhouette_upper_bound
    from sklearn.metrics import pairwise_distances

    D = pairwise_distances(X)
    np.fill_diagonal(D, 0)
    return float(silhouette_upper_bound.upper_bound(np.maximum(D, D.T)))


JOBS = {f.__name__: f for f in (one_size, ten_sizes, whole_curve, peer)}


def run_job(name: str, n: int) -> None:
    """In a fresh process: print bound, seconds and peak bytes as JSON."""
    X = points(n)
    JOBS[name](points(200))
    began = time.perf_counter()
    bound = JOBS[name](X)
    seconds = time.perf_counter() - began
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))
    print(json.dumps({"bound": bound, "seconds": seconds, "peak_bytes": peak}))


def measure(name: str, n: int, repeats: int) -> dict:
    runs = []
    for _ in range(repeats):
        command = [sys.executable, __file__, "--job", name, "--n", str(n)]
        runs.append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
    return {
        "job": name,
        "n": n,
        "bound": runs[0]["bound"],
        "seconds": statistics.median(run["seconds"] for run in runs),
        "all_seconds": sorted(run["seconds"] for run in runs),
        "peak_bytes": max(run["peak_bytes"] for run in runs),
    }


def growth_exponent(rows: list[dict]) -> float:
    """Slope of the least-squares line through (log n, log seconds)."""
    x = [math.log(row["n"]) for row in rows]
    y = [math.log(row["seconds"]) for row in rows]
    return statistics.linear_regression(x, y).slope


def machine() -> dict:
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    names = ("silchunk", "numpy", "numba", "dask", "scikit-learn", "silhouette-upper-bound")
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: version(name) for name in names},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--job", choices=JOBS, help=argparse.SUPPRESS)
    parser.add_argument("--n", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        run_job(options.job, options.n)
        return
    rows = [measure("one_size", n, options.repeats) for n in GROWTH_SIZES]
    rows += [measure(name, PEER_SIZE, options.repeats) for name in ("ten_sizes", "whole_curve")]
    if not options.no_peer:
        rows.append(measure("peer", PEER_SIZE, min(3, options.repeats)))
    ours = next(row for row in rows if row["n"] == PEER_SIZE)
    results = {
        "machine": machine(),
        "rows": rows,
        "growth_exponent": growth_exponent(rows[: len(GROWTH_SIZES)]),
    }
    for name, value in results["machine"].items():
        print(f"{name:<24}{value}")
    print(
        f"\n{'job':<14}{'n':>8}{'seconds':>10}{'peak MiB':>10}{'bound':>10}{'time / one_size':>17}"
    )
    for row in rows:
        same_n = row["n"] == PEER_SIZE
        ratio = f"{row['seconds'] / ours['seconds']:.2f}" if same_n else ""
        print(
            f"{row['job']:<14}{row['n']:>8,}{row['seconds']:>10.2f}"
            f"{row['peak_bytes'] / 2**20:>10.0f}{row['bound']:>10.6f}{ratio:>17}"
        )
    print(
        f"\ngrowth exponent {GROWTH_SIZES[0]:,} to {GROWTH_SIZES[-1]:,}: "
        f"{results['growth_exponent']:.3f}"
    )
    if not options.no_peer:
        times = rows[-1]["seconds"] / ours["seconds"]
        memory = rows[-1]["peak_bytes"] / ours["peak_bytes"]
        results |= {"times_faster": times, "times_less_memory": memory}
        print(
            f"against the peer at n = {PEER_SIZE:,}: {times:.1f} times faster, "
            f"1/{memory:.1f} of the memory"
        )
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
