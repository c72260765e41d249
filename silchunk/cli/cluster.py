"""``silchunk cluster``."""

from __future__ import annotations

import inspect
import io
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

import silchunk
from silchunk.cli.base import (
    JsonOption,
    MemoryOption,
    PointsOption,
    app,
    print_json,
    refuse_existing,
    reported,
    say_written,
    shown,
)
from silchunk.cli.execution import computes, with_checkpoint
from silchunk.cluster.names import ALGORITHMS
from silchunk.disk import write_new
from silchunk.errors import InputError, OutputExistsError

# Of more points a page takes too long; a score from so many of them, or two of each cluster, does.
EVALUATED_POINTS = 100_000
SAMPLED_POINTS = 1_000
# Labels are counted this many at a time: they may be mapped from a file.
COUNTED_AT_ONCE = 1 << 20


@app.command()
@reported
@computes(with_checkpoint)
def cluster(
    src: PointsOption,
    n_clusters: Annotated[
        int, typer.Option("--n-clusters", "-k", min=1, help="How many clusters to find.")
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="New .npy file for the labels: an int32 for each point, 0 to K - 1.",
        ),
    ],
    algorithm: Annotated[
        str,
        typer.Option(
            help="'ksil', k-means in which clear points weigh more; 'spherical-ksil', the same by "
            "cosine distance; 'kmeans'; 'lof-kmeans' and 'ilof-kmeans', outliers weigh less, for "
            "points by the thousand; 'ow-kmeans', unclear points weigh more."
        ),
    ] = "ksil",
    init: Annotated[
        str, typer.Option(help="First centres: 'k-means++', 'k-means||' or 'random'.")
    ] = "k-means++",
    n_init: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Starts, of which the best is kept. [default: 10 from random centres, else 1]",
            show_default=False,
        ),
    ] = None,
    max_iter: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Iterations of a run at most. [default: the algorithm's]",
            show_default=False,
        ),
    ] = None,
    tol: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Centres that move by less, relative to the variance of the features, stand "
            "still. [default: 0.0001]",
            show_default=False,
        ),
    ] = None,
    min_cluster_size: Annotated[
        int | None,
        typer.Option(
            "--min-cluster-size",
            "-m",
            min=1,
            help="Points that each cluster should have, lest one far outlier be one. [default: 1]",
            show_default=False,
        ),
    ] = None,
    random_state: Annotated[
        int,
        typer.Option(
            "--seed", "--random-state", help="Seed of the first centres: the same, the same labels."
        ),
    ] = 0,
    objective: Annotated[
        str | None,
        typer.Option(
            help="What K-Sil makes large: 'macro', the mean over clusters, or 'micro', over "
            "points. [default: macro]",
            show_default=False,
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Of K-Sil: how much more clear points weigh, at first; 0 for all alike.",
            show_default=False,
        ),
    ] = None,
    temperature_range: Annotated[
        tuple[float, float] | None,
        typer.Option(metavar="LOW HIGH", help="The temperature stays within.", show_default=False),
    ] = None,
    temperature_step: Annotated[
        float | None,
        typer.Option(
            min=1.0,
            help="The temperature is multiplied or divided by this after each iteration.",
            show_default=False,
        ),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Standard errors by which K-Sil has to be better than k-means from the same "
            "starts, whose centres are kept otherwise. [default: 2.5]",
            show_default=False,
        ),
    ] = None,
    alone: Annotated[
        bool,
        typer.Option("--alone", help="K-Sil without k-means before it."),
    ] = False,
    n_neighbors: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Of lof-kmeans and ilof-kmeans: neighbours to compare with. [default: 20]",
            show_default=False,
        ),
    ] = None,
    centers: Annotated[
        Path | None, typer.Option(help="Write the centres to this .npy file.", show_default=False)
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(
            help="Write scores, temperature and movement of each iteration to this CSV file.",
            show_default=False,
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="File (.npz) to keep each iteration in. A signal then ends the command in good "
            "order, and the same command goes on where it was cut off.",
            show_default=False,
        ),
    ] = None,
    memory: MemoryOption = None,
    json_: JsonOption = False,
) -> None:
    """Find K clusters of SRC, and write the label of each point.

    Example: silchunk cluster points.npy -k 10 -o labels.npy
    """
    _check_outputs(output, centers, history, checkpoint)
    if alone and margin is not None:
        raise InputError("--alone does not go with --margin: there is nothing to hold against.")
    options = {
        "n_init": n_init,
        "max_iter": max_iter,
        "tol": tol,
        "min_cluster_size": min_cluster_size,
        "objective": objective,
        "temperature": temperature,
        "temperature_range": temperature_range,
        "temperature_step": temperature_step,
        "margin": margin,
        "n_neighbors": n_neighbors,
    }
    estimator = _kind(algorithm)(
        n_clusters,
        init=_checked_init(init),
        random_state=random_state,
        checkpoint=checkpoint,
        memory=memory,
        progress=shown(),
        **_options_for(algorithm, options, alone),
    )
    began = time.perf_counter()
    estimator.fit(src)
    seconds = time.perf_counter() - began
    _write_array(output, estimator.labels_)
    if centers is not None:
        _write_array(centers, estimator.cluster_centers_)
    if history is not None:
        _write_history(history, estimator.history_)
    facts = _facts(src, algorithm, estimator, seconds)
    if json_:
        print_json(facts)
    else:
        _print(facts, output)


def _check_outputs(output: Path, *others: Path | None) -> None:
    """Raise before any work if a result could not be written, or not be read as labels."""
    if output.suffix != ".npy":
        raise InputError(f"--output must end in .npy, as labels that are read do; got {output}.")
    *results, checkpoint = others
    for path in (output, *results):
        refuse_existing(path)
    paths = [path.absolute() for path in (output, *results, checkpoint) if path is not None]
    for path in paths:
        if paths.count(path) > 1:
            raise OutputExistsError(f"{path.name} is named for two outputs; name another file.")


