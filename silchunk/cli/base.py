"""What all commands share: the application, options, errors and exit codes, output files."""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

import silchunk
from silchunk.errors import (
    DamagedStoreError,
    DiskFullError,
    InputError,
    OutputExistsError,
    OverBudgetError,
    SilchunkError,
    SilchunkWarning,
    StoppedError,
)

app = typer.Typer(
    name="silchunk",
    help="Judge clusterings of data of any size: how good is a silhouette, at best?",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# Exit codes beyond 0 and typer's 2 for wrong usage, after sysexits.h where it has one.
BAD_INPUT = 65
OVER_BUDGET = 69
FAILED = 70
CANNOT_WRITE = 73
DAMAGED = 74
PAUSED = 75
STOPPED = 130

# Which error ends with which code; the first that fits.
EXIT_CODES: tuple[tuple[type[Exception], int], ...] = (
    (OverBudgetError, OVER_BUDGET),
    (OutputExistsError, CANNOT_WRITE),
    (DiskFullError, CANNOT_WRITE),
    (DamagedStoreError, DAMAGED),
    (StoppedError, PAUSED),
)


def reported(command: Callable[..., None]) -> Callable[..., None]:
    """Turn errors into one readable block on standard error and an exit code of their kind."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            warnings.simplefilter("always", SilchunkWarning)
            try:
                command(*args, **kwargs)
            except BrokenPipeError:
                # Whoever read the output has seen enough; nothing more can be told them.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            except KeyboardInterrupt:
                _fail("stopped; nothing was written.", STOPPED)
            except (SilchunkError, OSError) as error:
                _fail(str(error), _exit_code(error))

    return run


def _exit_code(error: Exception) -> int:
    for kind, code in EXIT_CODES:
        if isinstance(error, kind):
            return code
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
    (r"min_cluster_size", "--min-cluster-size"),
    (r"certify=True", "--certify"),
    (rf"(?<![\w-])({'|'.join(OPTIONS)})", _option),
    (r"metric_params", "--param"),
    (r"import_distances", "silchunk import"),
    (r"export_distances", "silchunk export"),
    (r", or DistanceMatrix\.verify\(repair=True\)", ""),
    (r"pass it as X", "pass it with --source"),
    (r"\bX(?=:| is| has| must)", "SRC"),
)


def in_command_line_words(message: str) -> str:
    """A message of the library with options in place of arguments."""
    for pattern, words in WORDS:
        message = re.sub(pattern, words, message)
    return message


def parsed_params(pairs: list[str]) -> dict[str, Any]:
    """``name=value`` options as a dict; values are JSON, or else text."""
    params: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"--param takes NAME=VALUE, such as p=3; got {pair!r}.")
        try:
            params[name] = json.loads(value)
        except ValueError:
            params[name] = value
    return params


def parsed_sizes(text: str | None) -> list[int] | None:
    """``300,50,20`` as a list."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(
            f"--cluster-sizes takes integers with commas between them, 300,50,20; got {text!r}."
        ) from error


def _fail(message: str, code: int) -> None:
    typer.secho("silchunk: ", fg="red", bold=True, err=True, nl=False)
    typer.echo(in_command_line_words(message), err=True)
    # Threads of an interrupted job finish their panel in the background; nobody waits for them.
    sys.stdout.flush()
    sys.stderr.flush()
    if code in (STOPPED, PAUSED):
        os._exit(code)
    raise typer.Exit(code)


def say_written(path: Path | str) -> None:
    """Tell people, not programs, which file has been written."""
    typer.echo(f"wrote {path}", err=True)


def _show_warning(message: Warning | str, *rest: Any, **named: Any) -> None:
    typer.secho("warning: ", fg="yellow", err=True, nl=False)
    typer.echo(in_command_line_words(str(message)), err=True)


Source = Annotated[
    str,
    typer.Argument(
        metavar="SRC",
        help="Points, one row each: a .npy file or a Zarr array (data.zarr/group/array). "
        "With --metric precomputed: a square distance matrix.",
        show_default=False,
    ),
]
MetricOption = Annotated[
    str, typer.Option("--metric", help="Any metric of scikit-learn, or 'precomputed'.")
]
PointsOption = Annotated[
    str,
    typer.Argument(
        metavar="SRC",
        help="Points, one row each: a .npy file or a Zarr array (data.zarr/group/array).",
        show_default=False,
    ),
]
PointMetricOption = Annotated[str, typer.Option("--metric", help="Any metric of scikit-learn.")]
ParamOption = Annotated[
    list[str],
    typer.Option("--param", help="Parameter of the metric, NAME=VALUE; repeat it for several."),
]
SizeOption = Annotated[
    list[int],
    typer.Option(
        "--min-cluster-size",
        "-m",
        help="Least size a cluster may have; repeat it for several in one pass.",
    ),
]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        "--memory",
        help='Most memory to use, e.g. "1GiB". [default: 60% of the machine]',
        show_default=False,
    ),
]
DtypeOption = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        help="Of the distances: float32 or float64. [default: as the input]",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Judge clusterings of data of any size: how good is a silhouette, at best?"""
    if version:
        typer.echo(f"silchunk {silchunk.__version__}")
        raise typer.Exit()


def refuse_existing(path: Path | None) -> None:
    """Raise before any work if an output path is taken or cannot be."""
    if path is None:
        return
    if path.exists() or path.is_symlink():
        raise OutputExistsError(f"{path} exists already and is left as it is; name another file.")
    if not path.parent.is_dir():
        raise OutputExistsError(f"there is no folder {str(path.parent)!r} to write {path.name} to.")


def write_whole(path: Path, write: Callable[[Any], None]) -> None:
    """Write under a temporary name first, so that the file is never seen half done."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("xb") as stream:
            write(stream)
        os.link(temporary, path)  # unlike a rename, fails if the name was taken meanwhile
    except FileExistsError as error:
        raise OutputExistsError(f"{path} exists already and is left as it is.") from error
    finally:
        temporary.unlink(missing_ok=True)


def print_json(value: Any) -> None:
    """Print a result for programs."""
    typer.echo(json.dumps(value, indent=2))
