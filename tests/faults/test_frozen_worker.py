"""A worker that freezes, as one does whose host swaps or whose disk hangs."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest
from drills import Begun, X, address_of, impatient, local_cluster, meanwhile, pids, processes

import silchunk

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

# Default: 5 minutes.
SOON = "distributed.scheduler.worker-ttl"


def test_the_others_finish_the_work_of_one_that_freezes(tmp_path, monkeypatch):
    impatient(monkeypatch)
    np.save(tmp_path / "x.npy", X)
    expected = silchunk.silhouette_bounds(tmp_path / "x.npy", scheduler="synchronous")
    begun = Begun(tmp_path)
    frozen = []

    def harm(ended):
        begun.wait_for(3)
        frozen.append(pids(cluster)[0])
        os.kill(frozen[0], signal.SIGSTOP)

    with local_cluster(begun, settings={SOON: "3 s"}) as (cluster, client):
        with meanwhile(harm):
            found = silchunk.silhouette_bounds(tmp_path / "x.npy", scheduler=client)
        assert frozen
    assert found.samples.tobytes() == expected.samples.tobytes()


class Freeze:
    """A callback of a fit: a worker freezes in iteration 4, and thaws after iteration 6."""

    def __init__(self, begun, pid):
        self.begun = begun
        self.pid = pid
        self.frozen = self.thawed = False

    def __call__(self, iteration):
        if iteration.iteration == 3:
            threading.Thread(target=self.freeze).start()
        if iteration.iteration == 6:
            assert self.frozen
            os.kill(self.pid, signal.SIGCONT)
            self.thawed = True
            threading.Event().wait(2.0)  # for what it does now

    def freeze(self):
        self.begun.wait_for(2)  # both workers are at it
        os.kill(self.pid, signal.SIGSTOP)
        self.frozen = True


def test_one_that_thaws_later_spoils_nothing(tmp_path, monkeypatch):
    """It goes on with a panel of an iteration that is long over."""
    impatient(monkeypatch)
    points = np.random.default_rng(0).random((40_000, 3))
    np.save(tmp_path / "x.npy", points)
    options = {"random_state": 0, "tol": 0, "max_iter": 8}
    expected = silchunk.KSil(6, scheduler="synchronous", **options).fit(points)
    begun = Begun(tmp_path, seconds=0.5)
    settings = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "3 s"}
    with processes(tmp_path, **settings) as started:
        started.scheduler()
        workers = [started.worker("--no-nanny", begun=begun) for _ in range(2)]
        with address_of(tmp_path) as client:
            client.wait_for_workers(2, timeout=60)
            freeze = Freeze(begun, workers[0].pid)
            model = silchunk.KSil(6, scheduler=client, callback=freeze, **options)
            model.fit(tmp_path / "x.npy")
            assert freeze.thawed
    assert model.history_ == expected.history_
    assert model.labels_.tobytes() == expected.labels_.tobytes()
    assert model.cluster_centers_.tobytes() == expected.cluster_centers_.tobytes()
