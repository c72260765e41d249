"""Commands about bounds: bound, demo."""

from __future__ import annotations

import dataclasses
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
    SizeOption,
    Source,
    app,
    parsed_params,
    parsed_sizes,
    print_json,
    refuse_existing,
    reported,
    say_written,
    shown,
)
from silchunk.cli.execution import computes, with_checkpoint
from silchunk.cli.show import bound_facts, print_bound, print_sampled, sampled_facts
from silchunk.disk import write_new
from silchunk.errors import InputError


@app.command()
@reported
@computes(with_checkpoint)
def bound(
    src: Source,
    metric: MetricOption = "euclidean",
    param: ParamOption = [],  # noqa: B006 (typer reads the default)
    min_cluster_size: SizeOption = [1],  # noqa: B006 (typer reads the default)
    curve: Annotated[
        Path | None, typer.Option(help="Write the bound for every minimum size to this CSV file.")
    ] = None,
    samples: Annotated[
        Path | None, typer.Option(help="Write every point's bound to this .npy file.")
    ] = None,
    asw: Annotated[
        float | None,
        typer.Option(
            min=-1.0, max=1.0, help="Average silhouette width of your clustering, to be rated."
        ),
    ] = None,
    n_clusters: Annotated[
        int | None,
        typer.Option("--n-clusters", "-k", help="Only clusterings into just so many clusters."),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help="Labels of your clustering (.npy or Zarr): bounds for its cluster sizes as well.",
            show_default=False,
        ),
    ] = None,
    cluster_sizes: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...", help="Bounds for clusters of just these sizes as well: 300,50,20."
        ),
    ] = None,
    sample_size: Annotated[
        int | None,
        typer.Option(help="Estimate from so many random points, each against all others."),
    ] = None,
    random_state: Annotated[
        int | None, typer.Option(help="Seed of the sample, for a result that can be repeated.")
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(
            help="Of the upper limit that comes with a sample. [default: 0.95]", show_default=False
        ),
    ] = None,
    certify: Annotated[
        bool, typer.Option("--certify", help="Round outward: bounds in exact arithmetic.")
    ] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="New folder to record finished panels in. A signal then ends the command between "
            "panels, and the same command goes on where it was cut off.",
            show_default=False,
        ),
    ] = None,
    validate: Annotated[
        bool, typer.Option(help="Check that a precomputed matrix is one of distances.")
    ] = True,
    memory: MemoryOption = None,
    dtype: DtypeOption = None,
    json_: JsonOption = False,
) -> None:
    """Print the upper bound of the average silhouette width of SRC.

    Example: silchunk bound points.npy -m 1 -m 20 --asw 0.31
    """
    for path in (curve, samples):
        refuse_existing(path)
    began = time.perf_counter()
    options: dict[str, Any] = {
        "metric": metric,
        "metric_params": parsed_params(param),
        "min_cluster_size": min_cluster_size,
        "n_clusters": n_clusters,
        "certify": certify,
        "checkpoint": checkpoint,
        "dtype": dtype,
        "validate": validate,
        "memory": memory,
        "progress": shown(),
    }
    if sample_size is not None:
        if any(option is not None for option in (curve, samples, labels, cluster_sizes)):
            raise InputError(
                "--sample-size goes with --min-cluster-size and --n-clusters; leave out --curve, "
                "--samples, --labels and --cluster-sizes."
            )
        sampled = silchunk.silhouette_upper_bound(
            src,
            sample_size=sample_size,
            random_state=random_state,
            confidence=0.95 if confidence is None else confidence,
            **options,
        )
        seconds = time.perf_counter() - began
        if json_:
            print_json(sampled_facts(src, sampled, asw, seconds))
        else:
            print_sampled(src, sampled, asw, seconds)
        if asw is not None:
            sampled.wcre(asw)  # refuses a score that cannot be
        return
    if random_state is not None or confidence is not None:
        raise InputError("--random-state and --confidence go with --sample-size.")
    result = silchunk.silhouette_bounds(
        src, cluster_sizes=parsed_sizes(cluster_sizes), labels=labels, **options
    )
    seconds = time.perf_counter() - began
    if curve is not None:
        _write_curve(curve, result)
        say_written(curve)
    if samples is not None:
        _write_samples(samples, result)
        say_written(samples)
    if json_:
        print_json(bound_facts(src, result, asw, seconds))
    else:
        print_bound(src, result, asw, seconds)
    if asw is not None:
        result.wcre(asw, min(min_cluster_size))  # refuses a score that cannot be


@app.command()
@reported
def demo(json_: JsonOption = False) -> None:
    """Cluster four real data sets and show how close each clustering comes to its bound.

    Example: silchunk demo
    """
    from silchunk import demo as demonstration

    rows = demonstration.run()
    if json_:
        print_json({"data_sets": [dataclasses.asdict(row) for row in rows]})
    else:
        demonstration.show(rows)


def _write_curve(path: Path, result: silchunk.BoundResult) -> None:
    import numpy as np

    values = result.curve()
    rows = np.column_stack([np.arange(1, len(values) + 1), values])
    header = "min_cluster_size,upper_bound"
    write_new(
        path,
        lambda stream: np.savetxt(
            stream, rows, fmt=["%d", "%.17g"], delimiter=",", header=header, comments=""
        ),
    )


def _write_samples(path: Path, result: silchunk.BoundResult) -> None:
    import numpy as np

    values = result.samples[:, 0] if result.samples.shape[1] == 1 else result.samples
    write_new(path, lambda stream: np.save(stream, values, allow_pickle=False))
