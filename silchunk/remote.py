"""Panels on a Dask cluster: a few sent ahead, gathered as they end, sent again where workers die.

Every wait here ends: with a result, or with an error that says what the cluster lacks.
"""

from __future__ import annotations

import logging
import os
import platform
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import dask
import dask.utils

from silchunk.errors import ClusterError, InputNotFoundError, warn
from silchunk.inbox import Inbox
from silchunk.plan import PanelRange, format_bytes
from silchunk.stopping import stop_requested

if TYPE_CHECKING:
    from distributed import Client, Future

log = logging.getLogger("silchunk")

Workers = dict[str, dict[str, Any]]

# Tasks sent ahead, for each thread of a cluster: enough to hide the round trip.
SENT_AHEAD = 2
# How often a panel that Dask has given up is sent again. Dask itself sends it four times before.
ROUNDS = 3
# Seconds between looks at which workers there are.
POLL_SECONDS = 5.0
# Seconds for workers to answer a question that takes no work.
ANSWER_SECONDS = 60.0
# Seconds without a single worker, or without a scheduler, after which a job gives up.
LOST_SECONDS = 60.0
# What must be the same everywhere, and what had better be.
SAME = ("silchunk", "python", "dask", "distributed")
ALIKE = ("numpy", "numba", "zarr", "numcodecs")

# Workers that were found to run the same programs.
_checked: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()


def lost_seconds() -> float:
    """How long to wait for workers or the scheduler: Dask's setting ``silchunk.lost-timeout``,
    such as ``"10 minutes"``, where queued workers take long to begin."""
    setting = dask.config.get("silchunk.lost-timeout", None)
    return LOST_SECONDS if setting is None else float(dask.utils.parse_timedelta(setting))


def workers_of(client: Client) -> Workers:
    """What the scheduler knows of its workers, by address; waits for the first one.

    Raises
    ------
    ClusterError
        There is none, or one that runs other versions.
    """
    if client.status != "running":
        raise ClusterError(f"the Dask client is {client.status}; connect a new one.")
    workers = _workers(client)
    if not workers:
        log.info("waiting up to %g s for a worker", lost_seconds())
        try:
            client.wait_for_workers(1, timeout=lost_seconds())
        except TimeoutError as error:
            raise ClusterError(_no_workers(client)) from error
        workers = _workers(client)
    check_versions(client, workers)
    return workers


def check_versions(client: Client, addresses: Iterable[str]) -> None:
    """Refuse workers that would not compute the same, each asked once."""
    asked = _checked.setdefault(client, set())
    new = [address for address in addresses if address not in asked]
    if not new:
        return
    own = versions()
    for address, theirs in ask(client, versions, new).items():
        if isinstance(theirs, Exception):
            raise ClusterError(
                f"worker {address} cannot run silchunk {own['silchunk']}: {theirs}. Install the "
                "same versions there as here."
            )
        for names, refused in ((SAME, True), (ALIKE, False)):
            other = [name for name in names if theirs[name] != own[name]]
            if not other:
                continue
            differ = ", ".join(f"{name} {theirs[name]} (here {own[name]})" for name in other)
            message = f"worker {address} on {theirs['host']} has {differ}"
            if refused:
                raise ClusterError(f"{message}. Install the same versions there as here.")
            warn(f"{message}: last digits of results may differ from one worker to another.")
    asked.update(new)


@cache
def versions() -> dict[str, str]:
    """Of what this process computes with, and the host it runs on."""
    found = {name: version(name) for name in (*SAME, *ALIKE) if name != "python"}
    python = ".".join(platform.python_version_tuple()[:2])
    return {**found, "python": python, "host": socket.gethostname()}


def check_visible(client: Client, paths: Sequence[str | os.PathLike[str]]) -> None:
    """Refuse workers that cannot see files or folders that tasks are to name.

    Raises
    ------
    InputNotFoundError
        It names worker, host and path.
    """
    wanted = [str(Path(path).absolute()) for path in paths]
    for address, answer in ask(client, unseen, None, wanted).items():
        if isinstance(answer, Exception):
            log.warning("worker %s did not say what it can see: %s", address, answer)
        elif answer["paths"]:
            raise InputNotFoundError(
                f"worker {address} on {answer['host']} cannot see {answer['paths'][0]}. Input, "
                "stores and Dask's temporary-directory must lie on a file system that all workers "
                "share, under the same path."
            )


def unseen(paths: Sequence[str]) -> dict[str, Any]:
    """Which of the paths do not exist on this host."""
    missing = [path for path in paths if not os.path.exists(path)]
    return {"host": socket.gethostname(), "paths": missing}


def ask(
    client: Client, question: Callable[..., Any], workers: list[str] | None, *args: Any
) -> dict[str, Any]:
    """Answers of workers by address, exceptions for those that failed; what they compute goes on.

    Raises
    ------
    ClusterError
        Some have not answered within `ANSWER_SECONDS`.
    """
    try:
        # What Client.run does, which would wait for ever for a worker that has frozen.
        answers: dict[str, Any] = client.sync(
            client._run,
            question,
            *args,
            workers=workers,
            on_error="return",
            callback_timeout=ANSWER_SECONDS,
        )
    except (OSError, TimeoutError) as error:
        raise ClusterError(
            f"the workers of {_scheduler(client)} have not all answered within "
            f"{ANSWER_SECONDS:g} seconds: {error or type(error).__name__}. See whether one of "
            "them hangs."
        ) from error
    return answers


