"""Workers with too little memory: an error with the numbers, after few rounds."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from drills import impatient, local_cluster, wait_until

from silchunk import ClusterError
from silchunk.engine import executor, flight, map_panels

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

LIMIT = 512 << 20


@dataclass(frozen=True)
class Hungry:
    """A panel that takes more than its worker has."""

    folder: Path

    def __call__(self, start, stop):
        (self.folder / f"{start}-{os.getpid()}").touch()
        taken = np.ones(LIMIT, np.uint8)
        time.sleep(20)  # until it is noticed
        return int(taken[0])


def test_a_panel_that_kills_its_workers_is_given_up_with_numbers(tmp_path, monkeypatch):
    impatient(monkeypatch)
    monkeypatch.setattr(flight, "ROUNDS", 1)
    settings = {
        "distributed.scheduler.allowed-failures": 1,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.target": False,
    }
    with (
        local_cluster(n_workers=1, settings=settings, memory_limit=LIMIT) as (_, client),
        pytest.raises(ClusterError) as caught,
    ):
        map_panels(Hungry(tmp_path), [(0, 64)], print, where=executor(client), task_bytes=600 << 20)
    message = str(caught.value)
    for part in (
        "rows 0 to 64",
        "one task needs 600 MiB",
        "had 512 MiB for 1 of them",
        "Lower memory= so that it fits the workers' limit",
        "fewer threads",
    ):
        assert part in message
    # Dask tries it twice in each round, and there is one more round.
    assert len(list(tmp_path.iterdir())) == 4


def test_workers_that_are_paused_for_their_memory_are_not_waited_for_for_ever(monkeypatch):
    impatient(monkeypatch, lost=2.0)
    settings = {"distributed.worker.memory.pause": 0.05}  # less than a worker takes by itself
    with local_cluster(n_workers=1, settings=settings) as (cluster, client):
        where = executor(client)
        (worker,) = cluster.scheduler.workers.values()
        wait_until(lambda: worker.status.name == "paused", "a pause")
        with pytest.raises(ClusterError, match="with 1.0 GiB, is paused. Dask pauses"):
            map_panels(print, [(0, 64)], print, where=where, task_bytes=1 << 20)


@dataclass(frozen=True)
class Crowd:
    """How many panels are under way at once in one process."""

    folder: Path

    def __call__(self, start, stop):
        own = self.folder / f"{os.getpid()}-{start}"
        own.touch()
        time.sleep(0.05)
        most = len(list(self.folder.glob(f"{os.getpid()}-*")))
        own.unlink()
        return most


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_worker_with_many_threads_runs_as_many_panels_as_were_planned(at_once, tmp_path):
    seen = []
    with local_cluster(n_workers=1, threads_per_worker=4) as (_, client):
        map_panels(
            Crowd(tmp_path),
            [(i, i + 1) for i in range(20)],
            lambda i, most: seen.append(most),
            where=executor(client),
            concurrency=at_once,
        )
    assert len(seen) == 20
    assert max(seen) == at_once
