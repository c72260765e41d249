"""Workers that are to compute: which may, what they see, and how long they are waited for."""

from __future__ import annotations

import logging
import os
import socket
import threading

import dask
import numpy as np
import pytest
import zarr
from scipy import sparse

import silchunk
from silchunk import ClusterError, InputNotFoundError, SilchunkWarning, StoppedError
from silchunk.engine import executor, flight, map_panels, remote
from silchunk.stopping import stop_requested

PANELS = [(i, i + 1) for i in range(20)]

OTHER_VERSIONS = """
from silchunk.engine import flight, remote

def dask_setup(worker):
    found = {{**remote.versions(), **{changed!r}}}
    remote.versions = lambda: found
"""
WITHOUT_SILCHUNK = """
import sys

def dask_setup(worker):
    sys.modules["silchunk"] = None  # what Python takes for a module that cannot be imported
"""


def cluster(n_workers=1, **options):
    from distributed import LocalCluster

    return LocalCluster(
        n_workers=n_workers,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        memory_limit="1GiB",
        silence_logs=logging.CRITICAL,
        **options,
    )


def client_of(cluster):
    from distributed import Client

    return Client(cluster, set_as_default=False)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(remote, "LOST_SECONDS", 2.0)
    monkeypatch.setattr(flight, "POLL_SECONDS", 0.3)


@pytest.fixture
def stop_soon():
    """A stop is requested in half a second."""
    clock = threading.Timer(0.5, stop_requested.set)
    clock.start()
    yield
    clock.join()
    stop_requested.clear()


def echo(start, stop):
    return start


# Which workers may compute.


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize(
    ("preload", "message"),
    [
        (
            OTHER_VERSIONS.format(changed={"silchunk": "0.0.1", "python": "3.9", "host": "node7"}),
            r"worker tcp://127\S+ on node7 has silchunk 0.0.1 \(here \S+\), python 3.9 \(here "
            r"\S+\). Install the same versions",
        ),
        (WITHOUT_SILCHUNK, r"worker tcp://127\S+ cannot run silchunk \S+: .*silchunk.*Install the"),
    ],
    ids=["other versions", "without silchunk"],
)
def test_workers_that_would_compute_something_else_are_refused(preload, message, tmp_path):
    (tmp_path / "other_worker.py").write_text(preload)
    with (
        cluster(preload=[str(tmp_path / "other_worker.py")]) as workers,
        client_of(workers) as client,
        pytest.raises(ClusterError, match=message),
    ):
        executor(client)


@pytest.mark.cluster
@pytest.mark.slow
def test_workers_that_may_round_otherwise_are_told_of(tmp_path):
    changed = {"numpy": "1.0", "host": "node7"}
    (tmp_path / "other_numpy.py").write_text(OTHER_VERSIONS.format(changed=changed))
    with (
        cluster(preload=[str(tmp_path / "other_numpy.py")]) as workers,
        client_of(workers) as client,
    ):
        with pytest.warns(SilchunkWarning, match=r"on node7 has numpy 1.0 \(here .*last digits"):
            where = executor(client)
        got = []
        map_panels(echo, PANELS, lambda i, r: got.append(r), where=where)
        assert executor(client) == where  # it is said once
    assert got == list(range(20))


class Asked:
    """Stands for a client; its one worker is gone when it is first asked."""

    def __init__(self, monkeypatch):
        self.times = 0
        monkeypatch.setattr(remote, "ask", self.ask)

    def ask(self, client, question, workers, *args):
        self.times += 1
        return dict.fromkeys(workers, OSError("gone") if self.times == 1 else question())


def test_a_worker_that_dies_when_it_is_asked_is_asked_again(monkeypatch, caplog):
    asked = Asked(monkeypatch)
    with caplog.at_level(logging.WARNING, "silchunk"):
        for _ in range(4):
            remote.check_versions(asked, ["tcp://w"])
    assert "worker tcp://w does not answer: gone" in caplog.text
    assert asked.times == 2


def test_what_a_job_does_not_depend_on_may_fail(monkeypatch, caplog):
    def fail(*args):
        raise TimeoutError("not within a minute")

    class Nobody:
        scheduler = None

    monkeypatch.setattr(remote, "ask", fail)
    with caplog.at_level(logging.WARNING, "silchunk"):
        remote.tell(Nobody(), print)
    assert "have not all answered: not within a minute" in caplog.text


# What workers see.


@pytest.mark.cluster
def test_paths_that_all_workers_see(client, tmp_path):
    (tmp_path / "file").touch()
    remote.check_visible(client, [tmp_path, tmp_path / "file"])


@pytest.mark.cluster
def test_a_path_that_a_worker_does_not_see_is_named(client, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputNotFoundError) as caught:
        remote.check_visible(client, [tmp_path, "elsewhere/x.npy"])
    message = str(caught.value)
    assert str(tmp_path / "elsewhere" / "x.npy") in message
    assert socket.gethostname() in message
    assert any(address in message for address in client.scheduler_info()["workers"])


# Waiting.


@pytest.mark.cluster
@pytest.mark.slow
def test_workers_that_come_late_are_waited_for(monkeypatch):
    monkeypatch.setattr(remote, "LOST_SECONDS", 60.0)
    got = []
    with cluster(n_workers=0) as workers, client_of(workers) as client:
        clock = threading.Timer(1.0, workers.scale, [1])
        clock.start()
        where = executor(client)
        clock.join()
        map_panels(echo, PANELS, lambda i, r: got.append(r), where=where)
    assert got == list(range(20))


