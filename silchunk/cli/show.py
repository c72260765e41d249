"""How bounds look to people, and to programs."""

from __future__ import annotations

import dataclasses
from typing import Any

import typer

import silchunk


def bound_facts(
    src: str,
    result: silchunk.BoundResult,
    asw: float | None,
    seconds: float,
) -> dict[str, Any]:
    """Bounds for programs."""
    sizes: Any = result.min_cluster_size
    return {
        "source": src,
        "n": result.n,
        "metric": result.metric,
        "n_clusters": result.n_clusters,
        "certified": result.certified_for,
        "score": asw,
        "bounds": [
            {
                "min_cluster_size": m,
                "upper_bound": result.at(m),
                "wcre": None if asw is None or _above(asw, result.at(m)) else result.wcre(asw, m),
            }
            for m in sizes
        ],
        "cluster_sizes": None if result.sized is None else dataclasses.asdict(result.sized),
        "seconds": seconds,
        "peak_bytes_planned": result.plan.peak_bytes,
    }


def print_bound(
    src: str,
    result: silchunk.BoundResult,
    asw: float | None,
    seconds: float,
) -> None:
    """Bounds for people."""
    from silchunk.bound_result import certificate, family
    from silchunk.rounding import at_most

    typer.echo(f"{src}: {result.n:,} points, {result.metric} distance, {seconds:.1f} s")
    sizes: Any = result.min_cluster_size
    for m in sizes:
        bound, whose = result.at(m), family(m, result.n_clusters)
        typer.echo(f"  {whose}: average silhouette width <= {at_most(bound)}")
        if asw is not None:
            _rate(asw, bound)
    if result.sized is not None:
        sized = result.sized
        typer.echo(
            f"  {sized.family}: average silhouette width <= {at_most(sized.asw)}, mean of cluster "
            f"means <= {at_most(sized.macro)}"
        )
        if asw is not None:
            _rate(asw, sized.asw)
    for line in certificate(result.certified_for):
        typer.echo(line)


def sampled_facts(
    src: str, result: silchunk.SampledBound, asw: float | None, seconds: float
) -> dict[str, Any]:
    """A sampled bound for programs."""
    return {
        "source": src,
        "n": result.n,
        "metric": result.metric,
        "n_clusters": result.n_clusters,
        "sample_size": result.sample_size,
        "confidence": result.confidence,
        "certified": result.certified_for,
        "score": asw,
        "bounds": _entries(result),
        "seconds": seconds,
    }


def print_sampled(
    src: str, result: silchunk.SampledBound, asw: float | None, seconds: float
) -> None:
    """A sampled bound for people."""
    from silchunk.bound_result import certificate, family
    from silchunk.rounding import at_most

    typer.echo(
        f"{src}: {result.n:,} points, {result.metric} distance, {result.sample_size:,} of them "
        f"sampled, {seconds:.1f} s"
    )
    for entry in _entries(result):
        typer.echo(
            f"  {family(entry['min_cluster_size'], result.n_clusters)}: average silhouette width "
            f"<= {at_most(entry['upper_limit'])} with confidence {result.confidence:g} (the bound "
            f"is about {entry['estimate']:.6f}, standard error {entry['standard_error']:.6f})"
        )
        if asw is not None:
            _rate(asw, entry["upper_limit"])
    for line in certificate(result.certified_for):
        typer.echo(line)


def _entries(result: silchunk.SampledBound) -> list[dict[str, Any]]:
    import numpy as np

    names = ("min_cluster_size", "estimate", "standard_error", "upper_limit")
    columns = [np.ravel(getattr(result, name)).tolist() for name in names]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _rate(asw: float, bound: float) -> None:
    from silchunk.rounding import at_most

    if _above(asw, bound):
        typer.echo(f"    {asw:.6f} is above that: it cannot be the score of such a clustering")
        return
    reached = min(1.0, asw / bound) if bound > 0 else 1.0
    typer.echo(
        f"    {asw:.6f} reaches {100 * reached:.1f}% of that; no clustering of this kind is better "
        f"by more than {at_most(max(0.0, bound - asw))}"
    )


def _above(asw: float, bound: float) -> bool:
    from silchunk.bound_result import SCORE_SLACK

    return asw > bound + SCORE_SLACK
