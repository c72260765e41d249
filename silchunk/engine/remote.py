"""The workers of a Dask cluster: which there are, what runs on them and what they see.

Every wait here ends: with an answer, or with an error that says what the cluster lacks.
"""

from __future__ import annotations

import logging
import os
import platform
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
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
from silchunk.stopping import stop_requested

if TYPE_CHECKING:
    from distributed import Client

log = logging.getLogger("silchunk")

Workers = dict[str, dict[str, Any]]

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
    if not reconnected(client):
        raise ClusterError(f"the Dask client is {client.status}; connect a new one.")
    with _answering(client):
        workers = known_workers(client) or _first_workers(client)
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
            if workers := known_workers(client):
                return workers
    finally:
        wanted.release()
    raise ClusterError(no_workers(client))


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
        log.warning("the workers of %s have not all answered: %s", scheduler_address(client), error)


@contextmanager
def _answering(client: Client) -> Iterator[None]:
    try:
        yield
    except SilchunkError:
        raise
    except (OSError, TimeoutError) as error:
        raise ClusterError(no_answer(client, error)) from error


def known_workers(client: Client) -> Workers:
    """What the scheduler knows of its workers now, by address; there may be none.

    Raises
    ------
    OSError, TimeoutError
        It does not answer.
    """
    # Client.scheduler_info has no timeout, and gives what it knew where the scheduler is gone.
    scheduler = client.scheduler
    if scheduler is None:
        raise OSError("there is no connection to the scheduler")
    seconds = min(ANSWER_SECONDS, lost_seconds())
    identity = client.sync(scheduler.identity, n_workers=-1, callback_timeout=seconds)
    workers: Workers = identity["workers"]
    return workers


def reconnected(client: Client) -> bool:
    """Whether the client is connected; it looks by itself for a scheduler that it has lost."""
    until = time.monotonic() + lost_seconds()
    while client.status == "connecting" and time.monotonic() < until:
        if stop_requested.is_set():
            return False
        time.sleep(LOOK_SECONDS)
    return bool(client.status == "running")


def scheduler_address(client: Client) -> str:
    """Where the scheduler is, for messages."""
    scheduler = client.scheduler
    return "of the client" if scheduler is None else str(scheduler.address)


def no_answer(client: Client, error: Exception) -> str:
    """The message where the scheduler or a worker does not answer."""
    return (
        f"the scheduler {scheduler_address(client)}, or one of its workers, does not answer: "
        f"{error or type(error).__name__}. See whether it hangs."
    )


def no_workers(client: Client) -> str:
    """The message where no worker has come for too long."""
    return (
        f"the scheduler {scheduler_address(client)} has had no worker for {lost_seconds():g} "
        "seconds. What has been recorded is kept. Start workers for it, or close the client to run "
        "on this machine's threads."
    )
