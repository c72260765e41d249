"""What all commands share: the application, options, output files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

import silchunk
from silchunk.cli.commands import BAD_INPUT as BAD_INPUT
from silchunk.cli.commands import CANNOT_WRITE as CANNOT_WRITE
from silchunk.cli.commands import DAMAGED as DAMAGED
from silchunk.cli.commands import FAILED as FAILED
from silchunk.cli.commands import OVER_BUDGET as OVER_BUDGET
from silchunk.cli.commands import PAUSED as PAUSED
from silchunk.cli.commands import SAID, Application, Group
from silchunk.cli.commands import STOPPED as STOPPED
from silchunk.cli.speaking import print_json as print_json
from silchunk.cli.speaking import reported as reported
from silchunk.cli.speaking import say_written as say_written
from silchunk.cli.speaking import shown as shown
from silchunk.errors import InputError, OutputExistsError

app = Application(
    name="silchunk",
    cls=Group,
    help="Judge clusterings of data of any size: how good is a silhouette, at best?",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


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


Source = Annotated[
    str,
    typer.Argument(
        metavar="SRC",
        help="Points, one row each: .npy, Zarr (data.zarr/group/array), CSV, Parquet, .npz, HDF5 "
        "or AnnData (cells.h5ad:obsm/X_pca). With --metric precomputed: a square distance matrix.",
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
        help="Points, one row each: .npy, Zarr (data.zarr/group/array), CSV, Parquet, .npz, HDF5 "
        "or AnnData (cells.h5ad:obsm/X_pca).",
        show_default=False,
    ),
]
PointMetricOption = Annotated[str, typer.Option("--metric", help="Any metric of scikit-learn.")]
ParamOption = Annotated[
    list[str],
    typer.Option(
        "--param",
        metavar="NAME=VALUE",
        help="Parameter of the metric, such as p=3; repeat it for several.",
    ),
]
SizeOption = Annotated[
    list[int],
    typer.Option(
        "--min-cluster-size",
        "-m",
        metavar="SIZE",
        help="Least size a cluster may have; repeat it for several in one pass.",
    ),
]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="BYTES",
        help='Most memory to use, e.g. "1GiB". [default: 60% of the machine]',
        show_default=False,
    ),
]
DtypeOption = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        metavar="DTYPE",
        help="Of the distances: float32 or float64. [default: as the input]",
        show_default=False,
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON.", rich_help_panel=SAID)
]


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
