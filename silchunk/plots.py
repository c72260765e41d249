"""Pictures of silhouettes, of bounds, of a choice of K and of a fit; they need matplotlib.

Each function draws into the axes it is given, or into a new figure, and returns the axes. Nothing
is shown and no default of matplotlib's is changed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from silchunk.bound_result import BoundResult
from silchunk.errors import InputError, InputTypeError
from silchunk.pages import INK, UNWRITABLE, extra
from silchunk.rounding import at_most
from silchunk.sampling import SampledBound
from silchunk.silhouette_bars import Bars, aligned, bars_of
from silchunk.silhouette_result import SilhouetteTable
from silchunk.silhouettes import silhouette_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Vector = np.ndarray[Any, np.dtype[Any]]

# Okabe & Ito's colours, which people of all kinds of colour vision can tell apart; yellow, too
# faint on white, is left out.
BLUE, ORANGE, GREEN = "#0072B2", "#E69F00", "#009E73"
RED, SKY, PURPLE = "#D55E00", "#56B4E9", "#CC79A7"
COLOURS = (BLUE, ORANGE, GREEN, RED, SKY, PURPLE)
FAINT = "#8A8F94"

WIDTH, HEIGHT = 5.2, 3.4  # inches
MOST_POINTS = 10_000
CURVE_POINTS = 1000
LONGEST_LABEL = 16
# A smallest cluster below this part of the curve is lost at the edge, unless sizes are on a
# logarithmic axis.
LOGARITHMIC_BELOW = 0.02


def plot_silhouette(
    table_or_X: Any,
    labels: Any = None,
    *,
    bounds: BoundResult | Vector | None = None,
    most_points: int = MOST_POINTS,
    ax: Axes | None = None,
    **options: Any,
) -> Axes:
    """Silhouettes of points as bars, cluster by cluster, the largest first, and their mean.

    Parameters
    ----------
    table_or_X : SilhouetteTable, or points as `silhouette_table` takes them
    labels
        With points: one label for each.
    bounds : BoundResult or (n,) array, optional
        Upper bounds of the points' silhouettes; also (m,) for the m points that are not left out
        or are in the sample. In each cluster they are sorted as silhouettes are: the largest
        silhouettes are below the largest bounds, the second largest below the second largest.
    most_points : int
        Above so many, bars are drawn for evenly spaced ranks in each cluster.
    ax : matplotlib Axes, optional
        To draw into; by default those of a new figure.
    **options
        With points: further keywords of `silhouette_table`, such as ``metric``.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    MissingExtraError
        matplotlib is not installed.
    InputError
        Labels or options beside a table, or bounds of other points.

    Notes
    -----
    Of more than 200 clusters, the 200 largest are drawn. O(m log m) for m points.
    """
    if isinstance(table_or_X, SilhouetteTable):
        if labels is not None or options:
            raise InputError("a SilhouetteTable has its labels and metric; give nothing but it.")
        table = table_or_X
    elif labels is None:
        raise InputError("labels is missing: give points and labels, or a SilhouetteTable.")
    else:
        table = silhouette_table(table_or_X, labels, **options)
    if most_points < 1:
        raise InputError(f"most_points must be at least 1; got {most_points!r}.")
    drawn = list(bars_of(table, aligned(bounds, table), most_points))
    tall = min(8.0, max(HEIGHT, 1.2 + 0.22 * len(drawn)))
    ax = _axes(ax, tall)

    gap = 0.012 * sum(bar.size for bar in drawn) * min(1.0, 20 / len(drawn))
    top, middles, lowest = 0.0, [], 0.0
    for place, bar in enumerate(drawn):
        edges = top + np.linspace(0, bar.size, len(bar.values) + 1)
        colour = COLOURS[place % len(COLOURS)]
        ax.stairs(bar.values, edges, orientation="horizontal", fill=True, color=colour)
        if bar.envelope is not None:
            ax.stairs(
                bar.envelope,
                edges,
                orientation="horizontal",
                baseline=None,
                color=INK,
                linewidth=0.9,
                label="upper bound of points" if place == 0 else None,
            )
        middles.append(float(edges[0] + edges[-1]) / 2)
        top, lowest = float(edges[-1]) + gap, min(lowest, float(bar.values[-1]))
    bottom = top - gap
    ax.axvline(0, color=INK, linewidth=0.8)
    ax.axvline(
        table.micro, color=INK, linestyle="--", linewidth=1.2, label=f"mean {table.micro:.3f}"
    )
    ax.set_ylim(bottom, 0)
    ax.set_xlim(min(-0.02, max(-1.0, lowest - 0.03)), 1.0)
    _name_clusters(ax, drawn, middles, bottom)
    ax.set_xlabel("silhouette")
    if len(drawn) < table.n_clusters:
        ax.set_ylabel(f"the {len(drawn):,} largest of {table.n_clusters:,} clusters")
    else:
        ax.set_ylabel("cluster (points)" if table.points is None else "cluster (points sampled)")
    _legend_above(ax)
    return ax


def plot_bound_curve(
    bounds: BoundResult | SampledBound,
    *,
    min_cluster_size: int | None = None,
    score: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The upper bound over clusterings with no cluster smaller than m points, against m.

    Parameters
    ----------
    bounds : BoundResult, or SampledBound for several minimum cluster sizes
        From a sample, the curve is that of upper limits at these sizes.
    min_cluster_size : int, optional
        Size of a clustering's smallest cluster, which is marked on the curve.
    score : float, optional
        Average silhouette width of that clustering, drawn as a line.
    ax : matplotlib Axes, optional
        To draw into; by default those of a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    MissingExtraError
        matplotlib is not installed.
    InputError
        No clustering has a smallest cluster of that size, or the score is above its bound.
    """
    if not isinstance(bounds, (BoundResult, SampledBound)):
        raise InputTypeError(
            "bounds must come from silhouette_bounds(), or from silhouette_upper_bound() with "
            f"sample_size; got {type(bounds).__name__}."
        )
    marked = None if min_cluster_size is None else bounds.at(min_cluster_size)
    name = "no clustering is above"
    if isinstance(bounds, BoundResult):
        if score is not None:
            bounds.wcre(score, min_cluster_size)  # refuses one that cannot be
        largest, curve = len(bounds.curve()), bounds.curve()
        shown = _shown_sizes(largest, min_cluster_size)
        curve = curve[shown - 1]
    else:
        shown, curve = np.ravel(bounds.min_cluster_size), np.ravel(bounds.upper_limit)
        largest = int(shown[-1])
        name += f", with confidence {bounds.confidence:g}"
    ax = _axes(ax)
    # The bound at a size that is not shown is below that of the next smaller one, which is.
    ax.plot(shown, curve, drawstyle="steps-post", color=BLUE, label=name)
    if score is not None:
        ax.axhline(score, color=RED, linestyle="--", label=f"this clustering: {score:.3f}")
    if min_cluster_size is not None and marked is not None:
        text = f"smallest cluster has {min_cluster_size:,}: at most {at_most(marked, 3)}"
        ax.axvline(min_cluster_size, color=FAINT, linestyle=":", linewidth=1)
        ax.plot([min_cluster_size], [marked], "o", color=INK, label=text, zorder=3)
        if min_cluster_size < LOGARITHMIC_BELOW * largest:
            ax.set_xscale("log")
    low = min(float(curve[-1]), 0.0 if score is None else score)
    ax.set_ylim(min(0.0, low - 0.05 if low < 0 else low), 1.02)
    ax.set_xlabel("points in the smallest cluster, at least")
    ax.set_ylabel("average silhouette width")
    _legend_above(ax)
    return ax


