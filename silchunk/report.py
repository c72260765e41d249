"""The page about a clustering: what `Evaluation` prints, with pictures, for a browser."""

from __future__ import annotations

import datetime
import math
import platform
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from silchunk.agreement import LabelAgreement
from silchunk.bound_result import BoundResult
from silchunk.ceilings import Ceiling
from silchunk.pages import check_installed, extra, render, svg
from silchunk.plan import Plan, format_bytes
from silchunk.plots import plot_bound_curve, plot_silhouette
from silchunk.rounding import at_most
from silchunk.sampling import SampledBound
from silchunk.silhouette_result import SilhouetteTable

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes

# In pictures more are not seen, and the page is to stay small.
DRAWN_POINTS = 2000
# Inches: on a phone letters are still large enough.
WIDTH, HEIGHT, TALLEST = 4.6, 3.3, 7.0
LISTED_CLUSTERS = 100
LISTED_POINTS = 10
LONGEST_TEXT = 80

LIBRARIES = ("silchunk", "numpy", "scikit-learn", "dask", "zarr", "numba")


class Judged(Protocol):
    """What a page is made from; an `Evaluation` is one."""

    @property
    def silhouettes(self) -> SilhouetteTable: ...
    @property
    def bounds(self) -> BoundResult | SampledBound: ...
    @property
    def any_clustering(self) -> Ceiling: ...
    @property
    def smallest_cluster(self) -> Ceiling: ...
    @property
    def these_sizes(self) -> Ceiling | None: ...
    @property
    def macro_these_sizes(self) -> Ceiling | None: ...
    @property
    def micro(self) -> float: ...
    @property
    def macro(self) -> float: ...
    @property
    def dunn(self) -> float | None: ...
    @property
    def davies_bouldin(self) -> float | None: ...
    @property
    def calinski_harabasz(self) -> float | None: ...
    @property
    def agreement(self) -> LabelAgreement | None: ...
    @property
    def n_features(self) -> int | None: ...
    @property
    def seconds(self) -> float: ...
    @property
    def verdict(self) -> str: ...
    @property
    def sample_size(self) -> int | None: ...
    @property
    def plan(self) -> Plan: ...


