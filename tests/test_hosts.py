"""Two hosts, made of network namespaces: one is cut off in the middle of a job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import numpy as np
import pytest

import silchunk

pytestmark = [pytest.mark.slow, pytest.mark.hosts]

X = np.random.default_rng(5).standard_normal((3000, 5)).astype(np.float32)
# Names of their own, since another run may be at it.
HOSTS = {f"sc-{os.getpid()}-a": "10.231.7.1", f"sc-{os.getpid()}-b": "10.231.7.2"}
PATIENCE = 100.0

# A host that is cut off is to be noticed in seconds; Dask takes no shorter ones of the first kind.
SETTINGS = {
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "12s",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "4s",
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "6s",
}
PRELOAD = """
import pathlib, socket, time, uuid
from silchunk import engine

def dask_setup(worker):
    run = engine._Attempt.__call__

    def slowly(self, panel):
        pathlib.Path("begun", worker.name + "." + uuid.uuid4().hex).touch()
        time.sleep(0.4)
        return run(self, panel)

    engine._Attempt.__call__ = slowly
"""


def ip(*arguments):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)


@pytest.fixture
def hosts():
    """Two namespaces, joined by a cable."""
    first, second = HOSTS
    made = ip("netns", "add", first)
    if made.returncode:
        pytest.skip(reason=f"network namespaces are not permitted here: {made.stderr.strip()}")
    try:
        steps = [
            ["netns", "add", second],
            ["link", "add", first, "netns", first, "type", "veth"]
            + ["peer", "name", second, "netns", second],
        ]
        for host, address in HOSTS.items():
            steps += [
                ["-n", host, "addr", "add", f"{address}/24", "dev", host],
                ["-n", host, "link", "set", host, "up"],
                ["-n", host, "link", "set", "lo", "up"],
            ]
        for step in steps:
            done = ip(*step)
            assert done.returncode == 0, (step, done.stderr)
        yield HOSTS
    finally:
        for host in HOSTS:
            ip("netns", "del", host)


@contextmanager
def running(folder):
    """Start processes on a host; they all end with the context."""
    all_ = []

    def start(host, *arguments):
        log = folder / f"process-{len(all_)}.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                ["ip", "netns", "exec", host, sys.executable, "-m", *arguments],
                cwd=folder,
                env={**os.environ, **SETTINGS, "DASK_TEMPORARY_DIRECTORY": str(folder)},
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        process.log = log
        all_.append(process)
        return process

    try:
        yield start
    finally:
        for process in all_:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE)


def wait_until(ready, what):
    until = time.monotonic() + PATIENCE
    while not ready():
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.05)


def test_a_host_that_is_cut_off_is_done_without(hosts, tmp_path):
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "begun").mkdir()
    (tmp_path / "slow.py").write_text(PRELOAD)
    here, there = hosts

    def begun(host):
        return sum(name.startswith(host + ".") for name in os.listdir(tmp_path / "begun"))

    with running(tmp_path) as start:
        file = tmp_path / "scheduler.json"
        start(
            here,
            *("dask", "scheduler", "--no-dashboard", "--host", hosts[here]),
            *("--scheduler-file", str(file)),
        )
        wait_until(file.exists, "a scheduler")
        for host, address in hosts.items():
            start(
                host,
                *("dask", "worker", "--no-dashboard", "--host", address, "--nthreads", "1"),
                *("--scheduler-file", str(file), "--preload", "slow.py", "--name", host),
            )
        address = json.loads(file.read_text())["address"]
        assert hosts[here] in address
        command = start(here, "silchunk", "distances", "x.npy", "d.zarr", "--scheduler", address)
        for host in hosts:
            wait_until(lambda host=host: begun(host) >= 2, f"panels on {host}")
        assert ip("-n", there, "link", "set", there, "down").returncode == 0
        left = begun(there)
        code = command.wait(PATIENCE)
        assert code == 0, command.log.read_text()
        assert begun(there) <= left + 2, "no more than what it had been sent"
    D = silchunk.open_distances(tmp_path / "d.zarr")
    assert D.verify().ok
    assert np.array_equal(
        D.rows(0, len(X)), silchunk.build_distances(X, tmp_path / "e.zarr").rows(0, len(X))
    )