def plot_sweep(sweep: Any, ax: Axes | None = None) -> Axes:
    """Silhouettes and their upper bounds against the number of clusters, and the K recommended.

    Parameters
    ----------
    sweep : what a sweep over K gives
        Its ``rows`` have ``n_clusters``, ``micro``, ``macro`` and upper bounds; its ``recommended``
        has a K for each criterion.
    ax : matplotlib Axes, optional
        To draw into; by default those of a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    MissingExtraError
        matplotlib is not installed.
    InputError
        There are no rows.
    """
    rows = sorted(sweep.rows, key=lambda row: row.n_clusters)
    if not rows:
        raise InputError("the sweep has no rows to draw.")
    ax = _axes(ax)
    sizes = [row.n_clusters for row in rows]
    lines: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("upper_bound_n_clusters", "at most, with K clusters", {"color": SKY, "linestyle": "--"}),
        (
            "upper_bound_min_size",
            "at most, no cluster smaller",
            {"color": GREEN, "linestyle": "-."},
        ),
        ("assignment_bound", "at most, same sizes", {"color": PURPLE, "linestyle": ":"}),
        ("micro", "mean over points", {"color": BLUE, "marker": "o"}),
        ("macro", "mean of cluster means", {"color": ORANGE, "marker": "s"}),
    )
    for name, words, style in lines:
        values = _numbers(rows, name)
        if not np.isnan(values).all():
            ax.plot(sizes, values, label=words, markersize=4, **style)
    missing = [row.n_clusters for row in rows if math.isnan(_numbers([row], "micro")[0])]
    if missing:
        ax.plot(
            missing,
            [0.02] * len(missing),
            "x",
            color=RED,
            label="not computed",
            transform=ax.get_xaxis_transform(),
        )
    criteria: dict[int, list[str]] = {}
    for criterion, chosen in sweep.recommended.items():
        if chosen is not None:
            criteria.setdefault(int(chosen), []).append(criterion.replace("_", " "))
    for chosen, names in sorted(criteria.items()):
        ax.axvline(
            chosen,
            color=FAINT,
            linewidth=4,
            alpha=0.35,
            zorder=0,
            label=f"K = {chosen:,}: best by {', '.join(names)}",
        )
    ax.xaxis.set_major_locator(extra("matplotlib.ticker").MaxNLocator(integer=True, min_n_ticks=1))
    ax.set_xlabel("number of clusters K")
    ax.set_ylabel("silhouette")
    _legend_above(ax)
    return ax


