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
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import dask
import dask.utils

from silchunk.errors import (
    ClusterError,
    InputError,
    InputNotFoundError,
    SilchunkError,
    StoppedError,
    warn,
)
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
# Seconds for the scheduler and workers to answer a question that takes no work.
ANSWER_SECONDS = 60.0
# Seconds between looks at what is about to change.
LOOK_SECONDS = 0.2
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
    setting = dask.config.get("silchunk.lost-timeout", LOST_SECONDS)
    try:
        return float(dask.utils.parse_timedelta(setting))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f'silchunk.lost-timeout is a time such as "10 minutes"; Dask has {setting!r} for it.'
        ) from error


def workers_of(client: Client) -> Workers:
    """What the scheduler knows of its workers, by address; waits for the first one.

    Raises
    ------
    ClusterError
        There is none, or one that runs other versions, or the scheduler does not answer.
    """
    if not _reconnected(client):
        raise ClusterError(f"the Dask client is {client.status}; connect a new one.")
    with _answering(client):
        workers = _workers(client) or _first_workers(client)
        check_versions(client, workers)
    return workers


def _first_workers(client: Client) -> Workers:
    log.info("waiting up to %g s for a worker", lost_seconds())
    until = time.monotonic() + lost_seconds()
    wanted = client.submit(int, pure=False)  # clusters that adapt start workers where there is work
    try:
        while time.monotonic() < until:
            if stop_requested.is_set():
                raise StoppedError("stopped as asked, waiting for workers. Run the same again.")
            time.sleep(LOOK_SECONDS)
            if workers := _workers(client):
                return workers
    finally:
        wanted.release()
    raise ClusterError(_no_workers(client))


