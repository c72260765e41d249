"""Time, peak memory and error of silhouettes and indices, against their peers.

    python benchmarks/silhouette.py                         # everything, about six minutes
    python benchmarks/silhouette.py --no-peers              # silchunk alone
    python benchmarks/silhouette.py --manhattan-python P    # P: a Python with manhattan-silhouette
    python benchmarks/silhouette.py --json out.json

Twenty clusters in 32 dimensions, float32. Every figure is the median of runs in fresh processes. A
process compiles or loads its kernels on a small input first, then the job from points to scores is
timed. The peer manhattan-silhouette needs Python 3.13, so it runs in an interpreter of its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from common import (
    PEER_SIZE,
    growth_exponent,
    labelled_points,
    machine,
    measure,
    peak_bytes,
    print_machine,
    report,
    write_json,
)

LARGE, MILLION = 100_000, 1_000_000
LARGE_BUDGET, STORED_BUDGET = "512MiB", "512MiB"
SAMPLE = 1000
SMALL = 3000  # points that kernels are compiled on

MANHATTAN_PEER = """
import json, sys, time
import numpy, numpy.typing
numpy.ArrayLike = numpy.typing.ArrayLike
from manhattan_silhouette import silhouette_score_manhattan
n, small = sys.argv[1:]

def peak():
    status = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))

