"""Which part of SRC the points are: options that all commands with points share."""

from __future__ import annotations

import csv
import inspect
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Annotated, Any, get_args

import typer

from silchunk.cli.speaking import add_options
from silchunk.errors import InputError

COLUMNS = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="NAME,NAME,...",
        help="Columns of a table to read. [default: all that hold numbers]",
        show_default=False,
    ),
]
ARRAY = Annotated[
    str | None,
    typer.Option(
        "--array",
        metavar="PATH",
        help="Array to read in a file or group that has several: obsm/X_pca.",
        show_default=False,
    ),
]
LABEL_COLUMN = Annotated[
    str | None,
    typer.Option(
        "--label-column",
        metavar="NAME",
        help="What in SRC has the labels, in place of LABELS: a column of a table, or "
        "obs/louvain of an .h5ad.",
        show_default=False,
    ),
]
SCALE = Annotated[
    str | None,
    typer.Option(
        "--scale",
        metavar="KIND",
        help="Bring the features to one scale: 'standard', by mean and standard deviation, or "
        "'robust', by median and quartiles.",
        show_default=False,
    ),
]
OPTIONS = {"columns": COLUMNS, "array": ARRAY, "scale": SCALE}

# What shows that an argument is points.
POINTS_METAVAR = "SRC"


def reads(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the `OPTIONS`, if it takes points; one that takes labels can also be told
    that they are in the same file."""
    own = inspect.signature(command, eval_str=True)
    if not any(_is_points(one) for one in own.parameters.values()):
        return command
    labelled = "labels" in own.parameters and _is_text(own.parameters["labels"])
    options = OPTIONS | ({"label_column": LABEL_COLUMN} if labelled else {})

    @wraps(command)
    def run(**given: Any) -> None:
        asked = {name: given.pop(name) for name in options}
        labels = "labels" if labelled else None
        with _opened(given, labels, **asked) as opened:
            command(**opened)

    add_options(run, command, options, default=None)
    if labelled:
        _make_optional(run, "labels")
    return run


def _is_points(parameter: inspect.Parameter) -> bool:
    return any(
        getattr(one, "metavar", None) == POINTS_METAVAR for one in get_args(parameter.annotation)
    )


def _is_text(parameter: inspect.Parameter) -> bool:
    """Whether it takes text: elsewhere, --labels is a folder to write to."""
    return get_args(parameter.annotation)[0] in (str, str | None)


def _make_optional(run: Any, name: str) -> None:
    """Let an argument be left out; commands are called by keyword, so that any may be."""
    parameters = [
        one.replace(
            kind=inspect.Parameter.KEYWORD_ONLY,
            default=None if one.name == name and one.default is one.empty else one.default,
        )
        for one in run.__signature__.parameters.values()
    ]
    run.__signature__ = run.__signature__.replace(parameters=parameters)


@contextmanager
def _opened(
    given: dict[str, Any],
    labels: str | None,
    *,
    columns: str | None,
    array: str | None,
    scale: str | None,
    label_column: str | None = None,
) -> Iterator[dict[str, Any]]:
    """The command's arguments, with points that are opened and labels that are said where.

    Files that it takes to read them go when the command ends, however it does.
    """
    # What reads is imported when a command runs, so that help is there at once.
    from silchunk.readers import kind_of, split
    from silchunk.readers.scratch import removed_at_the_end

    file, inside = split(given["src"])
    given = dict(given)
    if labels is not None:
        given[labels] = _labels(given[labels], label_column, file, _are_needed(given))
    if inside is not None and array is not None:
        raise InputError(f"--array {array} and {given['src']} both say which array; leave out one.")
    of_kind = kind_of(file) is not None and os.path.isfile(file)
    if not of_kind and (columns, array, scale, label_column, inside) == (None,) * 5:
        yield given
        return
    with removed_at_the_end():
        given["src"] = _points(given, file, array or inside, columns, scale, label_column)
        yield given


def _are_needed(given: dict[str, Any]) -> bool:
    # Where they can be left out, as of a bound, there is more that says which clusterings.
    return "cluster_sizes" not in given


def _points(
    given: dict[str, Any],
    file: str,
    array: str | None,
    columns: str | None,
    scale: str | None,
    label_column: str | None,
) -> Any:
    from silchunk.distances import find_store
    from silchunk.points import OpenedPath, read_points
    from silchunk.readers import TABLES, kind_of

    metric = given.get("metric")
    if scale is not None and (metric == "precomputed" or find_store(file) is not None):
        raise InputError("--scale is for points; distances have no features.")
    opened = OpenedPath(file)
    opened.source = read_points(
        file,
        array=array,
        columns=None if columns is None else next(csv.reader([columns])),
        label_column=label_column if kind_of(file) in TABLES else None,
        missing=metric == "nan_euclidean",
        sparse=True,
    )
    if scale is not None:
        from silchunk.scaling import scaled

        opened.source = scaled(opened.source, scale)
    asked = (("--array", array), ("--columns", columns), ("--scale", scale))
    words = [f"{option} {shlex.quote(value)}" for option, value in asked if value is not None]
    opened.options = " ".join(words)
    return opened


def _labels(labels: str | None, column: str | None, file: str, needed: bool) -> str | None:
    if column is None:
        if labels is None and needed:
            raise InputError(
                "LABELS are missing: a file with one for each point, or --label-column, which "
                "names them in SRC."
            )
        return labels
    if labels is not None:
        raise InputError(
            f"labels are given twice: {labels}, and --label-column {column}; leave out one."
        )
    return f"{file}:{column}"
