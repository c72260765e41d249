"""Panels on a Dask cluster: a few sent ahead, gathered as they end, sent again where workers die.

Short panels travel several in one message: Dask takes milliseconds for each message, however little
is in it. Every wait here ends: with a result, or with an error that says what the cluster lacks.
"""

from __future__ import annotations

import logging
import pickle
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from silchunk import buffers
from silchunk.engine.remote import (
    Workers,
    check_versions,
    known_workers,
    lost_seconds,
    no_answer,
    no_workers,
    reconnected,
    scheduler_address,
)
from silchunk.errors import ClusterError
from silchunk.inbox import LOOK_AHEAD, Inbox
from silchunk.plan import PanelRange, format_bytes
from silchunk.stopping import stop_requested

if TYPE_CHECKING:
    from distributed import Client, Future

log = logging.getLogger("silchunk")

# Messages sent ahead, for each thread of a cluster: enough to hide the round trip.
SENT_AHEAD = 2
# Panels of one message take about so long: many times what Dask takes for the message.
MESSAGE_SECONDS = 0.25
# Results that may come early, and those of one message, hold no more than this or, where single
# ones are larger, than `LOOK_AHEAD` of them for each thread, and one.
EARLY_BYTES = 1 << 20
# A message holds at most so many times the panels of the one that its length is judged by.
GROWTH = 4
# Seconds between looks at which workers there are.
POLL_SECONDS = 5.0
# How often a panel that Dask has given up is sent again. Dask itself sends it four times before.
ROUNDS = 3


_turns = threading.Condition()
_taken = 0


@dataclass(frozen=True)
class Message:
    """What a worker does with panels that are sent together.

    Attributes
    ----------
    attempt : callable of a panel
    at_once : int
        Messages of which a worker runs so many at once, though it may have threads for more.
    """

    attempt: Callable[[PanelRange], Any]
    at_once: int

    def __call__(self, panels: Sequence[PanelRange]) -> tuple[float, bytes]:
        """Seconds that the panels took, and their results as they travel."""
        global _taken
        buffers.keep_pages()
        with _turns:
            _turns.wait_for(lambda: _taken < self.at_once)
            _taken += 1
        try:
            began = time.perf_counter()
            results = [self.attempt(panel) for panel in panels]
            return time.perf_counter() - began, pickle.dumps(results, protocol=5)
        finally:
            with _turns:
                _taken -= 1
                _turns.notify_all()


def run_panels(
    message: Callable[[Sequence[PanelRange]], tuple[float, bytes]],
    panels: Sequence[PanelRange],
    inbox: Inbox,
    client: Client,
    running: int,
    task_bytes: int,
) -> None:
    """Have the workers of ``client``, of which each runs ``running`` at once, do as ``message``
    says with every panel, and put results into ``inbox``; when a stop is requested, end those that
    were sent."""
    flight = _Flight(message, panels, inbox, client, running, task_bytes)
    try:
        while flight.send():
            flight.gather()
    finally:
        flight.drop()


