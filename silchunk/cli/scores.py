"""``silchunk score`` and ``silchunk evaluate``."""

from __future__ import annotations

import time
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
from silchunk.cli.execution import computes, never

LabelsArgument = Annotated[
    str,
    typer.Argument(
        help="One label for each point: a .npy file, a Zarr array, or FILE:COLUMN of a table.",
        metavar="LABELS",
    ),
]
NoiseOption = Annotated[
    str | None,
    typer.Option(
        help="What points labelled -1 are: 'cluster', like any other; 'drop', left out; "
        "'singleton', each a cluster of its own.",
        show_default=False,
    ),
]
ValidateOption = Annotated[
    bool, typer.Option(help="Check that a precomputed matrix is one of distances.")
]


SampleOption = Annotated[
    int | None,
    typer.Option(
        "--sample-size",
        "--sample",
        help="Estimate from so many points, some of every cluster, each against all others.",
        show_default=False,
    ),
]
SeedOption = Annotated[
    int | None, typer.Option(help="Seed of the sample, for a result that can be repeated.")
]


@app.command()
@reported
@computes(never)
def score(
    src: Source,
    labels: LabelsArgument,
    metric: MetricOption = "euclidean",
    param: ParamOption = [],  # noqa: B006 (typer copies it)
    average: Annotated[
        str | None,
        typer.Option(
            help="Print this mean and nothing else: 'micro' over points, 'macro' of the clusters' "
            "means.",
            show_default=False,
        ),
    ] = None,
    sample: SampleOption = None,
    random_state: SeedOption = None,
    noise: NoiseOption = None,
    table: Annotated[
        Path | None,
        typer.Option(
            help="Write each point's cluster, nearest other cluster, a, b and silhouette to this "
            "new Zarr group.",
            show_default=False,
        ),
    ] = None,
    validate: ValidateOption = True,
    memory: MemoryOption = None,
    dtype: DtypeOption = None,
    json_: JsonOption = False,
) -> None:
    """Print the silhouette of the clustering LABELS of SRC, exactly or from a sample.

    Example: silchunk score points.npy labels.npy --table silhouettes.zarr
    """
    from silchunk.silhouette_result import checked_average

    refuse_existing(table)
    if average is not None:
        checked_average(average)
    began = time.perf_counter()
    result = silchunk.silhouette_table(
        src,
        labels,
        metric=metric,
        metric_params=parsed_params(param),
        noise=noise,
        sample_size=sample,
        random_state=random_state,
        dtype=dtype,
        validate=validate,
        memory=memory,
        progress=shown(),
    )
    seconds = time.perf_counter() - began
    if table is not None:
        result.to_zarr(table)
        say_written(table)
    if json_:
        print_json(_facts(src, result, seconds))
    elif average is not None:
        typer.echo(repr(result.score(average)))
    else:
        typer.echo(f"{src}, {seconds:.1f} s")
        typer.echo(result)


@app.command()
@reported
@computes(never)
def evaluate(
    src: Source,
    labels: LabelsArgument,
    true_labels: Annotated[
        str | None,
        typer.Option(help="What the labels should be, where that is known.", show_default=False),
    ] = None,
    metric: MetricOption = "euclidean",
    param: ParamOption = [],  # noqa: B006 (typer copies it)
    noise: NoiseOption = None,
    sample: SampleOption = None,
    random_state: SeedOption = None,
    validate: ValidateOption = True,
    memory: MemoryOption = None,
    dtype: DtypeOption = None,
    json_: JsonOption = False,
) -> None:
    """Judge the clustering LABELS of SRC: its scores, and how much better any other could be.

    Example: silchunk evaluate points.npy labels.npy
    """
    page = silchunk.evaluate(
        src,
        labels,
        true_labels=true_labels,
        metric=metric,
        metric_params=parsed_params(param),
        noise=noise,
        sample_size=sample,
        random_state=random_state,
        dtype=dtype,
        validate=validate,
        memory=memory,
        progress=shown(),
    )
    if json_:
        print_json({"source": src, **page.facts()})
    else:
        typer.echo(page)


def _facts(src: str, result: silchunk.SilhouetteTable, seconds: float) -> dict[str, Any]:
    clusters = result.clusters
    columns = clusters.columns()
    return {
        "source": src,
        "n": result.n,
        "n_clusters": result.n_clusters,
        "metric": result.metric,
        "sample_size": None if result.points is None else len(result.points),
        "micro": result.micro,
        "macro": result.macro,
        "micro_standard_error": result.micro_standard_error,
        "macro_standard_error": result.macro_standard_error,
        "clusters": [
            {"label": str(label), **{name: column[j].item() for name, column in columns.items()}}
            for j, label in enumerate(clusters.labels)
        ],
        "seconds": seconds,
        "peak_bytes_planned": result.plan.peak_bytes,
    }