silhouette_score_manhattan(numpy.load(f"X-{small}.npy"), numpy.load(f"labels-{small}.npy"))
base = peak()
X, labels = numpy.load(f"X-{n}.npy"), numpy.load(f"labels-{n}.npy")
began = time.perf_counter()
score = silhouette_score_manhattan(X, labels)
seconds = time.perf_counter() - began
facts = {"score": float(score), "seconds": seconds, "peak_bytes": peak(), "base_bytes": base}
print(json.dumps(facts))
"""


def exact(X, labels):
    import silchunk

    return silchunk.silhouette_samples(X, labels, memory=LARGE_BUDGET).mean()


def sklearn_exact(X, labels):
    from sklearn.metrics import silhouette_samples

    return silhouette_samples(X, labels).mean()


def largest_error(X, labels):
    """Of any point's silhouette, against scikit-learn's in float64."""
    import numpy as np
    from sklearn.metrics import silhouette_samples

    import silchunk

    ours = silchunk.silhouette_samples(X, labels)
    return np.abs(ours - silhouette_samples(X.astype(np.float64), labels)).max()


def sqeuclidean(X, labels):
    import silchunk

    return silchunk.silhouette_score(X, labels, metric="sqeuclidean")


def manhattan(X, labels):
    import silchunk

    return silchunk.silhouette_score(X, labels, metric="manhattan")


def sampled(X, labels):
    import silchunk

    found = silchunk.silhouette_score(X, labels, sample_size=SAMPLE, random_state=0)
    return {"score": float(found), "standard_error": found.standard_error}


def scalable_64(X, labels):
    import silhouette_scalable

    return silhouette_scalable.compute_local(X, labels, t=64, threads=2)["global_silhouette"]


def scalable_512(X, labels):
    import silhouette_scalable

    return silhouette_scalable.compute_local(X, labels, t=512, threads=2)["global_silhouette"]


def davies_bouldin(X, labels):
    import silchunk

    return silchunk.davies_bouldin_score(X, labels)


def sklearn_davies_bouldin(X, labels):
    from sklearn.metrics import davies_bouldin_score

    return davies_bouldin_score(X, labels)


def davies_bouldin_stored(path, labels):
    import silchunk

    return silchunk.davies_bouldin_score(path, labels, memory=STORED_BUDGET)


JOBS = {
    f.__name__: f
    for f in (
        exact,
        sklearn_exact,
        largest_error,
        sqeuclidean,
        manhattan,
        sampled,
        scalable_64,
        scalable_512,
        davies_bouldin,
        sklearn_davies_bouldin,
        davies_bouldin_stored,
    )
}


OWN_JOBS = [
    ("exact", 10_000),
    ("exact", PEER_SIZE),
    ("exact", 2 * PEER_SIZE),
    ("exact", LARGE),
    ("sampled", LARGE),
    ("manhattan", LARGE),
    ("sqeuclidean", MILLION),
    ("davies_bouldin", MILLION),
    ("davies_bouldin_stored", MILLION),
]
PEER_JOBS = [
    ("sklearn_exact", PEER_SIZE),
    ("largest_error", PEER_SIZE),
    ("scalable_64", LARGE),
    ("scalable_512", LARGE),
    ("sklearn_davies_bouldin", MILLION),
]


def run_job(name: str, n: int, folder: Path) -> None:
    """In a fresh process."""
    import numpy as np

    small = [np.load(folder / f"{part}-{SMALL}.npy") for part in ("X", "labels")]
    if name == "davies_bouldin_stored":
        davies_bouldin(*small)
        report(_named, JOBS[name], str(folder / "X.zarr"), str(folder / f"labels-{n}.npy"))
        return
    JOBS[name](*small)
    base = peak_bytes()
    X, labels = (np.load(folder / f"{part}-{n}.npy") for part in ("X", "labels"))
    report(_named, JOBS[name], X, labels, base)


def _named(job, X, labels, base=None) -> dict:
    result = job(X, labels)
    result = result if isinstance(result, dict) else {"score": float(result)}
    return {**result, "base_bytes": base}


def write_inputs(folder: Path) -> None:
    """Points and labels of every size, the largest as a Zarr array too."""
    import numpy as np
    import zarr

    for n in (SMALL, 10_000, PEER_SIZE, 2 * PEER_SIZE, LARGE, MILLION):
        X, labels = labelled_points(n)
        np.save(folder / f"X-{n}.npy", X)
        np.save(folder / f"labels-{n}.npy", labels)
    array = zarr.create_array(
        folder / "X.zarr", shape=X.shape, chunks=(16_384, X.shape[1]), dtype=X.dtype
    )
    array[:] = X


def manhattan_peer(python: str, repeats: int, folder: str) -> dict:
    """The same points in another interpreter."""
    command = [python, "-c", MANHATTAN_PEER, str(LARGE), str(SMALL)]
    runs = [
        json.loads(subprocess.run(command, cwd=folder, check=True, capture_output=True).stdout)
        for _ in range(repeats)
    ]
    seconds = statistics.median(run["seconds"] for run in runs)
    peak = max(run["peak_bytes"] for run in runs)
    return {**runs[0], "job": "manhattan_peer", "n": LARGE, "seconds": seconds, "peak_bytes": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--manhattan-python", metavar="P")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--job", choices=JOBS, help=argparse.SUPPRESS)
    parser.add_argument("--n", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        run_job(options.job, options.n, Path(options.folder))
        return
    few = min(3, options.repeats)
    peers = [] if options.no_peers else PEER_JOBS
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(Path(folder))
        rows = [
            measure(__file__, job, n, repeats, "--folder", folder)
            for jobs, repeats in ((OWN_JOBS, options.repeats), (peers, few))
            for job, n in jobs
        ]
        if options.manhattan_python:
            rows.append(manhattan_peer(options.manhattan_python, few, folder))
    results = {"machine": machine(), "rows": rows}
    show(results)
    write_json(options.json, results)


def show(results: dict) -> None:
    rows = {(row["job"], row["n"]): row for row in results["rows"]}
    print_machine(results["machine"])
    print(f"\n{'job':<24}{'n':>10}{'seconds':>10}{'peak MiB':>10}{'score':>11}")
    for (job, n), row in rows.items():
        print(
            f"{job:<24}{n:>10,}{row['seconds']:>10.3f}{row['peak_bytes'] / 2**20:>10.0f}"
            f"{row['score']:>11.6f}"
        )
    ours = [row for (job, _), row in rows.items() if job == "exact"]
    results["growth_exponent"] = growth_exponent(ours)
    print(f"\ngrowth exponent of exact, 10,000 to {LARGE:,}: {results['growth_exponent']:.3f}")
    for job, peer, n in (
        ("exact", "sklearn_exact", PEER_SIZE),
        ("manhattan", "manhattan_peer", LARGE),
        ("davies_bouldin", "sklearn_davies_bouldin", MILLION),
        ("davies_bouldin_stored", "sklearn_davies_bouldin", MILLION),
    ):
        if (peer, n) in rows:
            times, memory = (
                rows[peer, n][key] / rows[job, n][key] for key in ("seconds", "peak_bytes")
            )
            print(f"{job} against {peer}: {times:.2f} times faster, 1/{memory:.2f} of the memory")
            own, other = (rows[name, n] for name in (job, peer))
            if own["base_bytes"] and other["base_bytes"]:
                beyond = [(row["peak_bytes"] - row["base_bytes"]) / 2**20 for row in (own, other)]
                print(
                    f"  beyond what {SMALL:,} points take, the interpreter and its libraries "
                    f"above all: {beyond[0]:.0f} against {beyond[1]:.0f} MiB"
                )
    if ("largest_error", PEER_SIZE) in rows:
        error = rows["largest_error", PEER_SIZE]["score"]
        print(f"exact in float32 against scikit-learn in float64, largest difference: {error:.1e}")
    truth = rows["exact", LARGE]["score"]
    print(f"\nestimates at n = {LARGE:,}, exact {truth:.6f}:")
    for job in ("sampled", "scalable_64", "scalable_512"):
        if (job, LARGE) in rows:
            row = rows[job, LARGE]
            told = f", standard error {row['standard_error']:.6f}" if job == "sampled" else ""
            print(
                f"  {job:<14} {row['seconds']:.3f} s, off by {abs(row['score'] - truth):.6f}{told}"
            )


if __name__ == "__main__":
    sys.exit(main())