@pytest.mark.cluster
@pytest.mark.slow
def test_a_cluster_that_adapts_starts_workers_for_a_job(monkeypatch):
    """It does so only where there is work."""
    monkeypatch.setattr(remote, "LOST_SECONDS", 60.0)
    got = []
    with cluster(n_workers=0) as workers, client_of(workers) as client:
        workers.adapt(minimum=0, maximum=1, interval="200 ms")
        map_panels(echo, PANELS, lambda i, r: got.append(r), where=executor(client))
    assert got == list(range(20))


@pytest.mark.cluster
def test_no_workers_at_all_is_an_error(impatient):
    with (
        cluster(n_workers=0) as workers,
        client_of(workers) as client,
        pytest.raises(ClusterError, match="has had no worker for 2 seconds.*Start workers"),
    ):
        executor(client)


@pytest.mark.cluster
def test_who_waits_for_workers_may_be_stopped(stop_soon):
    with (
        cluster(n_workers=0) as workers,
        client_of(workers) as client,
        pytest.raises(StoppedError, match="stopped as asked, waiting for workers"),
    ):
        executor(client)


class Slow:
    """A panel that takes longer than workers are waited for."""

    def __call__(self, start, stop):
        threading.Event().wait(1.0)
        return os.getpid()


@pytest.mark.cluster
@pytest.mark.slow
def test_workers_at_long_panels_are_not_taken_for_gone(client, monkeypatch):
    monkeypatch.setattr(remote, "LOST_SECONDS", 0.2)
    got = []
    map_panels(Slow(), PANELS[:4], lambda i, r: got.append(r), where=executor(client))
    assert len(got) == 4


@pytest.mark.cluster
@pytest.mark.slow
def test_a_consumer_that_takes_long_is_not_taken_for_an_absence(client, monkeypatch):
    monkeypatch.setattr(remote, "LOST_SECONDS", 0.2)
    monkeypatch.setattr(flight, "POLL_SECONDS", 0.1)
    got = []

    def consume(index, result):
        threading.Event().wait(0.5)
        got.append(result)

    map_panels(echo, PANELS[:4], consume, where=executor(client))
    assert got == [0, 1, 2, 3]


@pytest.mark.cluster
@pytest.mark.slow
def test_a_stop_does_not_wait_for_workers_that_are_gone(monkeypatch, stop_soon):
    """As when a batch system ends a job, and its workers first."""
    monkeypatch.setattr(remote, "LOST_SECONDS", 600.0)
    monkeypatch.setattr(flight, "POLL_SECONDS", 0.3)
    with cluster() as workers, client_of(workers) as client:
        where = executor(client)
        workers.scale(0)
        with pytest.raises(StoppedError, match="stopped as asked after 0 of 20 panels"):
            map_panels(Slow(), PANELS, print, where=where)


@pytest.mark.cluster
def test_a_stop_lets_end_what_was_sent(client):
    got = []

    def consume(index, result):
        got.append(index)
        stop_requested.set()

    try:
        with pytest.raises(StoppedError, match=r"stopped as asked after \d of 20 panels"):
            map_panels(echo, PANELS, consume, where=executor(client))
    finally:
        stop_requested.clear()
    assert 1 <= len(got) <= 1 + flight.SENT_AHEAD * 2


def test_times_to_wait_are_a_setting():
    for setting, seconds in (("2 minutes", 120), (5, 5), ("300 ms", 0.3)):
        with dask.config.set({"silchunk.lost-timeout": setting}):
            assert remote.lost_seconds() == seconds
    assert remote.lost_seconds() == remote.LOST_SECONDS


@pytest.fixture
def asked_for(monkeypatch):
    """The paths that workers are asked for."""
    paths = []

    def check(client, some):
        paths.extend(map(str, some))

    monkeypatch.setattr(remote, "check_visible", check)
    return paths


@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["npy", "scaled", "zarr", "scaled zarr", "sparse hdf5", "matrix"])
def test_whatever_is_made_of_a_file_is_asked_for(client, tmp_path, asked_for, kind):
    X = np.random.default_rng(0).standard_normal((60, 4))
    labels = np.arange(60) % 3
    path = tmp_path / {"zarr": "x.zarr", "scaled zarr": "x.zarr"}.get(kind, "x.file")
    if kind in ("npy", "scaled"):
        path = path.with_suffix(".npy")
        np.save(path, X)
    elif "zarr" in kind:
        zarr.create_array(path, shape=X.shape, dtype=X.dtype)[:] = X
    elif kind == "matrix":
        path = tmp_path / "d.zarr"
        silchunk.build_distances(X, path)
    else:
        h5py = pytest.importorskip("h5py")
        matrix = sparse.csr_matrix(np.where(X > 1, X, 0))
        with h5py.File(path := path.with_suffix(".h5"), "w") as file:
            group = file.create_group("X")
            group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0"})
            group.attrs["shape"] = matrix.shape
            for name in ("data", "indices", "indptr"):
                group[name] = getattr(matrix, name)
    asked_for.clear()
    if kind == "sparse hdf5":
        silchunk.KMeans(2, max_iter=1, random_state=0, scheduler=client).fit(f"{path}:X")
    else:
        given = silchunk.scaled(path, "standard") if "scaled" in kind else path
        silchunk.silhouette_samples(given, labels, scheduler=client)
    assert str(path) in asked_for