def report_page(judged: Judged, *, source: str = "", command: str = "") -> str:
    """The page, in HTML.

    Parameters
    ----------
    judged : Evaluation
    source : str
        What was judged.
    command : str
        How to repeat it.

    Raises
    ------
    MissingExtraError
        matplotlib or jinja2 is not installed.
    """
    check_installed()
    table, smallest = judged.silhouettes, int(judged.silhouettes.clusters.sizes.min())
    three = (judged.any_clustering, judged.smallest_cluster, judged.these_sizes)
    return render(
        "report.html",
        n=judged.bounds.n,
        n_clusters=table.n_clusters,
        metric=table.metric,
        source=source,
        verdict=judged.verdict,
        doubtful=judged.micro <= 0,
        sampled=judged.sample_size is not None,
        confidence=getattr(judged.bounds, "confidence", None),
        scores=[
            _score("Mean over points (micro)", judged.micro, table.micro_standard_error, three),
            _score(
                "Mean of cluster means (macro)",
                judged.macro,
                table.macro_standard_error,
                (judged.macro_these_sizes,),
            ),
        ],
        silhouettes=_silhouettes(judged),
        curve=_curve(judged, smallest),
        clusters=_clusters(table),
        more_clusters=max(0, table.n_clusters - LISTED_CLUSTERS),
        points=worst_points(table, LISTED_POINTS),
        indices=_indices(judged),
        agreement=_agreement(judged.agreement),
        computed=_computed(judged),
        versions=", ".join(f"{name} {version(name)}" for name in LIBRARIES),
        command=command,
        made=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


def worst_points(table: SilhouetteTable, most: int) -> list[dict[str, Any]]:
    """The points with the lowest silhouettes, the lowest first and of equal ones the first; a
    block of points is looked at at a time."""
    names = ("point", "cluster", "nearest", "a", "b", "silhouette")
    worst = {name: np.empty(0) for name in names}
    for start, block in table._blocks():
        counted = np.arange(start, start + len(block["silhouette"]))
        if table.points is not None:
            counted = table.points[counted]
        columns = {"point": counted, **block}
        kept = np.flatnonzero(columns["cluster"] >= 0)
        low = kept[np.argsort(columns["silhouette"][kept], kind="stable")[:most]]
        worst = {name: np.r_[worst[name], columns[name][low]] for name in names}
        order = np.argsort(worst["silhouette"], kind="stable")[:most]
        worst = {name: values[order] for name, values in worst.items()}
    classes = table._labels.classes
    return [
        {
            "point": f"{int(point):,}",
            "cluster": _text(classes[int(cluster)]),
            "nearest": _text(classes[int(nearest)]),
            "a": "alone" if math.isnan(a) else f"{a:.4g}",
            "b": f"{b:.4g}",
            "silhouette": _signed(s),
        }
        for point, cluster, nearest, a, b, s in zip(
            *(worst[name].tolist() for name in names), strict=True
        )
    ]


def _score(
    name: str, score: float, error: float, ceilings: tuple[Ceiling | None, ...]
) -> dict[str, Any]:
    """A score, and how far along each bar its mark stands, in percent of the range from 0 to 1."""
    return {
        "name": name,
        "value": _signed(score) + (f" ± {error:.3f}" if error else ""),
        "width": _percent(score),
        "ceilings": [
            {
                "whose": ceiling.whose,
                "bound": at_most(ceiling.bound, 3),
                "width": _percent(ceiling.bound),
                "reached": max(0, int(100 * ceiling.reached)),
            }
            for ceiling in ceilings
            if ceiling is not None
        ],
    }


def _percent(value: float) -> str:
    return f"{100 * min(1.0, max(0.0, value)):.2f}"


def _signed(value: float) -> str:
    """Three decimals, with the minus that is as wide as a digit; -0.0004 is no -0.000."""
    return f"{value:.3f}".replace("-0.000", "0.000").replace("-", "\N{MINUS SIGN}")


def _text(label: Any) -> str:
    text = str(label)
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"


def _new_axes(height: float) -> Axes:
    """Of a figure that pyplot does not know, so that none stays open."""
    figure = extra("matplotlib.figure").Figure(figsize=(WIDTH, height), layout="constrained")
    axes: Axes = figure.add_subplot()
    return axes


def _element(ax: Axes, alt: str) -> Markup:
    figure = ax.get_figure(root=True)
    assert figure is not None
    return svg(figure, alt)


def _silhouettes(judged: Judged) -> Markup:
    table = judged.silhouettes
    ax = _new_axes(min(TALLEST, max(HEIGHT, 1.2 + 0.22 * table.n_clusters)))
    bounds = judged.bounds if isinstance(judged.bounds, BoundResult) else None
    plot_silhouette(table, bounds=bounds, most_points=DRAWN_POINTS, ax=ax)
    alt = f"Silhouettes of the points, by cluster; their mean is {judged.micro:.3f}"
    return _element(ax, alt)


def _curve(judged: Judged, smallest: int) -> Markup:
    ax = plot_bound_curve(
        judged.bounds, min_cluster_size=smallest, score=judged.micro, ax=_new_axes(HEIGHT)
    )
    alt = (
        f"Upper bound against the size of the smallest cluster: at most "
        f"{at_most(judged.smallest_cluster.bound, 3)} for {smallest:,} points; this clustering has "
        f"{judged.micro:.3f}"
    )
    return _element(ax, alt)


def _clusters(table: SilhouetteTable) -> list[dict[str, Any]]:
    """All clusters in order, or those with the lowest means where there are very many."""
    clusters = table.clusters
    shown = np.arange(table.n_clusters)
    if table.n_clusters > LISTED_CLUSTERS:
        shown = np.argsort(clusters.means, kind="stable")[:LISTED_CLUSTERS]
    return [
        {
            "label": _text(clusters.labels[j]),
            "size": f"{clusters.sizes[j]:,}",
            "mean": _signed(clusters.means[j]),
            "median": _signed(clusters.medians[j]),
            "min": _signed(clusters.minima[j]),
            "negative": f"{clusters.negative[j]:.1%}",
        }
        for j in shown.tolist()
    ]


def _indices(judged: Judged) -> list[tuple[str, str, str]]:
    rows = [
        ("Davies-Bouldin", judged.davies_bouldin, "lower is better, 0 at best"),
        ("Calinski-Harabasz", judged.calinski_harabasz, "higher is better"),
        ("Dunn", judged.dunn, "higher is better"),
    ]
    return [
        (name, f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}", words)
        for name, value, words in rows
        if value is not None
    ]


def _agreement(agreement: LabelAgreement | None) -> list[tuple[str, str, str]]:
    if agreement is None:
        return []
    return [
        ("Adjusted Rand index", f"{agreement.ari:.3f}", "of pairs of points; about 0 by chance"),
        (
            "Adjusted mutual information",
            f"{agreement.ami:.3f}",
            "of shared information; about 0 by chance",
        ),
        (
            "Normalized mutual information",
            f"{agreement.nmi:.3f}",
            "the same, but many small clusters score high by chance",
        ),
        (
            "Accuracy",
            f"{agreement.accuracy:.3f}",
            "share of points in the cluster that is matched with their class",
        ),
    ]


def _exact_or_sampled(judged: Judged) -> list[tuple[str, str]]:
    bounds, table, n = judged.bounds, judged.silhouettes, f"{judged.bounds.n:,}"
    if isinstance(bounds, SampledBound):
        return [
            (
                "Silhouettes",
                f"estimated from {judged.sample_size:,} points, some of every cluster, each held "
                f"against all {n}; standard error {table.micro_standard_error:.4f} of the mean "
                f"over points, {table.macro_standard_error:.4f} of the mean of cluster means",
            ),
            (
                "Bounds",
                f"estimated from {bounds.sample_size:,} points, each held against all {n}; each "
                f"holds with a confidence of {bounds.confidence:.4g} for every clustering of that "
                "kind, found or not",
            ),
        ]
    assert bounds.sized is not None
    gap = max(bounds.sized.asw_gap, bounds.sized.macro_gap)
    return [
        ("Silhouettes", f"exact, over all {n} × {n} distances; no point was sampled"),
        (
            "Bounds",
            "hold for every clustering of that kind, found or not; those for these cluster sizes "
            f"are within {at_most(gap, 6)} of the best that their method gives",
        ),
    ]


def _computed(judged: Judged) -> list[tuple[str, str]]:
    """How, as (name, words)."""
    table, plan = judged.silhouettes, judged.plan
    left_out = table.n - judged.bounds.n
    if judged.n_features is None:
        points = f"{table.n:,}, by their distances to each other"
    else:
        points = f"{table.n:,}, each of {judged.n_features:,} numbers"
    return [
        ("Points", points + (f"; {left_out:,} left out as noise" if left_out else "")),
        ("Metric", f"{table.metric}, {8 * plan.itemsize}-bit distances"),
        *_exact_or_sampled(judged),
        ("Time", f"{judged.seconds:,.1f} s"),
        (
            "Memory",
            f"planned for a peak of {format_bytes(plan.peak_bytes)} in each process; "
            f"{format_bytes(plan.budget_bytes)} were allowed",
        ),
        (
            "Machine",
            f"Python {platform.python_version()}, {platform.system()} {platform.machine()}",
        ),
    ]