@dataclass
class _Flight:
    """The panels that have been sent and are not back yet."""

    message: Callable[[Sequence[PanelRange]], tuple[float, bytes]]
    panels: Sequence[PanelRange]
    inbox: Inbox
    client: Client
    running: int
    task_bytes: int
    next: int = 0
    together: int = 1  # panels of a message
    result_bytes: int = EARLY_BYTES  # of a panel; not known at first
    flying: dict[Future, range] = field(default_factory=dict)
    again: deque[int] = field(default_factory=deque)  # panels to be sent again, each by itself
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
            found = self._next(at_once)
            if not found:
                break
            panels = [self.panels[index] for index in found]
            self.flying[self.client.submit(self.message, panels, pure=False)] = found
        return bool(self.flying)

    def _next(self, at_once: int) -> range:
        """The panels of the next message: none where results still awaited come first."""
        if self.again:
            index = self.again.popleft()
            return range(index, index + 1)
        ahead = max(LOOK_AHEAD * at_once, EARLY_BYTES // self.result_bytes)
        # Towards the end all threads have a part.
        left = len(self.panels) - self.next
        stop = self.next + min(self.together, -(-left // at_once))
        while stop > self.next and not self.inbox.has_room(stop - 1, ahead):
            stop -= 1
        found = range(self.next, stop)
        self.next = stop
        return found

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
        if not reconnected(self.client):
            if not stop_requested.is_set():
                raise ClusterError(
                    f"the scheduler {scheduler_address(self.client)} is gone. What has been "
                    "recorded is kept: start a cluster and run the same again to go on."
                )
            self.without = now
            return
        if self.threads and now - self.looked < POLL_SECONDS:
            return
        self.looked = now
        lacking = no_workers(self.client)
        try:
            workers = known_workers(self.client)
            check_versions(self.client, workers)
        except (OSError, TimeoutError) as error:  # the next look sees whether it is back
            lacking, workers = no_answer(self.client, error), {}
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

        sent = self.flying[future]
        try:
            seconds, content = future.result(timeout=POLL_SECONDS)
        except (TimeoutError, OSError):
            if future.status == "error":
                raise
            return  # lost with its worker, or with the scheduler; Dask computes it again
        except KilledWorker as error:
            self._send_again(future, self._killed(sent, error), error)
        except CancelledError as error:
            message = f"the cluster dropped {self._rows(sent)}: {error}"
            self._send_again(future, message, error)
        else:
            del self.flying[future]
            self.without = None
            self._judge(len(sent), seconds, len(content))
            for index, result in zip(sent, pickle.loads(content), strict=True):
                self.inbox.put(index, result)
        future.release()

    def _judge(self, count: int, seconds: float, nbytes: int) -> None:
        """Let messages be as long as one of so many panels suggests."""
        self.result_bytes = -(-nbytes // count)
        by_time = int(MESSAGE_SECONDS * count / seconds) if seconds else GROWTH * count
        by_bytes = EARLY_BYTES // self.result_bytes
        self.together = max(1, min(GROWTH * count, by_time, by_bytes))

    def _send_again(self, future: Future, message: str, error: BaseException) -> None:
        sent = self.flying.pop(future)
        self.given_up.update(sent)
        rounds = max(self.given_up[index] for index in sent)
        if rounds > ROUNDS:
            raise ClusterError(message) from error
        log.warning("%s; sent again (%d of %d)", message, rounds, ROUNDS)
        self.again.extend(sent)
        self.looked = -float("inf")

    def _rows(self, sent: range) -> str:
        return f"rows {self.panels[sent[0]][0]:,} to {self.panels[sent[-1]][1]:,}"

    def _paused(self, workers: Workers) -> str:
        address, worker = min(workers.items())
        return (
            f"no worker has taken a task for {lost_seconds():g} seconds: {address}, with "
            f"{_limit(worker['memory_limit'])}, is {worker['status']}. Dask pauses workers that "
            f"come near their limit; one task needs {format_bytes(self.task_bytes)} beside what "
            "the process takes. Lower memory=, or give workers more."
        )

    def _killed(self, sent: range, error: Any) -> str:
        worker = error.last_worker
        return (
            f"workers died again and again over {self._rows(sent)}, killed or out of memory: one "
            f"task needs {format_bytes(self.task_bytes)} beside what the process takes, and worker "
            f"{worker.address} had {_limit(worker.memory_limit)} for {worker.nthreads} of them. "
            "Lower memory= so that it fits the workers' limit, or give each worker fewer threads"
        )


def _executing(worker: dict[str, Any]) -> bool:
    return bool(worker["metrics"].get("task_counts", {}).get("executing"))


def _limit(nbytes: int | None) -> str:
    return format_bytes(nbytes) if nbytes else "no limit"
