"""``silchunk sweep``."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Annotated, Any

import typer

import silchunk
from silchunk.cli.base import (
    DtypeOption,
    JsonOption,
    MemoryOption,
    MetricOption,
    ParamOption,
    Source,
    app,
    parsed_params,
    print_json,
    refuse_existing,
    reported,
    say_written,
    shown,
)
from silchunk.cli.commands import typed
from silchunk.cli.execution import computes, with_checkpoint
from silchunk.cli.scores import ValidateOption
from silchunk.cluster.names import ALGORITHMS
from silchunk.disk import write_new
from silchunk.errors import InputError, OutputExistsError


@app.command()
@reported
@computes(with_checkpoint)
def sweep(
    src: Source,
    n_clusters: Annotated[
        str,
        typer.Option(
            "--n-clusters",
            "-k",
            metavar="RANGE",
            help="Numbers of clusters: 2:20 with both ends, 2:20:3 in steps, or 2,4,8.",
        ),
    ] = "2:20",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write a page with a picture to this new .html file."),
    ] = None,
    estimator: Annotated[
        str, typer.Option(help=f"What finds the clusters: {', '.join(ALGORITHMS)}.")
    ] = "ksil",
    metric: MetricOption = "euclidean",
    param: ParamOption = [],  # noqa: B006 (typer copies it)
    min_cluster_size: Annotated[
        int | None,
        typer.Option(
            "--min-cluster-size",
            "-m",
            min=1,
            help="Points that each cluster should have; a K with a smaller one is not recommended.",
            show_default=False,
        ),
    ] = None,
    random_state: Annotated[
        int,
        typer.Option("--seed", "--random-state", min=0, help="Seed of the fits, for every K."),
    ] = 0,
    csv_: Annotated[
        Path | None,
        typer.Option("--csv", help="Write all figures to this new CSV file.", show_default=False),
    ] = None,
    labels_folder: Annotated[
        Path | None,
        typer.Option(
            "--labels",
            help="Write the labels of each K to this new folder, as labels-K.npy.",
            show_default=False,
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            help="Keep the distances in this store, or use those that it has.", show_default=False
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="Folder to record each K in. A signal then ends the command in good order, and "
            "the same command goes on where it was cut off, also with more K.",
            show_default=False,
        ),
    ] = None,
    validate: ValidateOption = True,
    memory: MemoryOption = None,
    dtype: DtypeOption = None,
    json_: JsonOption = False,
) -> None:
    """Cluster SRC into every number of clusters of a range, and score each against its bounds.

    Example: silchunk sweep points.npy -k 2:20 -o sweep.html
    """
    counts = parsed_counts(n_clusters)
    _check_outputs(output, csv_, labels_folder)
    found = silchunk.sweep(
        src,
        counts,
        estimator=estimator,
        metric=metric,
        metric_params=parsed_params(param),
        random_state=random_state,
        min_cluster_size=min_cluster_size,
        store=store,
        labels_folder=labels_folder,
        checkpoint=checkpoint,
        validate=validate,
        memory=memory,
        dtype=dtype,
        progress=shown(),
    )
    if labels_folder is not None:
        say_written(labels_folder)
    if output is not None:
        found.to_html(output, source=src, command=typed())
        say_written(output)
    if csv_ is not None:
        _write_csv(csv_, found)
        say_written(csv_)
    if json_:
        print_json({"source": src, **found.facts()})
    else:
        typer.echo(f"{src}: {found}")


def parsed_counts(text: str) -> list[int]:
    """``2:20``, ``2:20:3`` and ``2,4,8``, or several of them with commas between, as a list."""
    counts: list[int] = []
    try:
        for part in text.split(","):
            first, *more = (int(number) for number in part.split(":"))
            last, step = (*more, *(first, 1)[len(more) :])
            counts += range(first, last + 1, step)
    except ValueError as error:
        raise InputError(
            "--n-clusters takes a range with both ends, 2:20, or 2:20:3 in steps, or numbers with "
            f"commas between them, 2,4,8; got {text!r}."
        ) from error
    if not counts:
        raise InputError(f"--n-clusters is a range with nothing in it: {text!r}.")
    return counts


def _check_outputs(output: Path | None, *others: Path | None) -> None:
    """Raise before any work if a result could not be written."""
    if output is not None:
        from silchunk.pages import check_installed

        check_installed()
    paths = [path for path in (output, *others) if path is not None]
    for path in paths:
        refuse_existing(path)
    places = [path.absolute() for path in paths]
    for place in places:
        if places.count(place) > 1:
            raise OutputExistsError(f"{place.name} is named for two outputs; name another file.")


def _write_csv(path: Path, found: silchunk.Sweep) -> None:
    rows = [row.facts() for row in found.rows]

    def write(stream: Any) -> None:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        table = csv.DictWriter(text, rows[0], lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        text.detach()

    write_new(path, write)