def check_versions(client: Client, addresses: Iterable[str]) -> None:
    """Refuse workers that would not compute the same, each asked once.

    Raises
    ------
    ClusterError
        It names worker, host and versions.
    OSError, TimeoutError
        The scheduler does not answer.
    """
    asked = _checked.setdefault(client, set())
    new = [address for address in addresses if address not in asked]
    if not new:
        return
    own = versions()
    for address, theirs in ask(client, versions, new).items():
        if isinstance(theirs, OSError):  # it is gone, or has frozen: asked again at the next look
            log.warning("worker %s does not answer: %s", address, theirs)
            continue
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
        asked.add(address)


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
    InputNotFoundError, ClusterError
        With worker, host and path; the scheduler or a worker does not answer.
    """
    wanted = [str(Path(path).absolute()) for path in paths]
    with _answering(client):
        answers = ask(client, unseen, None, wanted)
    for address, answer in answers.items():
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
    return {"host": socket.gethostname(), "paths": [p for p in paths if not os.path.exists(p)]}


def ask(
    client: Client, question: Callable[..., Any], workers: list[str] | None, *args: Any
) -> dict[str, Any]:
    """Answers of workers by address, exceptions for those that failed; what they compute goes on.

    Raises
    ------
    OSError, TimeoutError
        There is no answer within `ANSWER_SECONDS`.
    """
    # What Client.run does, which would wait for ever for a worker that has frozen.
    answers: dict[str, Any] = client.sync(
        client._run,
        question,
        *args,
        workers=workers,
        on_error="return",
        callback_timeout=ANSWER_SECONDS,
    )
    return answers


def tell(client: Client, order: Callable[..., Any], *arguments: Any) -> None:
    """Have all workers do what a job does not depend on: who does not answer is left alone."""
    try:
        ask(client, order, None, *arguments)
    except (OSError, TimeoutError) as error:
        log.warning("the workers of %s have not all answered: %s", _scheduler(client), error)


@contextmanager
def _answering(client: Client) -> Iterator[None]:
    try:
        yield
    except SilchunkError:
        raise
    except (OSError, TimeoutError) as error:
        raise ClusterError(_no_answer(client, error)) from error


def run_panels(
    attempt: Callable[[PanelRange], Any],
    panels: Sequence[PanelRange],
    inbox: Inbox,
    client: Client,
    running: int,
    task_bytes: int,
) -> None:
    """Run ``attempt(panel)`` for every panel on the workers of ``client``, of which each is to run
    ``running`` at once, and put results into ``inbox``; when a stop is requested, end those that
    were sent."""
    flight = _Flight(attempt, panels, inbox, client, running, task_bytes)
    try:
        while flight.send():
            flight.gather()
    finally:
        flight.drop()


@dataclass
class _Flight:
    """The panels that have been sent and are not back yet."""

    attempt: Callable[[PanelRange], Any]
    panels: Sequence[PanelRange]
    inbox: Inbox
    client: Client
    running: int
    task_bytes: int
    next: int = 0
    flying: dict[Future, int] = field(default_factory=dict)
    again: deque[int] = field(default_factory=deque)  # panels to be sent again
    given_up: Counter[int] = field(default_factory=Counter)  # how often Dask gave up a panel
    threads: int = 0
    looked: float = -float("inf")
    without: float | None = None  # since when no worker has been there

    def send(self) -> bool:
        """Send as many as keep all workers busy; returns whether any is to be waited for."""
        self._look()
        if stop_requested.is_set() and self.without is not None:
            return False  # who might never come is not waited for
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

        seconds = min(POLL_SECONDS, lost_seconds())
        with suppress(TimeoutError, CancelledError):  # what is cancelled is done as well
            distributed.wait(list(self.flying), timeout=seconds, return_when="FIRST_COMPLETED")
        for future in [one for one in self.flying if one.done()]:
            self._take(future)

    def drop(self) -> None:
        """Have the cluster forget what has not ended."""
        if self.flying and self.client.status == "running":
            self.client.cancel(list(self.flying))

    def _look(self) -> None:
        """See, now and then, which workers there are; none for too long is an error."""
        now = time.monotonic()
        if not _reconnected(self.client):
            if not stop_requested.is_set():
                raise ClusterError(
                    f"the scheduler {_scheduler(self.client)} is gone. What has been recorded is "
                    "kept: start a cluster and run the same again to go on."
                )
            self.without = now
            return
        if self.threads and now - self.looked < POLL_SECONDS:
            return
        self.looked = now
        lacking = _no_workers(self.client)
        try:
            workers = _workers(self.client)
            check_versions(self.client, workers)
        except (OSError, TimeoutError) as error:  # the next look sees whether it is back
            lacking, workers = _no_answer(self.client, error), {}
        ready = [one for one in workers.values() if one["status"] == "running"]
        self.threads = sum(min(self.running, one["nthreads"]) for one in ready)
        # One that is paused for its memory may be at a task.
        if ready or any(_executing(one) for one in workers.values()):
            self.without = None
        elif self.without is None:
            self.without = now
        elif now - self.without > lost_seconds():
            raise ClusterError(self._paused(workers) if workers else lacking)

    def _take(self, future: Future) -> None:
        from distributed import KilledWorker

        index = self.flying[future]
        try:
            result = future.result(timeout=POLL_SECONDS)
        except (TimeoutError, OSError):
            if future.status == "error":
                raise
            return  # lost with its worker, or with the scheduler; Dask computes it again
        except KilledWorker as error:
            self._send_again(future, self._killed(index, error), error)
        except CancelledError as error:
            start, stop = self.panels[index]
            message = f"the cluster dropped rows {start:,} to {stop:,}: {error}"
            self._send_again(future, message, error)
        else:
            del self.flying[future]
            self.without = None
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

    def _paused(self, workers: Workers) -> str:
        address, worker = min(workers.items())
        return (
            f"no worker has taken a task for {lost_seconds():g} seconds: {address}, with "
            f"{_limit(worker['memory_limit'])}, is {worker['status']}. Dask pauses workers that "
            f"come near their limit; one task needs {format_bytes(self.task_bytes)} beside what "
            "the process takes. Lower memory=, or give workers more."
        )

    def _killed(self, index: int, error: Any) -> str:
        start, stop = self.panels[index]
        worker = error.last_worker
        return (
            f"workers died again and again over rows {start:,} to {stop:,}, killed or out of "
            f"memory: one task needs {format_bytes(self.task_bytes)} beside what the process "
            f"takes, and worker {worker.address} had {_limit(worker.memory_limit)} for "
            f"{worker.nthreads} of them. Lower memory= so that it fits the workers' limit, or give "
            "each worker fewer threads"
        )


def _workers(client: Client) -> Workers:
    # Client.scheduler_info has no timeout, and gives what it knew where the scheduler is gone.
    scheduler = client.scheduler
    if scheduler is None:
        raise OSError("there is no connection to the scheduler")
    seconds = min(ANSWER_SECONDS, lost_seconds())
    identity = client.sync(scheduler.identity, n_workers=-1, callback_timeout=seconds)
    workers: Workers = identity["workers"]
    return workers


def _reconnected(client: Client) -> bool:
    """Whether the client is connected; it looks by itself for a scheduler that it has lost."""
    until = time.monotonic() + lost_seconds()
    while client.status == "connecting" and time.monotonic() < until:
        if stop_requested.is_set():
            return False
        time.sleep(LOOK_SECONDS)
    return bool(client.status == "running")


def _executing(worker: dict[str, Any]) -> bool:
    return bool(worker["metrics"].get("task_counts", {}).get("executing"))


def _limit(nbytes: int | None) -> str:
    return format_bytes(nbytes) if nbytes else "no limit"


def _scheduler(client: Client) -> str:
    scheduler = client.scheduler
    return "of the client" if scheduler is None else str(scheduler.address)


def _no_answer(client: Client, error: Exception) -> str:
    return (
        f"the scheduler {_scheduler(client)}, or one of its workers, does not answer: "
        f"{error or type(error).__name__}. See whether it hangs."
    )


def _no_workers(client: Client) -> str:
    return (
        f"the scheduler {_scheduler(client)} has had no worker for {lost_seconds():g} seconds. "
        "What has been recorded is kept. Start workers for it, or close the client to run on this "
        "machine's threads."
    )