def plot_ksil_history(
    estimator_or_history: Any, ax: Axes | None = None, *, objective: str | None = None
) -> Axes:
    """The simplified silhouette of each iteration of a fit, and the iteration that was kept.

    Parameters
    ----------
    estimator_or_history : fitted KSil or another of the k-means family, or its ``history_``
    ax : matplotlib Axes, optional
        To draw into; by default those of a new figure.
    objective : "macro", "micro" or "inertia", optional
        By which the best iteration was kept; by default the estimator's, or "macro".

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    MissingExtraError
        matplotlib is not installed.
    InputError
        There are no iterations.
    """
    history: Sequence[Any] = getattr(estimator_or_history, "history_", estimator_or_history)
    if isinstance(history, (str, bytes)) or not hasattr(history, "__len__"):
        raise InputTypeError(
            "give a fitted estimator or its history_; got "
            f"{type(estimator_or_history).__name__}, which has none."
        )
    if not history:
        raise InputError("the history has no iterations to draw.")
    if objective is None:
        kept_by = getattr(estimator_or_history, "_kept_by", None)
        objective = "macro" if kept_by is None else kept_by()
    if objective not in ("macro", "micro", "inertia"):
        raise InputError(f"objective must be 'macro', 'micro' or 'inertia'; got {objective!r}.")
    ax = _axes(ax)
    iterations = [one.iteration for one in history]
    for name, words, colour, marker in (
        ("macro", "mean of cluster means", ORANGE, "s"),
        ("micro", "mean over points", BLUE, "o"),
    ):
        values = [getattr(one, name) for one in history]
        ax.plot(iterations, values, color=colour, marker=marker, markersize=4, label=words)
    sign = -1.0 if objective == "inertia" else 1.0
    best = max(history, key=lambda one: (-one.empty_clusters, sign * getattr(one, objective)))
    ax.axvline(
        best.iteration,
        color=FAINT,
        linewidth=4,
        alpha=0.35,
        zorder=0,
        label=f"kept: iteration {best.iteration:,}, best by {objective}",
    )
    ax.xaxis.set_major_locator(extra("matplotlib.ticker").MaxNLocator(integer=True, min_n_ticks=1))
    ax.set_xlabel("iteration")
    ax.set_ylabel("simplified silhouette")
    _legend_above(ax)
    return ax


def _axes(ax: Axes | None, height: float = HEIGHT) -> Axes:
    """The axes to draw into, without a frame above and on the right."""
    if ax is None:
        figure = extra("matplotlib.pyplot").figure(figsize=(WIDTH, height), layout="constrained")
        ax = figure.add_subplot()
    assert ax is not None
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _legend_above(ax: Axes) -> None:
    """Where it covers nothing."""
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), frameon=False, fontsize=9, borderpad=0.1)


def shown_label(label: Any) -> str:
    """A label as it is written in a picture: short, on one line."""
    text = UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", " ".join(str(label).split()))
    return text if len(text) <= LONGEST_LABEL else f"{text[: LONGEST_LABEL - 1]}…"


def _name_clusters(ax: Axes, drawn: list[Bars], middles: list[float], bottom: float) -> None:
    """Write names left of the axes, of the largest clusters where there is no room for all."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    inches = ax.get_position().height * figure.get_size_inches()[1]
    apart = bottom * 12.0 / (72.0 * max(inches, 0.1))
    named: list[int] = []
    for place in sorted(range(len(drawn)), key=lambda place: -drawn[place].size):
        if all(abs(middles[place] - middles[other]) >= apart for other in named):
            named.append(place)
    named.sort()
    ax.set_yticks(
        [middles[place] for place in named],
        labels=[f"{shown_label(drawn[place].label)} ({drawn[place].size:,})" for place in named],
        parse_math=False,
    )
    ax.tick_params(axis="y", length=0)


def _shown_sizes(longest: int, marked: int | None) -> Vector:
    """Sizes that a curve is drawn at: all, or so many that nobody sees the difference."""
    if longest <= CURVE_POINTS:
        return np.arange(1, longest + 1)
    even = np.linspace(1, longest, CURVE_POINTS)
    by_factors = np.geomspace(1, longest, CURVE_POINTS)
    extra_size = [] if marked is None else [marked]
    return np.unique(np.r_[even, by_factors, extra_size].astype(np.int64))


def _numbers(rows: Sequence[Any], name: str) -> Vector:
    """A column of numbers, NaN where there is none."""
    values = [getattr(row, name) for row in rows]
    return np.array([math.nan if value is None else value for value in values], float)
