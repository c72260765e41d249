from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from batch_inputs import MEMORY, METRIC, SIZES, Undisturbed


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    points, store = folder / "points.npy", folder / "d.zarr"
    np.save(points, np.random.default_rng(0).standard_normal((8000, 40)))

    def silchunk(*arguments: object) -> tuple[str, float]:
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "silchunk", *map(str, arguments)]
            + ["--threads", "1", "--memory", MEMORY],
            check=True,
            capture_output=True,
            text=True,
            timeout=180,
        )
        return done.stdout, time.monotonic() - began

    build_seconds = silchunk("distances", points, store, *METRIC)[1]
    printed, bound_seconds = silchunk("bound", points, *METRIC, *SIZES, "--json")
    return Undisturbed(points, store, build_seconds, json.loads(printed), bound_seconds)


@pytest.fixture(scope="session")
def folder_of_servers():
    """Makes folders with short names, as sockets want, that every process may look into."""
    with tempfile.TemporaryDirectory(prefix="silchunk-") as folder:
        Path(folder).chmod(0o755)

        def make(name: str) -> Path:
            made = Path(folder) / name
            made.mkdir()
            return made

        yield make
