"""Time and peak memory of the bound, against scikit-learn and the reference package.

    python benchmarks/bound.py                # everything, about ten minutes
    python benchmarks/bound.py --no-peer      # silchunk alone
    python benchmarks/bound.py --no-large     # nothing beyond 40,000 points
    python benchmarks/bound.py --json out.json

Every figure is the median of runs in fresh processes. A process compiles or loads its kernels on a
small input first, then the job from points to bound is timed.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from common import (
    BUDGET,
    PEER_SIZE,
    machine,
    measure,
    points,
    print_machine,
    report,
    write_json,
)

LARGE, MILLION = 100_000, 1_000_000
SAMPLE = 2000


def one_size(X):
    import silchunk

    return silchunk.silhouette_upper_bound(X, memory=BUDGET)


def ten_sizes(X):
    import silchunk

    sizes = [1 + i * len(X) // 20 for i in range(10)]
    return float(silchunk.silhouette_upper_bound(X, min_cluster_size=sizes)[0])


def whole_curve(X):
    import silchunk

    return silchunk.silhouette_bounds(X).asw


def given_sizes(X):
    import silchunk

    n = len(X)
    sizes = [n // 40 * (k % 4 + 1) for k in range(15)]
    result = silchunk.silhouette_bounds(X, cluster_sizes=[*sizes, n - sum(sizes)])
    return {"bound": result.sized.asw, "macro": result.sized.macro}


def certified(X):
    import silchunk

    return silchunk.silhouette_upper_bound(X, certify=True)


def sampled(path):
    import silchunk

    result = silchunk.silhouette_upper_bound(
        path, sample_size=SAMPLE, random_state=0, memory=BUDGET
    )
    return {
        "bound": result.estimate,
        "standard_error": result.standard_error,
        "upper_limit": result.upper_limit,
    }


def peer(X):
    import numpy as np
    import silhouette_upper_bound
    from sklearn.metrics import pairwise_distances

    D = pairwise_distances(X)
    np.fill_diagonal(D, 0)
    return float(silhouette_upper_bound.upper_bound(np.maximum(D, D.T)))


JOBS = {f.__name__: f for f in (one_size, ten_sizes, whole_curve, given_sizes, certified, peer)}


def run_job(name: str, n: int, folder: str | None) -> None:
    """In a fresh process."""
    import numpy as np

    if name == "sampled":
        import silchunk

        # Above what is held at once, so that all kernels of a long row are compiled.
        small = np.random.default_rng(0).random((70_000, 2), np.float32)
        silchunk.silhouette_upper_bound(small, sample_size=4, random_state=0)
        report(sampled, folder)
        return
    JOBS[name](points(10_000 if name != "peer" else 200))
    report(JOBS[name], points(n))


def million(folder: Path) -> Path:
    """A million points in a Zarr array."""
    import zarr

    path = folder / "million.zarr"
    X = points(MILLION)
    array = zarr.create_array(path, shape=X.shape, chunks=(16_384, X.shape[1]), dtype=X.dtype)
    array[:] = X
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--no-large", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--job", choices=[*JOBS, "sampled"], help=argparse.SUPPRESS)
    parser.add_argument("--n", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        run_job(options.job, options.n, options.folder)
        return
    few = min(3, options.repeats)
    rows = [measure(__file__, "one_size", n, options.repeats) for n in (PEER_SIZE, 2 * PEER_SIZE)]
    rows += [
        measure(__file__, job, PEER_SIZE, options.repeats)
        for job in ("ten_sizes", "whole_curve", "given_sizes", "certified")
    ]
    if not options.no_peer:
        rows.append(measure(__file__, "peer", PEER_SIZE, few))
    if not options.no_large:
        rows.append(measure(__file__, "one_size", LARGE, few))
        with tempfile.TemporaryDirectory() as folder:
            path = million(Path(folder))
            rows.append(measure(__file__, "sampled", MILLION, few, "--folder", str(path)))
    results = {"machine": machine(), "budget": BUDGET, "rows": rows}
    show(results)
    write_json(options.json, results)


def show(results: dict) -> None:
    rows = results["rows"]
    print_machine(results["machine"])
    ours = next(row for row in rows if (row["job"], row["n"]) == ("one_size", PEER_SIZE))
    print(
        f"\n{'job':<14}{'n':>10}{'seconds':>10}{'peak MiB':>10}{'bound':>10}{'time / one_size':>17}"
    )
    for row in rows:
        ratio = f"{row['seconds'] / ours['seconds']:.2f}" if row["n"] == PEER_SIZE else ""
        print(
            f"{row['job']:<14}{row['n']:>10,}{row['seconds']:>10.2f}"
            f"{row['peak_bytes'] / 2**20:>10.0f}{row['bound']:>10.6f}{ratio:>17}".rstrip()
        )
    print()
    for row in rows:
        if row["job"] == "peer":
            times, memory = (row[k] / ours[k] for k in ("seconds", "peak_bytes"))
            results |= {"times_faster": times, "times_less_memory": memory}
            print(
                f"against the peer at n = {PEER_SIZE:,}: {times:.1f} times faster, "
                f"1/{memory:.1f} of the memory"
            )
        if row["job"] == "sampled":
            print(
                f"{SAMPLE:,} sampled of {row['n']:,} points in Zarr under {BUDGET}: standard error "
                f"{row['standard_error']:.5f}, upper limit {row['upper_limit']:.6f}"
            )


if __name__ == "__main__":
    main()