def _kind(algorithm: str) -> Any:
    if algorithm not in ALGORITHMS:
        raise InputError(f"--algorithm must be one of {', '.join(ALGORITHMS)}; got {algorithm!r}.")
    return getattr(silchunk, ALGORITHMS[algorithm])


def _checked_init(init: str) -> str:
    from silchunk.cluster.seeding import INITS

    if init not in INITS:
        raise InputError(f"--init must be one of {', '.join(INITS)}; got {init!r}.")
    return init


def _options_for(algorithm: str, options: Mapping[str, Any], alone: bool) -> dict[str, Any]:
    """The options that were given, each of which is a parameter of the algorithm."""
    given = {name: value for name, value in options.items() if value is not None}
    if alone:
        given["margin"] = None
    for name, value in given.items():
        if not _takes(algorithm, name):
            takers = ", ".join(one for one in ALGORITHMS if _takes(one, name))
            option = "alone" if name == "margin" and value is None else name.replace("_", "-")
            raise InputError(
                f"--{option} does not go with --algorithm {algorithm}; it goes with {takers}."
            )
    return given


def _takes(algorithm: str, parameter: str) -> bool:
    return parameter in inspect.signature(_kind(algorithm)).parameters


def _write_array(path: Path, array: Any) -> None:
    import numpy as np

    # A mapped array is written from where it is mapped, not read into memory first.
    write_new(path, lambda stream: np.save(stream, array, allow_pickle=False))
    say_written(path)


def _write_history(path: Path, iterations: list[silchunk.Iteration]) -> None:
    import csv

    def write(stream: Any) -> None:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        table = csv.writer(text, lineterminator="\n")
        table.writerow(iterations[0]._fields)
        table.writerows(iterations)
        text.detach()

    write_new(path, write)
    say_written(path)


def _sizes(labels: Any, n_clusters: int) -> list[int]:
    """How many points each cluster has."""
    import numpy as np

    from silchunk.plan import ranges

    counts = np.zeros(n_clusters, np.int64)
    for start, stop in ranges(len(labels), COUNTED_AT_ONCE):
        counts += np.bincount(labels[start:stop], minlength=n_clusters)
    sizes: list[int] = counts.tolist()
    return sizes


def _facts(src: str, algorithm: str, estimator: Any, seconds: float) -> dict[str, Any]:
    sizes = _sizes(estimator.labels_, estimator.n_clusters)
    objective = getattr(estimator, "objective", "macro")
    first = estimator.history_[0]
    # Whether K-Sil was held against k-means.
    compared = estimator._reference() is not None
    return {
        "source": src,
        "algorithm": algorithm,
        "n": len(estimator.labels_),
        "n_features": estimator.n_features_in_,
        "n_clusters": estimator.n_clusters,
        "n_clusters_found": sum(size > 0 for size in sizes),
        "sizes": sizes,
        "n_iter": estimator.n_iter_,
        "max_iter": estimator.max_iter,
        "average": objective,
        "silhouette_proxy": estimator.silhouette_,
        "silhouette_proxy_at_start": getattr(first, objective),
        "kept": estimator.algorithm_ if compared else None,
        "margin": estimator.margin if compared else None,
        "inertia": estimator.inertia_,
        "inertia_at_start": first.inertia,
        "history": [one._asdict() for one in estimator.history_],
        "random_state": estimator.random_state,
        "seconds": seconds,
    }


def _print(facts: Mapping[str, Any], output: Path) -> None:
    """A clustering for people."""
    typer.echo(
        f"{facts['source']}: {facts['n']:,} points in {facts['n_features']:,} dimensions, "
        f"K = {facts['n_clusters']:,} by {facts['algorithm']}, {facts['seconds']:.1f} s"
    )
    all_used = facts["n_iter"] == facts["max_iter"]
    filled = [size for size in facts["sizes"] if size]
    empty = facts["n_clusters"] - len(filled)
    kept = []
    if facts["kept"]:
        other = {"K-Sil": "k-means", "k-means": "K-Sil"}[facts["kept"]]
        errors = f"{facts['margin']:g} standard errors of the proxy"
        kept = [("kept", f"{facts['kept']} rather than {other} (margin: {errors})")]
    for name, value in (
        (
            f"{facts['average']} silhouette proxy",
            f"{facts['silhouette_proxy']:.4f} ({facts['silhouette_proxy_at_start']:.4f} at the "
            "start), from distances to centres: not what evaluate gives",
        ),
        ("inertia", f"{facts['inertia']:.6g} ({facts['inertia_at_start']:.6g} at the start)"),
        ("iterations", f"{facts['n_iter']:,}" + (", all of --max-iter" if all_used else "")),
        (
            "cluster sizes",
            f"{min(filled):,} to {max(filled):,} points" + (f", {empty:,} empty" if empty else ""),
        ),
        *kept,
    ):
        typer.echo(f"  {name:<24}{value}")
    if len(filled) > 1:
        typer.echo(f"next: {_next_command(facts, output)}")


def _next_command(facts: Mapping[str, Any], output: Path) -> str:
    """The command that judges the labels."""
    src = facts["source"]
    words = f"silchunk evaluate {shlex.quote(src)} {shlex.quote(str(output))}"
    if options := getattr(src, "options", ""):  # or other points would be judged
        words += f" {options}"
    if facts["algorithm"] == "spherical-ksil":
        words += " --metric cosine"
    if facts["n"] > EVALUATED_POINTS:
        words += f" --sample-size {max(SAMPLED_POINTS, 2 * facts['n_clusters'])}"
    return words
