"""What the benchmarks share: points, the machine, medians over fresh processes."""

from __future__ import annotations

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
BUDGET = "1GiB"


def points(n: int):
    """Twenty Gaussian clusters in 32 dimensions, float32."""
    return labelled_points(n)[0]


def labelled_points(n: int):
    """The same, and which cluster each point was drawn from."""
    import numpy as np

    rng = np.random.default_rng(0)
    centres = rng.uniform(-10, 10, (20, N_FEATURES))
    labels = rng.integers(20, size=n)
    X = centres[labels] + 2 * rng.standard_normal((n, N_FEATURES))
    return X.astype(np.float32), labels


def peak_bytes() -> int:
    """High water mark of this process, interpreter and libraries included (VmHWM)."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


def report(job, *arguments) -> None:
    """Time a job in this process, and print what it returned, seconds and peak bytes as JSON."""
    began = time.perf_counter()
    result = job(*arguments)
    seconds = time.perf_counter() - began
    result = result if isinstance(result, dict) else {"bound": result}
    print(json.dumps({**result, "seconds": seconds, "peak_bytes": peak_bytes()}))


def measure(script: str, job: str, n: int, repeats: int, *options: str) -> dict:
    """Run ``script --job job --n n`` in fresh processes; medians of what they print."""
    runs = []
    for _ in range(repeats):
        command = [sys.executable, script, "--job", job, "--n", str(n), *options]
        runs.append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
    return {
        "job": job,
        "n": n,
        **runs[0],
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
    """What the figures were measured on."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    own = ("silchunk", "numpy", "numba", "dask", "scikit-learn")
    peers = ("silhouette-upper-bound", "silhouette-scalable")
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: version(name) for name in own + peers},
    }


def print_machine(facts: dict) -> None:
    """The machine, a line for each fact."""
    for name, value in facts.items():
        print(f"{name:<24}{value}")


def write_json(path: str | None, results: dict) -> None:
    """All results in a file, where one was asked for."""
    if path:
        Path(path).write_text(json.dumps(results, indent=2) + "\n")
