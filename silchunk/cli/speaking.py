"""What a command says beside its result, and how it ends: messages, errors, exit codes."""

from __future__ import annotations

import errno
import inspect
import json
import logging
import math
import os
import platform
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

import silchunk
from silchunk.cli.commands import (
    BAD_INPUT,
    CANNOT_WRITE,
    DAMAGED,
    FAILED,
    OVER_BUDGET,
    PAUSED,
    SAID,
    STOPPED,
    command_name,
    typed,
)
from silchunk.errors import (
    DamagedStoreError,
    DiskFullError,
    OutputExistsError,
    OverBudgetError,
    SilchunkError,
    SilchunkWarning,
    StoppedError,
)

# Which error ends with which code; the first that fits.
EXIT_CODES: tuple[tuple[type[Exception], int], ...] = (
    (OverBudgetError, OVER_BUDGET),
    (OutputExistsError, CANNOT_WRITE),
    (DiskFullError, CANNOT_WRITE),
    (DamagedStoreError, DAMAGED),
    (StoppedError, PAUSED),
)


@dataclass(frozen=True)
class Manner:
    """How much a command says beside its result."""

    quiet: bool = False
    verbose: bool = False


LOUD = Manner()
_manner: ContextVar[Manner] = ContextVar("manner", default=LOUD)

QuietOption = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        help="No progress, and no word of files that are written; warnings and errors remain.",
        rich_help_panel=SAID,
    ),
]
VerboseOption = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Also what is logged, and where errors arose.",
        rich_help_panel=SAID,
    ),
]
MANNER_OPTIONS = {"quiet": QuietOption, "verbose": VerboseOption}


def add_options(
    run: Callable[..., None], command: Callable[..., None], options: Mapping[str, Any], default: Any
) -> None:
    """Let Typer see ``run``, which wraps ``command``, as that with further options."""
    own = inspect.signature(command, eval_str=True)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, kind in options.items()
    ]
    run.__signature__ = own.replace(  # type: ignore[attr-defined]
        parameters=[*own.parameters.values(), *added]
    )
    types = {name: one.annotation for name, one in own.parameters.items()}
    run.__annotations__ = {**types, **options}


def reported(command: Callable[..., None]) -> Callable[..., None]:
    """Turn errors into one readable block on standard error and an exit code of their kind, and
    give the command ``--quiet`` and ``--verbose``."""

    @wraps(command)
    def run(**given: Any) -> None:
        manner = Manner(**{name: given.pop(name) for name in MANNER_OPTIONS})
        with _in_manner(manner), warnings.catch_warnings():
            warnings.showwarning = _show_warning
            warnings.simplefilter("always", SilchunkWarning)
            try:
                command(**given)
            except BrokenPipeError:
                # Whoever read the output has seen enough; nothing more can be told them.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            except KeyboardInterrupt:
                # Commands that record what they do turn it into a StoppedError.
                _fail(f"stopped; nothing was written.\n{begin_again(given)}", STOPPED)
            except (typer.Exit, typer.Abort):
                raise
            except (SilchunkError, OSError) as error:
                _fail(_block(error), _exit_code(error))
            except MemoryError as error:
                _fail(f"{NO_MEMORY} {error}".strip(), OVER_BUDGET)
            except Exception as error:
                _fail(_bug(error), FAILED)

    add_options(run, command, MANNER_OPTIONS, default=False)
    return run


NO_MEMORY = (
    "the system has no more memory, though the command kept to what it may use: give it less with "
    "--memory, or end what else is running."
)


@contextmanager
def _in_manner(manner: Manner) -> Iterator[None]:
    """Within it, what is said is as asked for."""
    token = _manner.set(manner)
    log = logging.getLogger("silchunk")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    level = log.level
    if manner.verbose:
        log.addHandler(handler)
        log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        _manner.reset(token)


def shown() -> bool:
    """Whether progress is to be shown, as ``progress=`` takes it."""
    return not _manner.get().quiet


def go_on() -> str:
    """How to go on with what has been recorded."""
    return f"To go on:\n  {typed()}"


def begin_again(given: Mapping[str, Any]) -> str:
    """How to begin again what has recorded nothing, and better, where the command can."""
    if given.get("checkpoint", "") is not None:
        return f"To begin again:\n  {typed()}"
    # A fit is kept in one file, panels in a folder.
    name = "cluster.npz" if command_name() == "cluster" else f"{command_name()}.checkpoint"
    return (
        "With --checkpoint it keeps what is done, and the same command goes on:\n"
        f"  {typed('--checkpoint', name)}"
    )


