"""A simulated schedule of bounds on 1 to 512 workers, and its formula against real runs.

    python benchmarks/schedule.py              # three minutes
    python benchmarks/schedule.py --n 5000 --json out.json

Measured in one run: the time of a row among one and two threads, the round trip and the driver's
time for a message, by panels that do nothing. All else follows:

- a panel of r rows takes r times the time of a row, which grows with n;
- short panels travel several in one message, of a quarter of a second or fewer where few are left;
- a worker's thread has two messages sent to it, so that it goes on while a result travels;
- a result takes half a round trip to the driver and the next message half a round trip back; the
  driver takes results one after the other.

Events are played one by one; the formula of ``silchunk estimate --cluster`` is printed beside them,
both against bounds that are really computed on one and two workers of one thread.
"""

from __future__ import annotations

import argparse
import heapq
import math
import os
import statistics
import tempfile
import time
from pathlib import Path

import dask
import numpy as np
from common import BUDGET, PEER_SIZE, machine, points, print_machine, write_json
from engine import CROWD, alone, task_seconds, workers

import silchunk
from silchunk.cluster_size import panels_together, schedule_seconds
from silchunk.engine.flight import SENT_AHEAD
from silchunk.plan import PREFERRED_PANEL_ROWS, plan_panels

SIZES = (20_000, 100_000, 1_000_000, 10_000_000)
WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
TASKS = 1000
REAL = (1, 2)
REPEATS = 3


def simulate(
    n_panels: int, panel_seconds: float, at_once: int, round_trip: float, result: float
) -> float:
    """Play a job: messages sent, computed, sent back, and taken by the driver."""
    threads = [0.0] * at_once  # when each is free
    finished: list[float] = []
    driver, sent = 0.0, 0
    most = panels_together(n_panels, panel_seconds, at_once)

    def send() -> int:
        """The next message; returns how many panels are in it."""
        together = min(most, math.ceil((n_panels - sent) / at_once))
        ended = max(driver + round_trip / 2, threads[0]) + together * panel_seconds
        heapq.heapreplace(threads, ended)
        heapq.heappush(finished, ended)
        return together

    while sent < n_panels and len(finished) < SENT_AHEAD * at_once:
        sent += send()
    while finished:
        driver = max(driver, heapq.heappop(finished) + round_trip / 2) + result
        if sent < n_panels:
            sent += send()
    return driver


def messages(tasks: int) -> dict[str, float]:
    """What the engine takes for a message."""
    with workers(1, 1) as where, alone():
        # Two are under way: one of them ends every half of a round trip.
        round_trip = SENT_AHEAD * task_seconds(where, tasks)
    with workers(1, CROWD) as where, alone():
        result = task_seconds(where, tasks)
    return {"round_trip": round_trip, "result": result}


def real_seconds(path: Path, count: int) -> tuple[float, float]:
    """Of a row among so many threads, and of a bound on as many workers of one thread: medians,
    taken by turns, kernels compiled before."""
    rows, bounds = [], []
    with workers(count, 1) as where, dask.config.set(num_workers=count):
        for _ in range(1 + REPEATS):
            estimate = silchunk.estimate_bounds(path, memory=BUDGET, scheduler="threads")
            rows.append(estimate.row_seconds)
            began = time.perf_counter()
            silchunk.silhouette_upper_bound(
                path, memory=BUDGET, progress=False, scheduler=where.client
            )
            bounds.append(time.perf_counter() - began)
    return statistics.median(rows[1:]), statistics.median(bounds[1:])


def table(found: dict, n0: int, width: int) -> list[dict]:
    """Times and efficiency for sizes and numbers of workers."""
    rows = []
    # All cores of a machine at work, as on a cluster.
    row_seconds = found["row_seconds"][REAL[-1]] / n0
    for n in SIZES:
        plan = plan_panels(
            n=n,
            width=width,
            itemsize=4,
            budget_bytes=1 << 60,
            concurrency=1,
            from_points=True,
            resident_bytes=16 * n,
            outputs=0,
            panel_rows=PREFERRED_PANEL_ROWS,
        )
        panel = row_seconds * n * plan.panel_rows
        for count in WORKERS:
            seconds = simulate(plan.n_panels, panel, count, found["round_trip"], found["result"])
            formula = schedule_seconds(
                plan.n_panels,
                panel,
                count,
                round_trip_seconds=found["round_trip"],
                result_seconds=found["result"],
            )
            rows.append(
                {
                    "n": n,
                    "workers": count,
                    "panels": plan.n_panels,
                    "panel_seconds": panel,
                    "peak_bytes": plan.peak_bytes,
                    "seconds": seconds,
                    "formula_seconds": formula,
                    "efficiency": plan.n_panels * panel / (seconds * count),
                }
            )
    return rows


def show(results: dict) -> None:
    print_machine(results["machine"])
    found, n = results["measured"], results["n"]
    each = ", ".join(f"{s * 1e6:.1f} us among {k}" for k, s in found["row_seconds"].items())
    print(f"\na row of {n:,} distances: {each}")
    print(f"round trip {found['round_trip'] * 1e3:.2f} ms, ", end="")
    print(f"driver {found['result'] * 1e3:.2f} ms for a message")
    print(f"\n{'n':>11}{'panels':>8}{'each':>10}{'memory':>9}{'workers':>9}", end="")
    print(f"{'hours':>10}{'efficiency':>12}{'formula / simulated':>21}")
    for row in results["rows"]:
        print(
            f"{row['n']:>11,}{row['panels']:>8,}{row['panel_seconds']:>8.2f} s"
            f"{row['peak_bytes'] / 2**30:>5.1f} GiB{row['workers']:>9}"
            f"{row['seconds'] / 3600:>10.4f}{row['efficiency']:>12.0%}"
            f"{row['formula_seconds'] / row['seconds']:>21.3f}"
        )
    print()
    for row in results["real"]:
        print(
            f"bound of {n:,} points on {row['workers']} of one thread: {row['seconds']:.2f} s, "
            f"{row['seconds'] / row['simulated_seconds']:.2f} times the simulated, "
            f"{row['seconds'] / row['formula_seconds']:.2f} times the formula's"
        )
    print(f"(driver, scheduler and workers share {os.cpu_count()} cores)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=2 * PEER_SIZE)
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    n = options.n
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "points.npy"
        X = points(n)
        np.save(path, X)
        found = {**messages(options.tasks), "row_seconds": {}}
        real = []
        for count in REAL:
            found["row_seconds"][count], seconds = real_seconds(path, count)
            panels = -(-n // PREFERRED_PANEL_ROWS)
            panel = found["row_seconds"][count] * PREFERRED_PANEL_ROWS
            costs = found["round_trip"], found["result"]
            simulated = simulate(panels, panel, count, *costs)
            formula = schedule_seconds(
                panels, panel, count, round_trip_seconds=costs[0], result_seconds=costs[1]
            )
            real.append(
                {
                    "workers": count,
                    "seconds": seconds,
                    "simulated_seconds": simulated,
                    "formula_seconds": formula,
                }
            )
    rows = table(found, n, X.shape[1])
    results = {"machine": machine(), "n": n, "measured": found, "rows": rows, "real": real}
    show(results)
    write_json(options.json, results)


if __name__ == "__main__":
    main()
