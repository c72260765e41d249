"""What a cluster costs beside threads: the same bound on both, and panels that do nothing, in
messages as they travel and one by one.

    python benchmarks/engine.py                # two processes against two threads, two minutes
    python benchmarks/engine.py --n 5000 --repeats 3 --json out.json

Points lie in a .npy file. Both ways run once before, so that workers are there and kernels
compiled, then by turns. Processor time is that of all processes: where the driver has no core of
its own, it says more than the clock does.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import numpy as np
import psutil
from common import BUDGET, PEER_SIZE, machine, points, print_machine, write_json

import silchunk
from silchunk import engine
from silchunk.engine import flight
from silchunk.engine.connecting import connected

WORKERS = 2
TASKS = 500
# What was asked for: time on the cluster, over that on as many threads.
LARGEST_RATIO = 1.15
# Threads of a single worker that does nothing: how many panels may be under way.
CROWD = 64


@contextmanager
def workers(count: int, threads: int) -> Iterator[engine.Executor]:
    """Where tasks run on so many processes of this machine, as with ``--workers``."""
    with connected(workers=count, threads=threads):
        yield engine.executor()


def nothing(start: int, stop: int) -> int:
    """A panel that takes no time."""
    return start


def task_seconds(where: engine.Executor, tasks: int) -> float:
    """Seconds for each of many panels that take no time."""
    panels = [(i, i + 1) for i in range(tasks)]

    def run(count: int) -> float:
        began = time.perf_counter()
        engine.map_panels(nothing, panels[:count], lambda i, _: None, where=where, progress=False)
        return time.perf_counter() - began

    run(min(tasks, 4 * where.processes * where.concurrency))  # connections are made
    return run(tasks) / tasks


@contextmanager
def alone() -> Iterator[None]:
    """Within it, every panel travels in a message of its own, as those do that take long."""
    usual, flight.MESSAGE_SECONDS = flight.MESSAGE_SECONDS, 0.0
    try:
        yield
    finally:
        flight.MESSAGE_SECONDS = usual


def processor_seconds(where: engine.Executor) -> dict[str, float]:
    """Processor time so far, of this process (with the scheduler of its cluster) and of workers."""
    pids = {} if where.client is None else where.client.run(os.getpid)
    return {
        "driver": time.process_time(),
        "workers": sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids.values()),
    }


def bound(path: Path, where: engine.Executor) -> dict[str, float]:
    """Seconds of one bound, by the clock and of processors."""
    before = processor_seconds(where)
    began = time.perf_counter()
    silchunk.silhouette_upper_bound(
        path, memory=BUDGET, progress=False, scheduler=where.client or where.scheduler
    )
    seconds = time.perf_counter() - began
    after = processor_seconds(where)
    return {"seconds": seconds, **{name: after[name] - before[name] for name in after}}


def compare(n: int, repeats: int) -> dict:
    """Medians of bounds on threads and on as many processes, by turns."""
    with tempfile.TemporaryDirectory() as folder, workers(WORKERS, 1) as cluster:
        path = Path(folder) / "points.npy"
        np.save(path, points(n))
        with dask.config.set(num_workers=WORKERS):
            places = {"threads": engine.executor("threads"), "cluster": cluster}
            runs: dict[str, list[dict]] = {name: [] for name in places}
            for where in places.values():
                bound(path, where)
            for _ in range(repeats):
                for name, where in places.items():
                    runs[name].append(bound(path, where))
    pairs = zip(runs["cluster"], runs["threads"], strict=True)
    medians = {
        name: {key: statistics.median(run[key] for run in all_) for key in all_[0]}
        for name, all_ in runs.items()
    }
    return {
        "n": n,
        "medians": medians,
        "ratio": statistics.median(one["seconds"] / other["seconds"] for one, other in pairs),
        "all": runs,
    }


def rates(tasks: int, repeats: int) -> dict[str, Any]:
    """Panels a second that take no time, medians."""

    def rate(where: engine.Executor, count: int) -> float:
        return 1 / statistics.median(task_seconds(where, count) for _ in range(repeats))

    def processors(where: engine.Executor) -> dict[str, float]:
        """Milliseconds of them for each panel."""
        before = processor_seconds(where)
        task_seconds(where, tasks)
        after = processor_seconds(where)
        return {name: 1000 * (after[name] - before[name]) / tasks for name in after}

    found: dict[str, Any] = {}
    with dask.config.set(num_workers=WORKERS):
        found[f"{WORKERS} threads"] = rate(engine.executor("threads"), 10 * tasks)
    for count, threads in ((1, 1), (WORKERS, 1), (1, CROWD)):
        with workers(count, threads) as where:
            found[f"{count} x {threads} on a cluster"] = rate(where, 10 * tasks)
            with alone():
                found[f"{count} x {threads}, one by one"] = rate(where, tasks)
                if (count, threads) == (WORKERS, 1):
                    found["processors"] = processors(where)
    return found


def show(results: dict) -> None:
    print_machine(results["machine"])
    found = results["bound"]
    print(f"\nbound of {found['n']:,} points in a .npy file, medians")
    print(f"{'':<10}{'seconds':>10}{'processor seconds: driver':>28}{'workers':>10}")
    for name, row in found["medians"].items():
        print(f"{name:<10}{row['seconds']:>10.3f}{row['driver']:>28.3f}{row['workers']:>10.3f}")
    print(f"cluster / threads: {found['ratio']:.3f} (asked for: {LARGEST_RATIO})")
    print("\npanels a second that do nothing")
    rates_, each = dict(results["rates"]), results["rates"]["processors"]
    del rates_["processors"]
    for name, value in rates_.items():
        print(f"{name:<24}{value:>12,.0f}")
    print("processor time of a message that does nothing: ", end="")
    print(f"driver {each['driver']:.1f} ms, workers {each['workers']:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=PEER_SIZE)
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    results = {
        "machine": machine(),
        "bound": compare(options.n, options.repeats),
        "rates": rates(options.tasks, min(3, options.repeats)),
    }
    show(results)
    write_json(options.json, results)


if __name__ == "__main__":
    main()
