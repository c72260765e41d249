"""A scheduler that goes in the middle of a job, for good or for a moment, and workers' restarts."""

from __future__ import annotations

import json
import logging
import signal
import threading

import numpy as np
import pytest
from drills import (
    Begun,
    X,
    address_of,
    content,
    impatient,
    local_cluster,
    meanwhile,
    processes,
    recorded,
    wait_until,
)

import silchunk
from silchunk import ClusterError
from silchunk.engine import executor, flight, map_panels, remote

pytestmark = [pytest.mark.slow, pytest.mark.cluster]


@pytest.fixture
def begun(tmp_path):
    return Begun(tmp_path)


@pytest.fixture
def cluster(tmp_path, begun):
    """A scheduler and two workers as a site would start them."""
    with processes(tmp_path) as started:
        started.the_scheduler = started.scheduler()
        for _ in range(2):
            started.worker("--death-timeout", "20", begun=begun)
        yield started


@pytest.fixture
def expected(tmp_path):
    np.save(tmp_path / "x.npy", X)
    silchunk.build_distances(X, tmp_path / "undisturbed.zarr", scheduler="synchronous")
    return content(tmp_path / "undisturbed.zarr")


def test_a_scheduler_that_is_gone_is_an_error_and_the_build_goes_on_elsewhere(
    cluster, begun, expected, tmp_path, monkeypatch
):
    impatient(monkeypatch, lost=3.0)
    store = tmp_path / "d.zarr"

    def harm(ended):
        wait_until(lambda: store.exists() and recorded(store) >= 4, "four records")
        cluster.the_scheduler.send_signal(signal.SIGKILL)

    with (
        address_of(tmp_path, timeout=3) as client,
        meanwhile(harm),
    ):
        client.wait_for_workers(2, timeout=60)
        with pytest.raises(ClusterError, match="the scheduler .* is gone. What has been recorded"):
            silchunk.build_distances(tmp_path / "x.npy", store, scheduler=client)
    kept = recorded(store)
    assert 4 <= kept < 20
    impatient(monkeypatch)
    with local_cluster() as (_, client):
        silchunk.build_distances(tmp_path / "x.npy", store, scheduler=client)
    assert content(store) == expected


def test_a_scheduler_that_comes_back_is_gone_on_with(
    cluster, begun, expected, tmp_path, monkeypatch, caplog
):
    impatient(monkeypatch)
    store = tmp_path / "d.zarr"
    address = json.loads((tmp_path / "scheduler.json").read_text())["address"]

    def harm(ended):
        begun.wait_for(6)
        cluster.the_scheduler.send_signal(signal.SIGKILL)
        cluster.the_scheduler.wait()
        host, port = address.removeprefix("tcp://").split(":")
        cluster.scheduler("--host", host, "--port", port)
        cluster.worker(begun=begun)

    with (
        caplog.at_level(logging.WARNING, "silchunk"),
        address_of(tmp_path, timeout=60) as client,
        meanwhile(harm),
    ):
        silchunk.build_distances(tmp_path / "x.npy", store, scheduler=client)
        assert client.scheduler.address == address
    assert "sent again (1 of 3)" in caplog.text
    assert content(store) == expected


def test_a_scheduler_that_freezes_is_an_error(cluster, begun, tmp_path, monkeypatch):
    impatient(monkeypatch, lost=3.0)
    monkeypatch.setattr(remote, "ANSWER_SECONDS", 20.0)
    np.save(tmp_path / "x.npy", X)

    def harm(ended):
        begun.wait_for(3)
        cluster.the_scheduler.send_signal(signal.SIGSTOP)
        ended.wait(90)
        cluster.the_scheduler.send_signal(signal.SIGCONT)

    with (
        address_of(tmp_path, timeout=3) as client,
        meanwhile(harm),
    ):
        client.wait_for_workers(2, timeout=60)
        with pytest.raises(ClusterError, match="the scheduler tcp://.* does not answer: "):
            silchunk.build_distances(tmp_path / "x.npy", tmp_path / "d.zarr", scheduler=client)


def echo(start, stop):
    return start


PANELS = [(i, i + 1) for i in range(30)]


def restarted(client):
    client.restart()


def cancelled(client):
    from distributed import Future

    keys = [key for key, state in list(client.futures.items()) if state.status == "pending"]
    client.cancel([Future(key, client=client) for key in keys], force=True)


@pytest.mark.parametrize("harm", [restarted, cancelled])
def test_panels_that_the_cluster_drops_are_sent_again(harm, tmp_path, monkeypatch, caplog):
    impatient(monkeypatch)
    begun = Begun(tmp_path)

    def once(ended):
        begun.wait_for(5)
        harm(client)

    got = []
    with local_cluster(begun) as (_, client), caplog.at_level(logging.WARNING, "silchunk"):
        where = executor(client)
        with meanwhile(once):
            map_panels(echo, PANELS, lambda i, r: got.append(r), where=where)
    assert got == list(range(30))
    assert "sent again (1 of 3)" in caplog.text


def test_panels_that_are_dropped_for_ever_are_given_up(tmp_path, monkeypatch):
    impatient(monkeypatch)
    begun = Begun(tmp_path, seconds=1.0)
    rounds = []

    def again_and_again(ended):
        while not ended.wait(0.1):
            cancelled(client)
            rounds.append(1)

    with (
        local_cluster(begun) as (_, client),
        meanwhile(again_and_again),
        pytest.raises(ClusterError, match="the cluster dropped rows"),
    ):
        map_panels(echo, PANELS, lambda i, r: None, where=executor(client))
    assert len(rounds) > flight.ROUNDS


def test_a_client_that_looks_for_its_scheduler_is_waited_for(tmp_path, monkeypatch):
    """Between two jobs, too."""
    impatient(monkeypatch)
    with processes(tmp_path) as started:
        scheduler = started.scheduler()
        started.worker("--death-timeout", "20")
        address = json.loads((tmp_path / "scheduler.json").read_text())["address"]
        with address_of(tmp_path, timeout=60) as client:
            executor(client)
            scheduler.send_signal(signal.SIGKILL)
            wait_until(lambda: client.status == "connecting", "the client to notice")
            host, port = address.removeprefix("tcp://").split(":")

            def later(ended):
                threading.Event().wait(0.5)
                started.scheduler("--host", host, "--port", port)
                started.worker()

            with meanwhile(later):
                assert executor(client).processes == 1
