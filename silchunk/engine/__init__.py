"""The only Dask code: run one task per panel, on threads or on a cluster, results in panel order.

A task is a picklable callable of a row range. It reads what it needs, and returns something tiny.
"""

from __future__ import annotations

import logging
import operator
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import dask
import dask.local
import dask.system
import dask.threaded
import dask.utils

from silchunk import buffers, machine, parcel
from silchunk.blas import one_blas_thread
from silchunk.engine import flight, remote
from silchunk.errors import InputError, SilchunkError, StoppedError
from silchunk.inbox import LOOK_AHEAD, Consume, Inbox
from silchunk.plan import PanelRange
from silchunk.progress import Progress, reporting
from silchunk.rows import scratch_folder
from silchunk.stopping import stop_requested

if TYPE_CHECKING:
    from distributed import Client

# What every ``scheduler=`` takes: "threads", "synchronous", a client, or None to look for one.
Scheduler: TypeAlias = "str | Client | None"

log = logging.getLogger("silchunk")

Task = Callable[[int, int], Any]


LOCAL_SCHEDULERS = ("threads", "synchronous")
# So few bytes are looked at where the job was asked for.
NEARBY_BYTES = 8 << 20


@dataclass(frozen=True)
class Executor:
    """Where tasks run, and what each process there offers."""

    client: Client | None
    scheduler: str
    processes: int
    concurrency: int  # tasks at once in one process
    memory_bytes: int  # of one process, all of it

    @property
    def distributed(self) -> bool:
        """Whether tasks run in other processes, to which arrays must not be sent."""
        return self.client is not None

    def check_visible(self, *paths: str | os.PathLike[str]) -> None:
        """Refuse workers that cannot see files or folders that tasks are to name."""
        if self.client is not None:
            remote.check_visible(self.client, paths)

    def everywhere(self, order: Callable[..., Any], *arguments: Any) -> None:
        """Have each process that runs tasks do something; who does not answer is left alone."""
        if self.client is None:
            order(*arguments)
        else:
            remote.tell(self.client, order, *arguments)

    def nearby(self, nbytes: int) -> Executor:
        """Where one look at so many bytes of input is taken: here, if they are few, since messages
        to workers would take longer."""
        return _local("synchronous") if self.distributed and nbytes <= NEARBY_BYTES else self

    def current(self) -> AbstractContextManager[Any]:
        """Within it, what Dask computes by itself is computed here too."""
        return nullcontext() if self.client is None else self.client.as_current()


def executor(scheduler: Scheduler = None) -> Executor:
    """Choose where to run.

    Parameters
    ----------
    scheduler : None, "threads", "synchronous" or distributed.Client
        None takes the active client if there is one, then Dask's configuration, then threads.
        No process is ever started here.
    """
    if isinstance(scheduler, str):
        return _local(scheduler)
    if scheduler is not None:
        if not hasattr(scheduler, "scheduler_info"):
            raise InputError(
                f"scheduler must be 'threads', 'synchronous' or a distributed.Client; "
                f"got {scheduler!r}."
            )
        return _cluster(scheduler)
    # Without distributed in this process there cannot be an active client.
    distributed = sys.modules.get("distributed")
    if distributed is not None:
        try:
            return _cluster(distributed.default_client())
        except ValueError:
            pass
    return _local(dask.config.get("scheduler", None) or "threads")


def _local(scheduler: Any) -> Executor:
    names = {"threading": "threads", "sync": "synchronous", "single-threaded": "synchronous"}
    name = names.get(scheduler, scheduler)
    if name not in LOCAL_SCHEDULERS:
        raise InputError(
            f"scheduler {scheduler!r} is not one that silchunk runs on: use 'threads', "
            "'synchronous', or a distributed.Client for several processes."
        )
    workers = 1
    if name == "threads":
        workers = int(dask.config.get("num_workers", None) or dask.system.CPU_COUNT)
    return Executor(None, name, 1, workers, machine.memory_limit())


def _cluster(client: Client) -> Executor:
    if client.asynchronous:
        raise InputError("silchunk needs a client made with asynchronous=False.")
    workers = remote.workers_of(client)
    threads = max(worker["nthreads"] for worker in workers.values())
    limits = [worker["memory_limit"] for worker in workers.values() if worker["memory_limit"]]
    # Workers without a limit of their own are taken to have that of a machine like this one.
    limit = min(limits, default=machine.memory_limit())
    return Executor(client, "distributed", len(workers), threads, limit)


def byte_budget(memory: int | float | str | None, where: Executor) -> int:
    """Bytes from ``memory``: a count, a string such as ``"512MiB"``, or None for a default share
    of what a process may use there."""
    if memory is None:
        return machine.default_budget(where.memory_bytes)
    count = 0
    if isinstance(memory, float):
        count = int(memory) if memory.is_integer() else 0
    elif not isinstance(memory, (bool, str)):
        with suppress(TypeError):
            count = operator.index(memory)
    elif isinstance(memory, str) and any(letter.isdigit() for letter in memory):
        with suppress(ValueError):
            count = int(dask.utils.parse_bytes(memory))
    if count <= 0:
        raise InputError(f'memory must be bytes or a string such as "1GiB"; got {memory!r}.')
    return count


