"""A Dask cluster for the length of a program: one that runs already, or processes of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import dask
import dask.system
import dask.utils

from silchunk import machine
from silchunk.engine.remote import lost_seconds
from silchunk.errors import ClusterError, InputError, StoppedError
from silchunk.stopping import stop_requested

# What processes started here listen on.
LOOPBACK = "127.0.0.1"
# Of Dask, for clusters that are started here.
SETTINGS = {
    # It gives up for good a worker that is not there so long after it was killed, even if it was
    # started anew meanwhile and killed again.
    "distributed.deploy.lost-worker-timeout": "1 day",
    # There is no dashboard to show these, and every process would take time for them.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1 s",
    "distributed.admin.system-monitor.interval": "2 s",
}
LOOK_SECONDS = 0.2


@contextmanager
def connected(
    *,
    address: str | None = None,
    scheduler_file: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    threads: int | None = None,
) -> Iterator[None]:
    """Within it, silchunk runs where these say; on this process's threads if none of them does.

    Parameters
    ----------
    address : str, optional
        Of a scheduler that runs: ``"tcp://host:8786"``, or ``"tls://..."`` with the certificates
        of Dask's settings ``distributed.comm.tls``.
    scheduler_file : path, optional
        What the scheduler writes its address to; waited for.
    workers : int, optional
        Processes to start on this machine, which end with the context. They listen on loopback,
        share this machine's memory evenly, and keep what they spill below Dask's
        ``temporary-directory``.
    threads : int, optional
        Of each worker that is started, or of this process if none is.

    Raises
    ------
    InputError
        More than one place is named.
    ClusterError
        No scheduler answers within `silchunk.engine.remote.lost_seconds`.
    """
    named = [given for given in (address, scheduler_file, workers) if given is not None]
    if len(named) > 1:
        raise InputError("name one of scheduler, scheduler file and workers.")
    if threads is not None and (address is not None or scheduler_file is not None):
        raise InputError("threads are those of the workers that the scheduler has; leave it out.")
    with ExitStack() as stack:
        if workers is not None:
            _check_certificates()
            client = stack.enter_context(_own_cluster(workers, threads))
        elif named:
            address = _address(address, scheduler_file)
            _check_certificates(address)
            client = stack.enter_context(_client(address))
        else:
            stack.enter_context(
                dask.config.set({} if threads is None else {"num_workers": threads})
            )
            yield
            return
        stack.enter_context(client.as_current())
        yield


@contextmanager
def _own_cluster(workers: int, threads: int | None) -> Iterator[Any]:
    from distributed import Client, LocalCluster

    _start_tracker()
    each = threads or max(1, dask.system.CPU_COUNT // workers)
    with (
        dask.config.set(SETTINGS),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=each,
            memory_limit=machine.memory_limit() // workers,
            host=LOOPBACK,
            dashboard_address=f"{LOOPBACK}:0",  # of None, Dask would take port 8787
            scheduler_kwargs={"dashboard": False},
            local_directory=dask.config.get("temporary-directory", None),
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.register_plugin(_deaf())
        yield client


# What a terminal, or a batch system, sends to all processes of a job at once. This process alone
# is to hear it, and lets the others end what they are at.
FOR_ALL = (signal.SIGINT, signal.SIGUSR1)


def _deaf() -> Any:
    """For workers that are started here."""
    from distributed import WorkerPlugin

    class Deaf(WorkerPlugin):  # type: ignore[misc]
        def setup(self, worker: Any) -> None:
            for number in FOR_ALL:
                signal.signal(number, signal.SIG_IGN)

    return Deaf()


def _start_tracker() -> None:
    """Start the process by which Python keeps track of what processes share; it, too, is deaf."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, FOR_ALL)
    try:
        resource_tracker.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _check_certificates(address: str | None = None) -> None:
    """Refuse Dask's settings of certificates if they cannot do for an address, or, without one, for
    processes of this machine: a client that fails by them half-way takes ten seconds to go, and
    prints a traceback then."""
    from distributed.security import Security

    security = Security()
    roles = ("client",) if address else ("client", "scheduler", "worker")
    for role in roles:
        files = security.get_tls_config_for_role(role)
        named = ", ".join(str(files[name]) for name in ("ca_file", "cert", "key") if files[name])
        try:
            context = security.get_connection_args(role)["ssl_context"]
        except (OSError, ValueError) as error:  # those of the ssl module are OSErrors, too
            raise ClusterError(
                f"the certificates of Dask's settings distributed.comm.tls, {named}, cannot be "
                f"used: {error}"
            ) from error
        encrypted = security.require_encryption if address is None else _encrypted(address)
        if encrypted and context is None:
            raise ClusterError(
                f"{address or 'distributed.comm.require-encryption'} asks for a certificate, and "
                "Dask's settings distributed.comm.tls name none: let DASK_CONFIG name the "
                "dask.yaml beside the certificates."
            )
    if address is not None and security.require_encryption and not _encrypted(address):
        raise ClusterError(
            f"{address} is not encrypted, which distributed.comm.require-encryption of Dask's "
            "settings asks for. A scheduler with the same settings is at tls://host:8786, say."
        )


def _encrypted(address: str) -> bool:
    return address.startswith(("tls://", "wss://"))


@contextmanager
def _client(address: str) -> Iterator[Any]:
    from distributed import Client

    try:
        client = Client(address, timeout=lost_seconds(), set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise ClusterError(
            f"no scheduler answers at {address} within {lost_seconds():g} seconds: {error}. Is it "
            "running, and does it have the same certificates if it is a tls:// address?"
        ) from error
    except (ValueError, TypeError, RuntimeError) as error:  # as it is written, or certificates
        raise ClusterError(f"cannot connect to {address!r}: {error}") from error
    with client:
        yield client


def _address(address: str | None, scheduler_file: str | os.PathLike[str] | None) -> str:
    """Where the scheduler listens; its file may be about to be written."""
    if scheduler_file is None:
        if re.fullmatch(r"\w+://\S+:\d+", address or "") is None:
            raise InputError(
                f"a scheduler is at tcp://host:8786 or tls://host:8786, say; got {address!r}."
            )
        return str(address)

    file, until = Path(scheduler_file), time.monotonic() + lost_seconds()
    while True:
        try:
            return str(json.loads(file.read_text())["address"])
        except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
            if time.monotonic() > until:
                missing = isinstance(error, FileNotFoundError)
                raise ClusterError(
                    f"{file} {'does not exist' if missing else 'holds no scheduler address'} after "
                    f"{lost_seconds():g} seconds. Start the scheduler with --scheduler-file {file}."
                ) from error
        if stop_requested.is_set():
            raise StoppedError(
                "stopped as asked, waiting for a scheduler. Run the same again to go on."
            )
        time.sleep(LOOK_SECONDS)
