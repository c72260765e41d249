"""Where a command computes, and for how long: options that all commands with panels share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from silchunk.cli.commands import WHERE
from silchunk.cli.inputs import reads
from silchunk.cli.speaking import add_options, begin_again, go_on
from silchunk.errors import InputError, StoppedError

SchedulerOption = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        rich_help_panel=WHERE,
        metavar="ADDRESS",
        help="Dask scheduler to compute with: tcp://host:8786, or tls://host:8786.",
        show_default=False,
    ),
]
SchedulerFileOption = Annotated[
    Path | None,
    typer.Option(
        "--scheduler-file",
        rich_help_panel=WHERE,
        help="File that the Dask scheduler to compute with writes its address to.",
        show_default=False,
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers",
        rich_help_panel=WHERE,
        min=1,
        help="Compute in so many processes, started for this command on this machine.",
        show_default=False,
    ),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads",
        rich_help_panel=WHERE,
        min=1,
        help="Panels at once, of each of the --workers if there are any. [default: all cores]",
        show_default=False,
    ),
]
TimeLimitOption = Annotated[
    str | None,
    typer.Option(
        "--time-limit",
        rich_help_panel=WHERE,
        metavar="TIME",
        help="End in good order, with code 75, after 55m, 1h30m, or 1:30:00.",
        show_default=False,
    ),
]

OPTIONS = {
    "threads": ThreadsOption,
    "workers": WorkersOption,
    "scheduler": SchedulerOption,
    "scheduler_file": SchedulerFileOption,
    "time_limit": TimeLimitOption,
}

UNIT_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def computes(
    records: Callable[[dict[str, Any]], bool],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the `OPTIONS`, and have SIGTERM, SIGUSR1 and its time limit end it between
    panels, with code 75.

    Parameters
    ----------
    records : callable of the command's options
        Whether it records what is done, so that the same command goes on. If so an interrupt also
        waits for the panels under way; else there is nothing to wait for.
    """

    def with_options(command: Callable[..., None]) -> Callable[..., None]:
        command = reads(command)

        @wraps(command)
        def run(**given: Any) -> None:
            options = {name: given.pop(name) for name in OPTIONS}
            with _running(given, records(given), **options):
                command(**given)

        add_options(run, command, OPTIONS, default=None)
        return run

    return with_options


def always(options: dict[str, Any]) -> bool:
    """For commands that record whatever they do."""
    return True


def never(options: dict[str, Any]) -> bool:
    """For commands that record nothing."""
    return False


def with_checkpoint(options: dict[str, Any]) -> bool:
    """For commands that record with ``--checkpoint``."""
    return options["checkpoint"] is not None


@contextmanager
def _running(
    given: dict[str, Any],
    recorded: bool,
    *,
    threads: int | None,
    workers: int | None,
    scheduler: str | None,
    scheduler_file: Path | None,
    time_limit: str | None,
) -> Iterator[None]:
    from silchunk.engine.connecting import connected
    from silchunk.stopping import stop_on_signals

    seconds = None if time_limit is None else parsed_seconds(time_limit)
    try:
        with (
            stop_on_signals(seconds, interrupts=recorded),
            connected(
                address=scheduler, scheduler_file=scheduler_file, workers=workers, threads=threads
            ),
        ):
            yield
    except StoppedError as error:
        if recorded:
            error.add_note(go_on())
            raise
        anew = StoppedError(
            "stopped as asked before the end. This command has recorded nothing, so the same "
            "command begins anew."
        )
        anew.add_note(begin_again(given))
        raise anew from error


def parsed_seconds(text: str) -> float:
    """``55m``, ``1h30m``, ``90`` (seconds), ``1:30:00`` or ``1-12:00:00`` (days-) as seconds.

    Not ``55:00``, which is minutes to some queues and hours to others.
    """
    clock = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", text)
    units = re.fullmatch(r"(?:\d+(?:\.\d+)?[dhms])+", text)
    if clock is not None:
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        total = float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    elif units is not None:
        parts = re.findall(r"([\d.]+)([dhms])", text)
        total = sum(float(count) * UNIT_SECONDS[unit] for count, unit in parts)
    else:
        total = float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else 0.0
    if total <= 0:
        raise InputError(
            f"--time-limit takes a time such as 55m, 1h30m or 1:30:00 (h:mm:ss); got {text!r}."
        )
    return total
