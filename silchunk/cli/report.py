"""``silchunk report``: what ``silchunk evaluate`` says, as a page with pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
from silchunk.cli.execution import computes, never
from silchunk.cli.scores import (
    LabelsArgument,
    NoiseOption,
    SampleOption,
    SeedOption,
    ValidateOption,
)


@app.command()
@reported
@computes(never)
def report(
    src: Source,
    labels: LabelsArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="New file for the page: .html.")],
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
    """Write a page with pictures about the clustering LABELS of SRC, to be read in a browser.

    Example: silchunk report points.npy labels.npy -o report.html
    """
    from silchunk.pages import check_installed

    check_installed()
    refuse_existing(output)
    judged = silchunk.evaluate(
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
    options = getattr(src, "options", "")
    source = f"{labels} of {src}" + (f", {options}" if options else "")
    judged.to_html(output, source=source, command=typed())
    say_written(output)
    if json_:
        print_json({"source": src, "report": str(output), **judged.facts()})
    else:
        typer.echo(judged.verdict)
