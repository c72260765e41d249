"""Signals and a time limit that end a job between panels rather than in one."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from silchunk.errors import StoppedError

log = logging.getLogger("silchunk")


class Flag:
    """Set or not. Unlike `threading.Event` it has no lock, which a signal handler that interrupts
    another one would wait for in vain."""

    def __init__(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._set

    def set(self) -> None:
        """Set it."""
        self._set = True

    def clear(self) -> None:
        """Unset it."""
        self._set = False


# Set by a signal or the clock while `stop_on_signals` is in force: no further task begins.
stop_requested = Flag()


@contextmanager
def stop_on_signals(time_limit: float | None = None, interrupts: bool = True) -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGUSR1 end a job between panels rather than in one.

    The first signal stops further tasks and lets those under way end; a second SIGINT interrupts
    them as well. For main programs: it changes the process's signal handlers while it is in force.

    Parameters
    ----------
    time_limit : float, optional
        Seconds after which it ends in the same way.
    interrupts : bool
        Whether SIGINT is one of the signals.

    Raises
    ------
    StoppedError
        If it was interrupted.
    """
    signals = [signal.SIGTERM, signal.SIGUSR1, *([signal.SIGINT] if interrupts else [])]
    before = {number: signal.getsignal(number) for number in signals}

    def stop(number: int, frame: Any) -> None:
        stop_requested.set()
        # What was interrupted may be at writing to the same stream.
        with suppress(RuntimeError):
            log.warning("%s: ending after the panels under way", signal.Signals(number).name)
        if interrupts:
            signal.signal(signal.SIGINT, before[signal.SIGINT])

    def time_is_up() -> None:
        stop_requested.set()
        log.warning("the time limit is reached: ending after the panels under way")

    clock = None if time_limit is None else threading.Timer(time_limit, time_is_up)
    for number in signals:
        signal.signal(number, stop)
    if clock is not None:
        clock.daemon = True
        clock.start()
    try:
        yield
    except KeyboardInterrupt as error:
        if not interrupts:
            raise
        raise StoppedError(
            "interrupted; what has been recorded is kept. Run the same again to go on."
        ) from error
    finally:
        if clock is not None:
            clock.cancel()
            clock.join()  # or it might stop the next job
        for number, handler in before.items():
            signal.signal(number, handler)
        stop_requested.clear()
