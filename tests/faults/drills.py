"""Clusters to be harmed, and what harms them. Everything listens on loopback alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import dask
import numpy as np

from silchunk.engine import flight, remote

X = np.random.default_rng(5).standard_normal((640, 5)).astype(np.float32)
LOOPBACK = "127.0.0.1"
# To wait for what is to come soon; none of it is what a drill measures.
PATIENCE = 60.0

# Given to workers: every panel takes its time, and leaves a file when it begins.
PRELOAD = """
import pathlib, time, uuid
from silchunk import engine

def dask_setup(worker):
    run = engine._Attempt.__call__

    def slowly(self, panel):
        pathlib.Path({folder!r}, uuid.uuid4().hex).touch()
        time.sleep({seconds})
        return run(self, panel)

    engine._Attempt.__call__ = slowly
"""


class Begun:
    """The panels that workers have begun, each as often as it was."""

    def __init__(self, folder: Path, seconds: float = 0.2) -> None:
        self.folder = folder / "begun"
        self.folder.mkdir()
        self.preload = folder / "slow_panels.py"
        self.preload.write_text(PRELOAD.format(folder=str(self.folder), seconds=seconds))

    def __len__(self) -> int:
        return len(os.listdir(self.folder))

    def wait_for(self, more: int) -> None:
        """Wait until so many more have begun."""
        wanted = len(self) + more
        wait_until(lambda: len(self) >= wanted, f"{more} more panels")


def wait_until(ready, what: str, seconds: float = PATIENCE) -> None:
    until = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.02)


@contextmanager
def local_cluster(begun: Begun | None = None, n_workers: int = 2, settings=(), **options):
    """Worker processes with one thread each, which Dask starts anew when they die."""
    from distributed import Client, LocalCluster

    given = {
        "threads_per_worker": 1,
        "host": LOOPBACK,
        "dashboard_address": f"{LOOPBACK}:0",
        "memory_limit": "1GiB",
        "silence_logs": 50,
        **({} if begun is None else {"preload": [str(begun.preload)]}),
        **options,
    }
    with (
        # Beside kills at just such a distance Dask would give up a worker that it starts anew.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour", **dict(settings)}),
        LocalCluster(n_workers=n_workers, **given) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield cluster, client


def pids(cluster) -> list[int]:
    """Of the worker processes that run. One that dies while it starts is not started anew."""
    known = list(cluster.scheduler.workers)
    nannies = list(cluster.workers.values())
    return [one.pid for one in nannies if one.pid and one.worker_address in known]


@contextmanager
def meanwhile(harm):
    """Run ``harm(ended)`` beside what the context does; an error of its own is raised here."""
    ended, failed = threading.Event(), []

    def run():
        try:
            harm(ended)
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(PATIENCE)
    assert not thread.is_alive()
    if failed:
        raise failed[0]


@contextmanager
def kills(cluster, begun: Begun, every: float = 1.0, most: int = 3):
    """Kill workers by turns while the context lasts, each time after panels have begun; gives the
    list of those killed."""
    killed: list[int] = []

    def harm(ended):
        seen = len(begun)
        while len(killed) < most and not ended.wait(every):
            alive = pids(cluster)
            if len(begun) > seen and alive:
                seen = len(begun)
                pid = alive[len(killed) % len(alive)]
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    with meanwhile(harm):
        yield killed


class Processes:
    """`dask` and `silchunk` processes, each with a session of its own, none of which stays."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "DASK_DISTRIBUTED__DASHBOARD__LINK": "",
            "DASK_TEMPORARY_DIRECTORY": str(folder),
            **environment,
        }
        self.all: list[subprocess.Popen] = []

    def start(self, *arguments: str, before: tuple[str, ...] = ()) -> subprocess.Popen:
        log = (self.folder / f"process-{len(self.all)}.log").open("wb")
        with log:
            process = subprocess.Popen(
                [*before, sys.executable, "-m", *arguments],
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        process.log = Path(log.name)
        self.all.append(process)
        return process

    def scheduler(self, *options: str, **more) -> subprocess.Popen:
        """Its address is in the file ``scheduler.json`` once it runs."""
        file = self.folder / "scheduler.json"
        file.unlink(missing_ok=True)
        options = options or ("--host", LOOPBACK, "--port", "0")
        process = self.start(
            *("dask", "scheduler", "--no-dashboard", "--scheduler-file", str(file)),
            *options,
            **more,
        )
        wait_until(file.exists, "a scheduler")
        return process

    def worker(self, *options: str, begun: Begun | None = None, **more) -> subprocess.Popen:
        preload = () if begun is None else ("--preload", str(begun.preload))
        host = () if "--host" in options else ("--host", LOOPBACK)
        return self.start(
            *("dask", "worker", "--no-dashboard", "--nthreads", "1", "--memory-limit", "1GiB"),
            *("--scheduler-file", str(self.folder / "scheduler.json")),
            *preload,
            *host,
            *options,
            **more,
        )

    def silchunk(self, *arguments: str, **more) -> subprocess.Popen:
        return self.start("silchunk", *arguments, **more)

    def end(self) -> None:
        """Kill what is left, the children of those that have ended among them."""
        for process in self.all:
            for pid in session(process.pid):
                os.kill(pid, signal.SIGKILL)
            process.wait(PATIENCE)


@contextmanager
def processes(folder: Path, **environment: str):
    started = Processes(folder, **environment)
    try:
        yield started
    finally:
        started.end()


def session(leader: int) -> list[int]:
    """The processes of a session that live, orphans too."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, _, _, of_session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:  # it has ended meanwhile
            continue
        if int(of_session) == leader and state != "Z":
            found.append(int(entry.name))
    return found


def ended(process: subprocess.Popen) -> tuple[int, str]:
    """Exit code and output of a process that ends by itself, and leaves no other behind."""
    code = process.wait(PATIENCE)
    wait_until(lambda: not session(process.pid), "the end of its children", 20.0)
    return code, process.log.read_text()


@contextmanager
def address_of(folder: Path, **options):
    """A client of the scheduler that `Processes.scheduler` has started."""
    from distributed import Client

    with Client(
        scheduler_file=str(folder / "scheduler.json"), set_as_default=False, **options
    ) as client:
        yield client


def impatient(monkeypatch, lost: float = 60.0, poll: float = 0.5) -> None:
    """Look often at what workers there are, and give up soon."""
    monkeypatch.setattr(remote, "LOST_SECONDS", lost)
    monkeypatch.setattr(flight, "POLL_SECONDS", poll)


def recorded(store: Path) -> int:
    """How many files the journal of a build tells of."""
    return len((store / "silchunk-journal.jsonl").read_bytes().splitlines()) - 1


def content(store: Path) -> dict[str, bytes]:
    """Every file of the matrix, byte for byte."""
    return {
        str(file.relative_to(store)): file.read_bytes()
        for file in sorted((store / "c").rglob("*"))
        if file.is_file()
    }