def run_panels(
    attempt: Callable[[PanelRange], Any],
    panels: Sequence[PanelRange],
    inbox: Inbox,
    client: Client,
    running: int,
    task_bytes: int,
) -> None:
    """Run ``attempt(panel)`` for every panel on the workers of ``client``, ``running`` at once in
    each, and put results into ``inbox``; when a stop is requested, end those that were sent."""
    flight = _Flight(attempt, panels, inbox, client, running, task_bytes)
    try:
        while flight.send():
            flight.gather()
    finally:
        flight.drop()


class _Flight:
    """The panels that have been sent and are not back yet."""

    def __init__(
        self,
        attempt: Callable[[PanelRange], Any],
        panels: Sequence[PanelRange],
        inbox: Inbox,
        client: Client,
        running: int,
        task_bytes: int,
    ) -> None:
        self.attempt = attempt
        self.panels = panels
        self.inbox = inbox
        self.client = client
        self.running = running
        self.task_bytes = task_bytes
        self.next = 0
        self.flying: dict[Future, int] = {}
        self.again: deque[int] = deque()  # panels to be sent again
        self.given_up: Counter[int] = Counter()  # how often Dask gave up a panel
        self.threads = 0
        self.looked = -float("inf")
        self.alive = time.monotonic()  # when there was last a worker, or a result

    def send(self) -> bool:
        """Send as many as keep all workers busy; returns whether any is to be waited for."""
        self._look()
        at_once = max(self.threads, 1)
        while len(self.flying) < SENT_AHEAD * at_once and not stop_requested.is_set():
            if self.again:
                index = self.again.popleft()
            elif self.next < len(self.panels) and self.inbox.has_room(self.next, at_once):
                index = self.next
                self.next += 1
            else:
                break
            future = self.client.submit(self.attempt, self.panels[index], pure=False)
            self.flying[future] = index
        return bool(self.flying)

    def gather(self) -> None:
        """Wait for results and pass them on."""
        import distributed

        with suppress(TimeoutError, CancelledError):  # what is cancelled is done as well
            distributed.wait(self.flying, timeout=POLL_SECONDS, return_when="FIRST_COMPLETED")
        for future in [one for one in self.flying if one.done()]:
            self._take(future)
        if time.monotonic() - self.alive > lost_seconds():
            raise ClusterError(_no_workers(self.client))

    def drop(self) -> None:
        """Have the cluster forget what has not ended."""
        if self.flying and self.client.status == "running":
            self.client.cancel(list(self.flying))

    def _look(self) -> None:
        """See, now and then, which workers there are."""
        if self.client.status != "running":
            self._wait_for_scheduler()
        now = time.monotonic()
        if self.threads and now - self.looked < POLL_SECONDS:
            return
        try:
            workers = _workers(self.client)
        except (OSError, TimeoutError):  # the next look sees whether the scheduler is back
            return
        self.looked = now
        self.threads = sum(min(self.running, one["nthreads"]) for one in workers.values())
        if workers:
            self.alive = now
            check_versions(self.client, workers)

    def _wait_for_scheduler(self) -> None:
        """Let the client look for the scheduler that it has lost."""
        until = time.monotonic() + lost_seconds()
        while self.client.status == "connecting" and time.monotonic() < until:
            time.sleep(0.1)
        if self.client.status != "running":
            raise ClusterError(
                f"the scheduler {_scheduler(self.client)} is gone. What has been recorded is kept: "
                "start a cluster and run the same again to go on."
            )

    def _take(self, future: Future) -> None:
        from distributed import KilledWorker

        index = self.flying[future]
        try:
            result = future.result(timeout=POLL_SECONDS)
        except TimeoutError:
            if future.status == "error":
                raise
            return  # its worker died with the result: Dask computes it again
        except KilledWorker as error:
            self._send_again(future, self._killed(index, error), error)
        except CancelledError as error:
            start, stop = self.panels[index]
            self._send_again(
                future, f"the cluster dropped rows {start:,} to {stop:,}: {error}", error
            )
        else:
            del self.flying[future]
            self.alive = time.monotonic()
            self.inbox.put(index, result)
        future.release()

    def _send_again(self, future: Future, message: str, error: BaseException) -> None:
        index = self.flying.pop(future)
        self.given_up[index] += 1
        if self.given_up[index] > ROUNDS:
            raise ClusterError(message) from error
        log.warning("%s; sent again (%d of %d)", message, self.given_up[index], ROUNDS)
        self.again.append(index)
        self.looked = -float("inf")

    def _killed(self, index: int, error: Any) -> str:
        start, stop = self.panels[index]
        worker = error.last_worker
        limit = f"{format_bytes(worker.memory_limit)}" if worker.memory_limit else "no limit"
        return (
            f"workers died again and again over rows {start:,} to {stop:,}, most likely out of "
            f"memory: one task needs {format_bytes(self.task_bytes)} beside what the process "
            f"takes, and worker {worker.address} had {limit} for {worker.nthreads} of them. Lower "
            "memory= so that it fits the workers' limit, or give each worker fewer threads"
        )


def _workers(client: Client) -> Workers:
    # Client.scheduler_info has no timeout, and gives what it knew where the scheduler is gone.
    scheduler = client.scheduler
    if scheduler is None:
        raise OSError("there is no connection to the scheduler")
    identity = client.sync(scheduler.identity, n_workers=-1, callback_timeout=ANSWER_SECONDS)
    workers: Workers = identity["workers"]
    return workers


def _scheduler(client: Client) -> str:
    scheduler = client.scheduler
    return "of the client" if scheduler is None else str(scheduler.address)


def _no_workers(client: Client) -> str:
    return (
        f"the scheduler {_scheduler(client)} has had no worker for {lost_seconds():g} seconds. "
        "What has been recorded is kept. Start workers for it, or close the client to run on this "
        "machine's threads."
    )
