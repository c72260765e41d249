"""The command estimate: what a bound or a store would take, here or on a cluster."""

from __future__ import annotations

import dataclasses
import shutil
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
    reported,
)
from silchunk.cli.execution import computes, never
from silchunk.errors import InputError
from silchunk.plan import format_bytes


@app.command()
@reported
@computes(never)
def estimate(
    src: Source,
    metric: MetricOption = "euclidean",
    param: ParamOption = [],  # noqa: B006 (typer reads the default)
    min_cluster_size: SizeOption = [1],  # noqa: B006 (typer reads the default)
    cluster: Annotated[
        bool,
        typer.Option(
            "--cluster", help="Workers, threads and memory for 1, 2, 4, ... nodes of a cluster."
        ),
    ] = False,
    node_memory: Annotated[
        str | None,
        typer.Option(
            help='Memory of one node, e.g. "64GiB". [default: that of this machine]',
            show_default=False,
        ),
    ] = None,
    node_cores: Annotated[
        int | None,
        typer.Option(
            min=1, help="Cores of one node. [default: those of this machine]", show_default=False
        ),
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(metavar="N,N,...", help="Numbers of nodes: 1,3,10.", show_default=False),
    ] = None,
    memory: MemoryOption = None,
    dtype: DtypeOption = None,
    json_: JsonOption = False,
) -> None:
    """Print what a bound of SRC would take, from a plan and a measured sample of its panels.

    Example: silchunk estimate points.npy --memory 1GiB
    """
    of_nodes = (node_memory, node_cores, nodes)
    if not cluster and any(option is not None for option in of_nodes):
        raise InputError("--node-memory, --node-cores and --nodes go with --cluster.")
    counts = _parsed_nodes(nodes)
    options: dict[str, Any] = {
        "metric": metric,
        "metric_params": parsed_params(param),
        "memory": memory,
    }
    result = silchunk.estimate_bounds(
        src, min_cluster_size=min_cluster_size, curve=True, dtype=dtype, **options
    )
    tables: dict[str, list[Any]] = {}
    if cluster:
        from silchunk.cluster_size import cluster_table
        from silchunk.estimate import estimate_distances

        jobs = {"bound": result}
        if result.from_points:
            jobs["distances"] = estimate_distances(src, dtype=dtype or "float32", **options)
        tables = {
            job: cluster_table(found, node_memory=node_memory, node_cores=node_cores, nodes=counts)
            for job, found in jobs.items()
        }
    if json_:
        facts = _plan_facts(result.plan)
        facts |= {
            "seconds": result.seconds,
            "stored_bytes": result.stored_bytes,
            "stored_files": result.stored_files,
        }
        if cluster:
            facts["cluster"] = {
                job: [_size_facts(size) for size in sizes] for job, sizes in tables.items()
            }
        print_json({"source": src, "metric": metric, **facts})
        return
    free = shutil.disk_usage(".").free
    stored = f"at most {format_bytes(result.stored_bytes)} in {result.stored_files:,} files"
    facts_for_people = [
        *result.plan.facts(),
        ("estimated time", f"about {_duration(result.seconds)}"),
        ("as a store", f"{stored}; {format_bytes(free)} free here"),
    ]
    for name, value in facts_for_people:
        typer.echo(f"{name:<18}{value}")
    for job, sizes in tables.items():
        typer.echo("")
        _print_table(job, sizes)
        if job == "distances":
            typer.echo(
                f"files: {format_bytes(result.stored_bytes)} at most, one for each panel; writing "
                "them is not part of the time"
            )


def _plan_facts(plan: silchunk.Plan) -> dict[str, Any]:
    return dataclasses.asdict(plan) | {
        "n_panels": plan.n_panels,
        "panel_bytes": plan.panel_bytes,
        "peak_bytes": plan.peak_bytes,
    }


def _size_facts(size: Any) -> dict[str, Any]:
    return dataclasses.asdict(size) | {
        "workers": size.workers,
        "at_once": size.at_once,
        "plan": _plan_facts(size.plan),
    }


def _print_table(job: str, sizes: list[Any]) -> None:
    """One line for each number of nodes; then what they have in common."""
    typer.echo(
        f"{job + ':':<11}{'nodes':>5}{'workers':>9}{'threads':>9}{'--memory':>11}{'limit':>11}"
        f"{'panels':>9}{'of rows':>9}{'time':>13}{'busy':>6}"
    )
    for size in sizes:
        typer.echo(
            f"{size.nodes:>16,}{size.workers:>9,}{size.threads_per_worker:>9}"
            f"{_mebibytes(size.memory_bytes):>11}{_mebibytes(size.limit_bytes):>11}"
            f"{size.plan.n_panels:>9,}{size.plan.panel_rows:>9,}{_duration(size.seconds):>13}"
            f"{size.efficiency:>6.0%}"
        )
    last = sizes[-1]
    if last.at_once > last.plan.n_panels:
        typer.echo(f"more than {last.plan.n_panels:,} threads have nothing to do")
    typer.echo(f"the process that asks: up to {format_bytes(last.driver_bytes)} of memory")


def _parsed_nodes(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(
            f"--nodes takes integers with commas between them, 1,3,10; got {text!r}."
        ) from error


def _mebibytes(count: int) -> str:
    """As it can be given again."""
    return f"{count >> 20}MiB"


def _duration(seconds: float) -> str:
    if seconds < 1:
        return "1 s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
