"""Time, peak memory and size of distance stores, against the reference package and plain Zarr.

    python benchmarks/store.py                  # everything but the large one, about five minutes
    python benchmarks/store.py --no-peer        # silchunk and plain Zarr alone
    python benchmarks/store.py --large 100000   # one large store: 40 GB of distances
    python benchmarks/store.py --presets        # the table of compact stores alone

Every figure is the median of runs in fresh processes on the points of ``common.py``. Stores are
made in ``--folder`` (default: the system's temporary folder) and deleted. Throughput counts the raw
bytes of the distances.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import PEER_SIZE, machine, measure, peak_bytes, points

BUDGET = "512MiB"
BOUND = str(Path(__file__).with_name("bound.py"))
LARGE_BUDGET = "1GiB"


def build_and_bound(folder: Path, n: int, budget: str, keep_bits: str) -> dict:
    """Build a store and bound it, under one budget."""
    import silchunk

    X = points(n)
    small = silchunk.build_distances(points(9000), folder / "warm.zarr")
    silchunk.silhouette_upper_bound(small)
    began = time.perf_counter()
    D = silchunk.build_distances(X, folder / "d.zarr", memory=budget, keep_bits=keep_bits)
    built = time.perf_counter()
    bound = silchunk.silhouette_upper_bound(D, memory=budget)
    bounded = time.perf_counter()
    return {
        "build_seconds": built - began,
        "bound_seconds": bounded - built,
        "bound": bound,
        "peak_bytes": peak_bytes(),
        "stored_bytes": D.nbytes_stored,
        "files": sum(1 for p in (folder / "d.zarr").rglob("*") if p.is_file()),
        "raw_bytes": n * n * 4,
        "relative_error": D.relative_error,
    }


def plain_zarr(folder: Path, n: int, budget: str, keep_bits: str) -> dict:
    """The same panels written and read by Zarr's own interface in a plain loop."""
    import zarr
    from zarr.storage import LocalStore

    import silchunk

    D = silchunk.build_distances(points(n), folder / "d.zarr", memory=budget)
    ours = zarr.open_array(LocalStore(folder / "d.zarr"), mode="r")
    copy = zarr.create_array(
        LocalStore(folder / "plain.zarr"),
        shape=ours.shape,
        chunks=ours.chunks,
        shards=ours.shards,
        dtype=ours.dtype,
        fill_value=float("nan"),
        compressors=ours.compressors,
        config={"write_empty_chunks": True},
    )
    writing = reading = 0.0
    step = D.layout.panel_rows
    for start in range(0, n, step):
        panel = D.rows(start, min(n, start + step))
        began = time.perf_counter()
        copy[start : start + step] = panel
        writing += time.perf_counter() - began
    for start in range(0, n, step):
        began = time.perf_counter()
        copy[start : start + step]
        reading += time.perf_counter() - began
    return {"write_seconds": writing, "read_seconds": reading, "raw_bytes": n * n * 4}


JOBS = {f.__name__: f for f in (build_and_bound, plain_zarr)}


def run_job(job: str, folder: str, n: int, budget: str, keep_bits: str, repeats: int) -> dict:
    """Medians over fresh processes, each with a folder of its own."""
    runs = []
    for _ in range(repeats):
        place = tempfile.mkdtemp(prefix="silchunk-benchmark-", dir=folder)
        command = [sys.executable, __file__, "--job", job, "--folder", place, "--n", str(n)]
        command += ["--budget", budget, "--keep-bits", keep_bits]
        try:
            runs.append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
        finally:
            shutil.rmtree(place, ignore_errors=True)
    result = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    if "peak_bytes" in result:
        result["peak_bytes"] = max(run["peak_bytes"] for run in runs)
    return result


def show_presets(folder: str, repeats: int) -> dict:
    """The table of compact stores."""
    print(f"\ncompact stores, n = {PEER_SIZE:,}")
    print("keep_bits   bits  relative error  times smaller  build s  bound s   upper bound")
    table = {}
    for name, bits in (("none", 23), ("fast", 12), ("small", 8)):
        row = run_job("build_and_bound", folder, PEER_SIZE, BUDGET, name, repeats)
        table[name] = row
        print(
            f"{name:<10}{bits:>6}{row['relative_error']:>16.1e}"
            f"{row['raw_bytes'] / row['stored_bytes']:>15.2f}{row['build_seconds']:>9.2f}"
            f"{row['bound_seconds']:>9.2f}{row['bound']:>14.6f}"
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--presets", action="store_true")
    parser.add_argument("--large", type=int, metavar="N")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--job", choices=JOBS, help=argparse.SUPPRESS)
    parser.add_argument("--n", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--budget", help=argparse.SUPPRESS)
    parser.add_argument("--keep-bits", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        job = JOBS[options.job]
        print(json.dumps(job(Path(options.folder), options.n, options.budget, options.keep_bits)))
        return
    results: dict = {"machine": machine()}
    for name, value in results["machine"].items():
        print(f"{name:<24}{value}")
    if options.large:
        row = run_job("build_and_bound", options.folder, options.large, LARGE_BUDGET, "none", 1)
        results["large"] = row
        print(
            f"\nn = {options.large:,} under {LARGE_BUDGET}: build {row['build_seconds']:.0f} s, "
            f"bound {row['bound_seconds']:.0f} s, peak {row['peak_bytes'] / 2**20:.0f} MiB, "
            f"{row['stored_bytes'] / 1e9:.1f} GB in {row['files']:,.0f} files"
        )
    elif options.presets:
        results["presets"] = show_presets(options.folder, options.repeats)
    else:
        ours = run_job(
            "build_and_bound", options.folder, PEER_SIZE, BUDGET, "none", options.repeats
        )
        plain = run_job("plain_zarr", options.folder, PEER_SIZE, BUDGET, "none", options.repeats)
        seconds = ours["build_seconds"] + ours["bound_seconds"]
        rate = {
            "build": ours["raw_bytes"] / ours["build_seconds"] / 1e6,
            "plain loop of whole-shard writes": plain["raw_bytes"] / plain["write_seconds"] / 1e6,
            "bound from the store": ours["raw_bytes"] / ours["bound_seconds"] / 1e6,
            "plain loop of whole-shard reads": plain["raw_bytes"] / plain["read_seconds"] / 1e6,
        }
        results |= {"build_and_bound": ours, "plain_zarr": plain, "megabytes_per_second": rate}
        print(
            f"\nn = {PEER_SIZE:,} under {BUDGET}: build {ours['build_seconds']:.2f} s + bound "
            f"{ours['bound_seconds']:.2f} s = {seconds:.2f} s, peak "
            f"{ours['peak_bytes'] / 2**20:.0f} MiB, "
            f"{ours['stored_bytes'] / 1e9:.2f} GB in {ours['files']:.0f} files"
        )
        for name, value in rate.items():
            print(f"{name:<36}{value:>8.0f} MB/s")
        if not options.no_peer:
            peer = measure(BOUND, "peer", PEER_SIZE, options.repeats)
            results["peer"] = peer
            print(
                f"reference package in RAM: {peer['seconds']:.1f} s, "
                f"{peer['peak_bytes'] / 2**20:.0f} MiB: through the store "
                f"{peer['seconds'] / seconds:.1f} times faster"
            )
        results["presets"] = show_presets(options.folder, options.repeats)
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