def _bug(error: Exception) -> str:
    """What to say of an error that nobody raised on purpose."""
    from importlib.metadata import version

    frame = traceback.extract_tb(error.__traceback__)[-1]
    libraries = ("numpy", "numba", "dask", "distributed", "zarr", "scikit-learn", "typer")
    versions = ", ".join(f"{name} {version(name)}" for name in libraries)
    report = (
        "the traceback above."
        if _manner.get().verbose
        else f"what the command prints when it is run with -v:\n  {typed('-v')}"
    )
    return (
        f"this is a bug of silchunk, no mistake of yours.\n"
        f"  {type(error).__name__}: {error}\n"
        f"  in {Path(frame.filename).name}, line {frame.lineno}; command: {typed()}\n"
        f"  silchunk {silchunk.__version__}, Python {platform.python_version()}, "
        f"{platform.platform()}\n"
        f"  {versions}\n"
        f"Please report it: send this, the kind and size of the data, and {report}"
    )


def _block(error: Exception) -> str:
    """An error in words of the command line, and what is to be done, as it is to be typed."""
    message = str(error)
    if isinstance(error, OSError) and not isinstance(error, SilchunkError) and error.filename:
        message = f"{error.filename}: {error.strerror}"
    return "\n".join([in_command_line_words(message), *getattr(error, "__notes__", ())])


def _exit_code(error: Exception) -> int:
    for kind, code in EXIT_CODES:
        if isinstance(error, kind):
            return code
    if isinstance(error, OSError) and error.errno == errno.EROFS:
        return CANNOT_WRITE  # who only reads from such a disk does not meet it
    wrong_input = isinstance(error, SilchunkError) and isinstance(
        error, (ValueError, TypeError, OSError)
    )
    return BAD_INPUT if wrong_input else FAILED


def _option(name: re.Match[str]) -> str:
    return "--" + name[0].replace("_", "-")


# Arguments that are options of the same name.
OPTIONS = (
    "n_clusters",
    "n_init",
    "n_neighbors",
    "max_iter",
    "temperature_range",
    "temperature_step",
    "temperature",
    "sample_size",
    "cluster_sizes",
    "random_state",
)

# Around names of options, which names of files and columns may be as well.
NO_PATH, NO_MORE = r"(?<![\w\-/.'\"])", r"(?!\w|[./]\w|['\"])"

# How a remedy reads in Python, and on the command line.
WORDS = (
    (r"(?<![\w-])overwrite=True", "--overwrite"),
    (r"resume=True", "--resume"),
    (r"validate=False", "--no-validate"),
    (r'metric="precomputed"', "--metric precomputed"),
    (r'dtype="(\w+)"', r"--dtype \1"),
    (r'keep_bits="(\w+)"', r"--keep-bits \1"),
    (r'noise="(\w+)"', r"--noise \1"),
    (r"memory= to", "--memory to"),
    (r"memory=", "--memory"),
    (rf"{NO_PATH}min_cluster_size{NO_MORE}", "--min-cluster-size"),
    (r"certify=True", "--certify"),
    (rf"{NO_PATH}({'|'.join(OPTIONS)}){NO_MORE}", _option),
    (r"metric_params", "--param"),
    (r"import_distances", "silchunk import"),
    (r"export_distances", "silchunk export"),
    (r", or DistanceMatrix\.verify\(repair=True\)", ""),
    (r"pass it as X", "pass it with --source"),
    (r"(?<=Name the columns to read)", " with --columns"),
    (r"^kind must be", "--scale must be"),
    (r"\bX(?=:| is| has| must)", "SRC"),
)


def in_command_line_words(message: str) -> str:
    """A message of the library with options in place of arguments."""
    for pattern, words in WORDS:
        message = re.sub(pattern, words, message)
    return message


def _fail(message: str, code: int) -> None:
    if _manner.get().verbose:
        traceback.print_exc()
    typer.secho("silchunk: ", fg="red", bold=True, err=True, nl=False)
    typer.echo(message, err=True)
    # Threads of an interrupted job finish their panel in the background; nobody waits for them.
    sys.stdout.flush()
    sys.stderr.flush()
    if code in (STOPPED, PAUSED):
        os._exit(code)
    raise typer.Exit(code)


def say_written(path: Path | str) -> None:
    """Tell people, not programs, which file has been written."""
    if not _manner.get().quiet:
        typer.echo(f"wrote {path}", err=True)


def _show_warning(message: Warning | str, *rest: Any, **named: Any) -> None:
    typer.secho("warning: ", fg="yellow", err=True, nl=False)
    typer.echo(in_command_line_words(str(message)), err=True)


def print_json(facts: Mapping[str, Any]) -> None:
    """Print a result for programs: one object that says which command of which version it is of."""
    said = {"command": command_name(), "silchunk": silchunk.__version__, **facts}
    typer.echo(json.dumps(_as_json(said), indent=2, allow_nan=False))


def _as_json(value: Any) -> Any:
    """The same of what JSON has: it has no infinity, and nothing that is not a number."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _as_json(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(part) for part in value]
    return value
