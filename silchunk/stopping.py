"""Signals that end a job between panels rather than in one."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from silchunk.errors import StoppedError

log = logging.getLogger("silchunk")

# Set by a signal while `stop_on_signals` is in force: no further task begins.
stop_requested = threading.Event()


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGUSR1 end a job between panels rather than in one.

    The first signal stops further tasks and lets those under way end; a second SIGINT interrupts
    them as well. For main programs: it changes the process's signal handlers while it is in force.

    Raises
    ------
    StoppedError
        If it was interrupted.
    """
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    before = {number: signal.getsignal(number) for number in signals}

    def stop(number: int, frame: Any) -> None:
        log.warning("%s: ending after the panels under way", signal.Signals(number).name)
        stop_requested.set()
        signal.signal(signal.SIGINT, before[signal.SIGINT])

    for number in signals:
        signal.signal(number, stop)
    try:
        yield
    except KeyboardInterrupt as error:
        raise StoppedError(
            "interrupted; what has been recorded is kept. Run the same again to go on."
        ) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        stop_requested.clear()
