"""Commands about distance stores: distances, import, export, info, verify."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

import silchunk
from silchunk.cli.base import (
    DAMAGED,
    DtypeOption,
    JsonOption,
    MemoryOption,
    ParamOption,
    PointMetricOption,
    PointsOption,
    app,
    parsed_params,
    print_json,
    reported,
    say_written,
    shown,
)
from silchunk.cli.execution import always, computes, never

Store = Annotated[
    Path, typer.Argument(metavar="STORE", help="Folder of a distance store.", show_default=False)
]
NewStore = Annotated[
    Path,
    typer.Argument(metavar="OUT", help="Folder to make, e.g. d.zarr.", show_default=False),
]
BitsOption = Annotated[
    str,
    typer.Option(
        "--keep-bits",
        help="Mantissa bits to keep for smaller files: a number, none, fast (12) or small (8).",
    ),
]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace a store that silchunk made.")
]
FreshOption = Annotated[
    bool,
    typer.Option(
        "--resume/--no-resume", help="Go on with a store of the same input and parameters."
    ),
]


@app.command()
@reported
@computes(always)
def distances(
    src: PointsOption,
    out: NewStore,
    metric: PointMetricOption = "euclidean",
    param: ParamOption = [],  # noqa: B006 (typer reads the default)
    dtype: DtypeOption = "float32",
    keep_bits: BitsOption = "none",
    memory: MemoryOption = None,
    resume: FreshOption = True,
    overwrite: OverwriteOption = False,
    json_: JsonOption = False,
) -> None:
    """Compute the distances of the points in SRC once and keep them in OUT.

    Stopped by a signal, it ends with code 75; the same command goes on where it was.

    Example: silchunk distances points.npy d.zarr && silchunk bound d.zarr
    """
    began = time.perf_counter()
    made = silchunk.build_distances(
        src,
        out,
        metric=metric,
        metric_params=parsed_params(param),
        dtype=dtype,
        keep_bits=_bits(keep_bits),
        memory=memory,
        resume=resume,
        overwrite=overwrite,
        progress=shown(),
    )
    _show(src, made, json_, time.perf_counter() - began)


@app.command("import")
@reported
@computes(always)
def import_(
    src: Annotated[
        str,
        typer.Argument(
            metavar="MATRIX",
            help="A square or condensed distance matrix: .npy or Zarr.",
            show_default=False,
        ),
    ],
    out: NewStore,
    dtype: DtypeOption = None,
    keep_bits: BitsOption = "none",
    validate: Annotated[bool, typer.Option(help="Check that it is a distance matrix.")] = True,
    memory: MemoryOption = None,
    resume: FreshOption = True,
    overwrite: OverwriteOption = False,
    json_: JsonOption = False,
) -> None:
    """Bring an existing distance matrix into a store.

    Example: silchunk import matrix.npy d.zarr
    """
    began = time.perf_counter()
    made = silchunk.import_distances(
        src,
        out,
        dtype=dtype,
        validate=validate,
        keep_bits=_bits(keep_bits),
        memory=memory,
        resume=resume,
        overwrite=overwrite,
        progress=shown(),
    )
    _show(src, made, json_, time.perf_counter() - began)


@app.command()
@reported
@computes(never)
def export(
    store: Store,
    out: Annotated[
        str,
        typer.Argument(
            metavar="OUT",
            help="A new .npy or .zarr; or an address, s3://bucket/d.zarr.",
            show_default=False,
        ),
    ],
    memory: MemoryOption = None,
    json_: JsonOption = False,
) -> None:
    """Write a stored matrix to a plain .npy file or Zarr array.

    Example: silchunk export d.zarr matrix.npy
    """
    began = time.perf_counter()
    silchunk.export_distances(store, out, memory=memory, progress=shown())
    say_written(out)
    if json_:
        matrix = silchunk.open_distances(store)
        print_json(
            {
                "source": str(store),
                "path": out,
                "shape": matrix.shape,
                "dtype": str(matrix.dtype),
                "seconds": time.perf_counter() - began,
            }
        )


@app.command()
@reported
def info(store: Store, json_: JsonOption = False) -> None:
    """Say what a store holds and what it was built from.

    Example: silchunk info d.zarr
    """
    _show(str(store), silchunk.open_distances(store), json_, None)


@app.command()
@reported
@computes(always)
def verify(
    store: Store,
    repair: Annotated[bool, typer.Option("--repair", help="Rebuild what is damaged.")] = False,
    source: Annotated[
        str | None,
        typer.Option(help="Input of the build, for a repair, where the store has none."),
    ] = None,
    memory: MemoryOption = None,
    json_: JsonOption = False,
) -> None:
    """Read every file of a store against its checksums; ends with code 74 if any is damaged.

    Example: silchunk verify d.zarr --repair
    """
    began = time.perf_counter()
    found = silchunk.verify_distances(store, repair, X=source, memory=memory, progress=shown())
    if json_:
        print_json(
            {
                "source": str(store),
                "path": found.path,
                "panels": found.n_panels,
                "damaged": list(found.damaged),
                "faults": list(found.faults),
                "repaired": found.repaired,
                "ok": found.ok,
                "seconds": time.perf_counter() - began,
            }
        )
    else:
        typer.echo(str(found))
    if not found.ok:
        raise typer.Exit(DAMAGED)


def _bits(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def _show(src: str, matrix: silchunk.DistanceMatrix, as_json: bool, seconds: float | None) -> None:
    header: dict[str, Any] = dict(matrix.header)
    if as_json:
        facts = {"source": src, "path": matrix.path, "bytes": matrix.nbytes_stored, **header}
        print_json(facts if seconds is None else {**facts, "seconds": seconds})
        return
    typer.echo(repr(matrix))
    source = header["input"]
    origin = source["path"] or "an array in memory"
    program = f"silchunk {header['versions']['silchunk']}"
    took = f"; this run took {seconds:.1f} s" if seconds else ""
    typer.echo(f"  made from {origin} {tuple(source['shape'])} by {program}{took}")
