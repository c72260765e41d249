"""Commands about bounds: bound, estimate, demo."""

from __future__ import annotations

import dataclasses
import shutil
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
    print_json,
    refuse_existing,
    reported,
    say_written,
    write_whole,
)
from silchunk.plan import format_bytes


@app.command()
@reported
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
    result = silchunk.silhouette_bounds(
        src,
        metric=metric,
        metric_params=parsed_params(param),
        min_cluster_size=min_cluster_size,
        dtype=dtype,
        validate=validate,
        memory=memory,
        progress=True,
    )
    seconds = time.perf_counter() - began
    if curve is not None:
        _write_curve(curve, result)
        say_written(curve)
    if samples is not None:
        _write_samples(samples, result)
        say_written(samples)
    if json_:
        print_json(_bound_facts(src, result, asw, seconds))
    else:
        _print_bound(src, result, asw, seconds)
    if asw is not None:
        result.wcre(asw, min(min_cluster_size))  # refuses a score that cannot be


@app.command()
@reported
def estimate(
    src: Source,
    metric: MetricOption = "euclidean",
    param: ParamOption = [],  # noqa: B006 (typer reads the default)
    min_cluster_size: SizeOption = [1],  # noqa: B006 (typer reads the default)
    memory: MemoryOption = None,
    dtype: DtypeOption = None,
    json_: JsonOption = False,
) -> None:
    """Print what a bound of SRC would take, from a plan and a measured sample of its panels.

    Example: silchunk estimate points.npy --memory 1GiB
    """
    result = silchunk.estimate_bounds(
        src,
        metric=metric,
        metric_params=parsed_params(param),
        min_cluster_size=min_cluster_size,
        dtype=dtype,
        memory=memory,
    )
    if json_:
        facts = dataclasses.asdict(result.plan)
        facts |= {
            "n_panels": result.plan.n_panels,
            "panel_bytes": result.plan.panel_bytes,
            "peak_bytes": result.plan.peak_bytes,
            "seconds": result.seconds,
            "stored_bytes": result.stored_bytes,
            "stored_files": result.stored_files,
        }
        print_json({"source": src, "metric": metric, **facts})
        return
    free = shutil.disk_usage(".").free
    stored = f"at most {format_bytes(result.stored_bytes)} in {result.stored_files:,} files"
    facts_for_people = [
        *result.plan.facts(),
        ("estimated time", _duration(result.seconds)),
        ("as a store", f"{stored}; {format_bytes(free)} free here"),
    ]
    for name, value in facts_for_people:
        typer.echo(f"{name:<18}{value}")


@app.command()
@reported
def demo(json_: JsonOption = False) -> None:
    """Cluster four real data sets and show how close each clustering comes to its bound."""
    from silchunk import demo as demonstration

    rows = demonstration.run()
    if json_:
        print_json([dataclasses.asdict(row) for row in rows])
    else:
        demonstration.show(rows)


def _write_curve(path: Path, result: silchunk.BoundResult) -> None:
    import numpy as np

    rows = np.column_stack([np.arange(1, result.n // 2 + 1), result.curve()])
    header = "min_cluster_size,upper_bound"
    write_whole(
        path,
        lambda stream: np.savetxt(
            stream, rows, fmt=["%d", "%.17g"], delimiter=",", header=header, comments=""
        ),
    )


def _write_samples(path: Path, result: silchunk.BoundResult) -> None:
    import numpy as np

    values = result.samples[:, 0] if result.samples.shape[1] == 1 else result.samples
    write_whole(path, lambda stream: np.save(stream, values, allow_pickle=False))


def _bound_facts(
    src: str,
    result: silchunk.BoundResult,
    asw: float | None,
    seconds: float,
) -> dict[str, Any]:
    sizes: Any = result.min_cluster_size
    return {
        "source": src,
        "n": result.n,
        "metric": result.metric,
        "score": asw,
        "bounds": [
            {
                "min_cluster_size": m,
                "upper_bound": result.at(m),
                "wcre": None if asw is None or _above(asw, result, m) else result.wcre(asw, m),
            }
            for m in sizes
        ],
        "seconds": seconds,
        "peak_bytes_planned": result.plan.peak_bytes,
        "silchunk": silchunk.__version__,
    }


def _print_bound(
    src: str,
    result: silchunk.BoundResult,
    asw: float | None,
    seconds: float,
) -> None:
    typer.echo(f"{src}: {result.n:,} points, {result.metric} distance, {seconds:.1f} s")
    sizes: Any = result.min_cluster_size
    for m in sizes:
        bound = result.at(m)
        whose = "any clustering" if m == 1 else f"clusters of {m:,} or more points"
        typer.echo(f"  {whose}: average silhouette width <= {bound:.6f}")
        if asw is None:
            continue
        if _above(asw, result, m):
            typer.echo(f"    {asw:.6f} is above that: it cannot be the score of such a clustering")
        else:
            typer.echo(
                f"    {asw:.6f} reaches {100 * (1 - result.wcre(asw, m)):.1f}% of that; no "
                f"clustering of this kind is better by more than {bound - asw:.6f}"
            )


def _above(asw: float, result: silchunk.BoundResult, m: int) -> bool:
    from silchunk.bound_result import SCORE_SLACK

    return asw > result.at(m) + SCORE_SLACK


def _duration(seconds: float) -> str:
    if seconds < 1:
        return "less than a second"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"about {hours} h {minutes} min"
    return f"about {minutes} min {rest} s" if minutes else f"about {rest} s"
