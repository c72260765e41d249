"""Progress of long work: a bar on a terminal, a line every few percent elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

log = logging.getLogger("silchunk")

# Below this many seconds nobody wants to be told.
QUIET_SECONDS = 2.0
PERCENT_STEP = 5

# None: decide by the surroundings; bool: on or off; callable: called with (done, total).
Progress = bool | None | Callable[[int, int], None]
Advance = Callable[[int, int], None]


@contextmanager
def reporting(progress: Progress, label: str, stream: TextIO | None = None) -> Iterator[Advance]:
    """Give a function ``advance(done, total)`` that tells people about it.

    ``progress=None`` shows a bar if standard error is a terminal and logs to the logger
    ``"silchunk"`` otherwise; ``True`` writes plain lines to standard error where there is no
    terminal; ``False`` is silent; a callable receives every step.
    """
    stream = sys.stderr if stream is None else stream
    if callable(progress):
        yield progress
    elif progress is False:
        yield lambda done, total: None
    elif stream.isatty():
        with _bar(label, stream) as advance:
            yield advance
    elif progress is None:
        yield _Lines(label, log.info)
    else:
        yield _Lines(label, lambda line: print(line, file=stream, flush=True))


@contextmanager
def _bar(label: str, stream: TextIO) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("panels,"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    bar = RichProgress(*columns, console=Console(file=stream), transient=True)
    task = bar.add_task(label)
    began = time.monotonic()

    def advance(done: int, total: int) -> None:
        if not bar.live.is_started and time.monotonic() - began > QUIET_SECONDS:
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield advance
    finally:
        bar.stop()


class _Lines:
    """One line every `PERCENT_STEP` percent, with rate and time left."""

    def __init__(self, label: str, write: Callable[[str], None]) -> None:
        self.label = label
        self.write = write
        self.began = time.monotonic()
        self.told = 0

    def __call__(self, done: int, total: int) -> None:
        elapsed = time.monotonic() - self.began
        step = 100 * done // total // PERCENT_STEP
        if step <= self.told or elapsed < QUIET_SECONDS:
            return
        self.told = step
        rate = done / elapsed
        left = (total - done) / rate
        self.write(
            f"{self.label}: {100 * done // total}% ({done:,} of {total:,} panels, "
            f"{rate:.3g} a second, {left:.0f} s left)"
        )
