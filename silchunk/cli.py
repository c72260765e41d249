"""The command line: results on standard output, progress and messages on standard error."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

import silchunk
from silchunk.errors import OutputExistsError, OverBudgetError, SilchunkError, SilchunkWarning

app = typer.Typer(
    name="silchunk",
    help="Judge clusterings of data of any size: how good is a silhouette, at best?",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)

# Exit codes beyond 0 and typer's 2 for wrong usage, after sysexits.h where it has one.
BAD_INPUT = 65
OVER_BUDGET = 69
CANNOT_WRITE = 73
FAILED = 70
STOPPED = 130


def reported(command: Callable[..., None]) -> Callable[..., None]:
    """Turn errors into one readable block on standard error and an exit code of their kind."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            warnings.simplefilter("always", SilchunkWarning)
            try:
                command(*args, **kwargs)
            except KeyboardInterrupt:
                _fail("stopped; nothing was written.", STOPPED)
            except OverBudgetError as error:
                _fail(str(error), OVER_BUDGET)
            except OutputExistsError as error:
                _fail(str(error), CANNOT_WRITE)
            except SilchunkError as error:
                code = BAD_INPUT if isinstance(error, (ValueError, TypeError, OSError)) else FAILED
                _fail(str(error), code)
            except OSError as error:
                _fail(str(error), FAILED)

    return run


def _fail(message: str, code: int) -> None:
    typer.secho("silchunk: ", fg="red", bold=True, err=True, nl=False)
    typer.echo(message, err=True)
    # Threads of an interrupted job finish their panel in the background; nobody waits for them.
    sys.stdout.flush()
    sys.stderr.flush()
    if code == STOPPED:
        os._exit(code)
    raise typer.Exit(code)


def _show_warning(message: Warning | str, *rest: Any, **named: Any) -> None:
    typer.secho("warning: ", fg="yellow", err=True, nl=False)
    typer.echo(str(message), err=True)


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


@app.command()
@reported
def bound(
    src: Source,
    metric: MetricOption = "euclidean",
    min_cluster_size: SizeOption = [1],  # noqa: B006 (typer reads the default)
    curve: Annotated[
        Path | None, typer.Option(help="Write the bound for every minimum size to this CSV file.")
    ] = None,
    samples: Annotated[
        Path | None, typer.Option(help="Write every point's bound to this .npy file.")
    ] = None,
    asw: Annotated[
        float | None,
        typer.Option(help="Average silhouette width of your clustering, to be rated."),
    ] = None,
    memory: MemoryOption = None,
    dtype: DtypeOption = None,
    json_: JsonOption = False,
) -> None:
    """Print the upper bound of the average silhouette width of SRC.

    Example: silchunk bound points.npy -m 1 -m 20 --asw 0.31
    """
    for path in (curve, samples):
        _refuse_existing(path)
    began = time.perf_counter()
    result = silchunk.silhouette_bounds(
        src,
        metric=metric,
        min_cluster_size=min_cluster_size,
        dtype=dtype,
        memory=memory,
        progress=True,
    )
    seconds = time.perf_counter() - began
    ratings = [None if asw is None else result.wcre(asw, m) for m in min_cluster_size]
    if curve is not None:
        _write_curve(curve, result)
    if samples is not None:
        _write_samples(samples, result)
    if json_:
        _print_json(_bound_facts(src, result, ratings, asw, seconds))
    else:
        _print_bound(src, result, ratings, asw, seconds)


@app.command()
@reported
def estimate(
    src: Source,
    metric: MetricOption = "euclidean",
    min_cluster_size: SizeOption = [1],  # noqa: B006 (typer reads the default)
    memory: MemoryOption = None,
    dtype: DtypeOption = None,
    json_: JsonOption = False,
) -> None:
    """Print what a bound of SRC would take, from a plan and a measured sample of its panels.

    Example: silchunk estimate points.npy --memory 1GiB
    """
    result = silchunk.estimate_bounds(
        src, metric=metric, min_cluster_size=min_cluster_size, dtype=dtype, memory=memory
    )
    if json_:
        facts = dataclasses.asdict(result.plan)
        facts |= {
            "n_panels": result.plan.n_panels,
            "panel_bytes": result.plan.panel_bytes,
            "peak_bytes": result.plan.peak_bytes,
            "seconds": result.seconds,
        }
        _print_json({"source": src, "metric": metric, **facts})
        return
    facts_for_people = [*result.plan.facts(), ("estimated time", _duration(result.seconds))]
    for name, value in facts_for_people:
        typer.echo(f"{name:<18}{value}")


@app.command()
@reported
def demo(json_: JsonOption = False) -> None:
    """Cluster four real data sets and show how close each clustering comes to its bound."""
    from silchunk import demo as demonstration

    rows = demonstration.run()
    if json_:
        _print_json([dataclasses.asdict(row) for row in rows])
    else:
        demonstration.show(rows)


def _refuse_existing(path: Path | None) -> None:
    if path is None:
        return
    if path.exists() or path.is_symlink():
        raise OutputExistsError(f"{path} exists already and is left as it is; name another file.")
    if not path.parent.is_dir():
        raise OutputExistsError(f"there is no folder {str(path.parent)!r} to write {path.name} to.")


def _write_whole(path: Path, write: Callable[[Any], None]) -> None:
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


def _write_curve(path: Path, result: silchunk.BoundResult) -> None:
    import numpy as np

    rows = np.column_stack([np.arange(1, result.n // 2 + 1), result.curve()])
    header = "min_cluster_size,upper_bound"
    _write_whole(
        path,
        lambda stream: np.savetxt(
            stream, rows, fmt=["%d", "%.17g"], delimiter=",", header=header, comments=""
        ),
    )


def _write_samples(path: Path, result: silchunk.BoundResult) -> None:
    import numpy as np

    values = result.samples[:, 0] if result.samples.shape[1] == 1 else result.samples
    _write_whole(path, lambda stream: np.save(stream, values, allow_pickle=False))


def _bound_facts(
    src: str,
    result: silchunk.BoundResult,
    ratings: list[float | None],
    asw: float | None,
    seconds: float,
) -> dict[str, Any]:
    sizes: Any = result.min_cluster_size
    return {
        "source": src,
        "n": result.n,
        "metric": result.metric,
        "asw": asw,
        "bounds": [
            {"min_cluster_size": m, "upper_bound": result.at(m), "wcre": rating}
            for m, rating in zip(sizes, ratings, strict=True)
        ],
        "seconds": seconds,
        "peak_bytes_planned": result.plan.peak_bytes,
        "silchunk": silchunk.__version__,
    }


def _print_bound(
    src: str,
    result: silchunk.BoundResult,
    ratings: list[float | None],
    asw: float | None,
    seconds: float,
) -> None:
    typer.echo(f"{src}: {result.n:,} points, {result.metric} distance, {seconds:.1f} s")
    sizes: Any = result.min_cluster_size
    for m, rating in zip(sizes, ratings, strict=True):
        whose = "any clustering" if m == 1 else f"clusters of {m:,} or more points"
        typer.echo(f"  {whose}: average silhouette width <= {result.at(m):.6f}")
        if rating is not None:
            typer.echo(
                f"    {asw:.6f} reaches {100 * (1 - rating):.1f}% of that; no clustering of this "
                f"kind is better by more than {result.at(m) - (asw or 0.0):.6f}"
            )


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))


def _duration(seconds: float) -> str:
    if seconds < 1:
        return "less than a second"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"about {hours} h {minutes} min"
    return f"about {minutes} min {rest} s" if minutes else f"about {rest} s"