def scratch_parent() -> str:
    """Folder for temporary files: Dask's ``temporary-directory``, or the system's."""
    return dask.config.get("temporary-directory", None) or tempfile.gettempdir()


def map_panels(
    task: Task,
    panels: Sequence[PanelRange],
    consume: Consume,
    *,
    where: Executor,
    concurrency: int | None = None,
    progress: Progress = None,
    label: str = "panels",
    task_bytes: int = 0,
    ordered: bool = True,
) -> None:
    """Run ``task(start, stop)`` for every panel and hand each result to ``consume(i, result)``.

    ``consume`` is called by one thread at a time, in the order of the panels or, with ``ordered``
    False, as they are done; a result is dropped as soon as it is consumed.

    Parameters
    ----------
    task : callable of (start, stop)
        Picklable if ``where`` is a cluster; it then carries paths, not arrays.
    panels : sequence of (start, stop)
    consume : callable of (index, result)
    where : Executor
    concurrency : int, optional
        Tasks at once in one process; default and upper limit ``where.concurrency``.
    progress : bool, callable or None
        See `silchunk.progress.reporting`.
    label : str
        What is being done, for the progress line.
    task_bytes : int
        Memory of one task, for the message when workers are lost.

    Raises
    ------
    ClusterError
        Workers died over a panel again and again, none was left for `remote.lost_seconds`, or the
        scheduler is gone.
    StoppedError
        `stop_on_signals` was in force and a signal came; tasks that had begun were let end.
    """
    attempt = _Attempt(task)
    running = min(concurrency or where.concurrency, where.concurrency)
    with reporting(progress, label) as advance:
        inbox = Inbox(consume, len(panels), advance, ordered)
        if where.client is None:
            buffers.raise_thresholds()
            try:
                _run_locally(attempt, panels, inbox, where.scheduler, running)
            finally:
                buffers.drop()
        else:
            with (
                where.current(),  # the client that distributed.wait asks
                scratch_folder(scratch_parent()) as folder,
            ):
                sent = parcel.packed(flight.Message(attempt, running), folder)
                try:
                    flight.run_panels(sent, panels, inbox, where.client, running, task_bytes)
                finally:
                    if where.client.status == "running":
                        where.everywhere(_clear)
    if inbox.done < len(panels):
        raise StoppedError(
            f"stopped as asked after {inbox.done:,} of {len(panels):,} panels of this step; what "
            "has been recorded is kept. Run the same again to go on."
        )


def _clear() -> None:
    """Give back what tasks have left in this process."""
    buffers.drop()
    parcel.forget()


class _Attempt:
    """A task with one BLAS thread and a second chance for reads that failed."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def __call__(self, panel: PanelRange) -> Any:
        for tries_left in range(parcel.READ_RETRIES, -1, -1):
            try:
                with one_blas_thread():
                    return self.task(*panel)
            except OSError as error:
                # Our own errors, a missing input among them, do not pass with time.
                if isinstance(error, SilchunkError) or not tries_left:
                    raise
                log.warning("rows %d to %d: %s; trying again", *panel, error)
                time.sleep(parcel.RETRY_SECONDS)
        raise AssertionError("unreachable")


def _run_locally(
    attempt: _Attempt, panels: Sequence[PanelRange], inbox: Inbox, scheduler: str, running: int
) -> None:
    left = iter(range(len(panels)))
    lock = threading.Lock()

    def work() -> None:
        """Run panels, the next one each time, until there is none."""
        while True:
            with lock:
                index = next(left, None)
            if index is None or inbox.failed:
                return
            try:
                inbox.wait_for_room(index, LOOK_AHEAD * running, stop_requested.is_set)
                if stop_requested.is_set() or inbox.failed:
                    return
                # The result goes to the inbox, not to Dask: Dask would hold all of them to the end.
                inbox.put(index, attempt(panels[index]))
            except BaseException:
                inbox.fail()
                raise

    # One task of Dask's for each thread rather than for each panel, which would cost more than a
    # short panel does. Its functions rather than their names: to look up a name, Dask imports
    # distributed.
    workers = min(running, len(panels)) if scheduler == "threads" else 1
    get = dask.threaded.get if workers > 1 else dask.local.get_sync
    graph = {f"silchunk-{number}": (work,) for number in range(workers)}
    # Held around the whole run: tasks that overlap would otherwise set and reset it by turns.
    with one_blas_thread():
        try:
            # Run again by Dask, a task that has failed would find nothing to do.
            get(graph, list(graph), num_workers=workers, rerun_exceptions_locally=False)
        except BaseException:  # an interrupt, which threads do not hear of
            inbox.fail()
            raise
