"""What pictures show, read from what was drawn."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot
from plot_inputs import LABELS, X, lines, new_axes

import silchunk
from silchunk import InputError, KMeans, KSil, plots, silhouette_bounds
from silchunk.cluster.iteration import Iteration
from silchunk.errors import InputTypeError
from silchunk.pages import MissingExtraError
from silchunk.plots import plot_bound_curve, plot_ksil_history, plot_silhouette, plot_sweep


@pytest.fixture
def ax():
    return new_axes()


@pytest.fixture(autouse=True)
def closed():
    """No figure stays open."""
    yield
    pyplot.close("all")


# Bounds.


def test_the_curve_and_the_smallest_cluster_on_it(ax):
    bounds = silhouette_bounds(X)
    plot_bound_curve(bounds, min_cluster_size=20, score=0.2, ax=ax)
    drawn = lines(ax)
    sizes, values = drawn["no clustering is above"]
    assert np.array_equal(sizes, np.arange(1, 61))
    assert np.array_equal(values, bounds.curve())
    (name,) = (name for name in drawn if name.startswith("smallest cluster has 20: at most 0."))
    assert np.array_equal(drawn[name], [[20], [bounds.at(20)]])
    assert float(name.split()[-1]) >= bounds.at(20)
    assert np.array_equal(drawn["this clustering: 0.200"][1], [0.2, 0.2])
    assert ax.get_xscale() == "linear"


def test_a_long_curve_is_never_below_the_bound(ax):
    n = 20_000
    curve = np.linspace(1, 0.2, n // 2) ** 2
    bounds = silhouette_bounds(X)
    object.__setattr__(bounds, "_curve", curve)
    object.__setattr__(bounds, "n", n)
    plot_bound_curve(bounds, min_cluster_size=17, ax=ax)
    sizes, values = lines(ax)["no clustering is above"]
    assert len(sizes) < 2100
    assert sizes[0] == 1
    assert sizes[-1] == n // 2
    assert 17 in sizes
    # Steps: what is drawn at m is the bound of the last size up to m that is shown.
    every = np.arange(1, n // 2 + 1)
    drawn = values[np.searchsorted(sizes, every, side="right") - 1]
    assert (drawn >= curve).all()
    assert ax.lines[0].get_drawstyle() == "steps-post"
    assert ax.get_xscale() == "log"  # 17 of 10,000 is at the very edge


def test_scores_and_sizes_that_cannot_be():
    bounds = silhouette_bounds(X)
    with pytest.raises(InputError, match="is above the upper bound"):
        plot_bound_curve(bounds, min_cluster_size=60, score=0.9999)
    with pytest.raises(InputError, match="61"):
        plot_bound_curve(bounds, min_cluster_size=61)
    with pytest.raises(InputTypeError, match="bounds must come from silhouette_bounds"):
        plot_bound_curve(0.5)
    assert pyplot.get_fignums() == []


# Sweeps and fits.


def row(n_clusters, **values):
    columns = (
        "micro",
        "macro",
        "upper_bound_n_clusters",
        "upper_bound_min_size",
        "assignment_bound",
    )
    return SimpleNamespace(n_clusters=n_clusters, **{**dict.fromkeys(columns), **values})


def test_a_sweep(ax):
    sweep = SimpleNamespace(
        rows=[
            row(5, micro=0.5, macro=0.4, assignment_bound=0.8),
            row(2, micro=0.3, macro=0.35, assignment_bound=0.7),
            row(3),
        ],
        recommended={"micro": 5, "davies_bouldin": 2, "macro": 5, "calinski_harabasz": None},
    )
    plot_sweep(sweep, ax)
    drawn = lines(ax)
    assert np.array_equal(drawn["mean over points"], [[2, 3, 5], [0.3, np.nan, 0.5]], True)
    assert np.array_equal(drawn["mean of cluster means"], [[2, 3, 5], [0.35, np.nan, 0.4]], True)
    assert np.array_equal(drawn["at most, same sizes"], [[2, 3, 5], [0.7, np.nan, 0.8]], True)
    assert "at most, with K clusters" not in drawn  # nothing is known of it
    assert drawn["not computed"][0] == [3]
    assert np.array_equal(drawn["K = 5: best by micro, macro"][0], [5, 5])
    assert np.array_equal(drawn["K = 2: best by davies bouldin"][0], [2, 2])
    with pytest.raises(InputError, match="no rows to draw"):
        plot_sweep(SimpleNamespace(rows=[], recommended={}))


@pytest.mark.parametrize(
    ("estimator", "by"),
    [
        (KSil(4, random_state=0, margin=0.0), "macro"),
        (KSil(4, random_state=0, margin=1e9), "inertia"),
        (KMeans(4, random_state=0), "inertia"),
    ],
)
def test_a_fit(ax, estimator, by):
    found = estimator.fit(X)
    if isinstance(found, KSil):
        assert found.algorithm_ == ("K-Sil" if by == "macro" else "k-means")
    plot_ksil_history(found, ax)
    drawn = lines(ax)
    numbers = np.arange(1, found.n_iter_ + 1)
    for name, words in (("macro", "mean of cluster means"), ("micro", "mean over points")):
        values = [getattr(one, name) for one in found.history_]
        assert np.array_equal(drawn[words], [numbers, values])
    (kept,) = (name for name in drawn if name.startswith("kept"))
    assert kept.endswith(f"best by {by}")
    best = int(drawn[kept][0][0])
    scores = [getattr(one, by) * (-1 if by == "inertia" else 1) for one in found.history_]
    assert scores[best - 1] == max(scores)


def test_iterations_with_empty_clusters_are_not_the_best(ax):
    def iteration(number, macro, empty):
        return Iteration(number, macro, macro, 1.0, 1.0, 0.1, 0, empty)

    history = [iteration(1, 0.5, 0), iteration(2, 0.9, 1), iteration(3, 0.6, 0)]
    plot_ksil_history(history, ax)
    assert np.array_equal(lines(ax)["kept: iteration 3, best by macro"][0], [3, 3])
    with pytest.raises(InputError, match="no iterations"):
        plot_ksil_history([])
    with pytest.raises(InputTypeError, match="give a fitted estimator or its history_; got KSil"):
        plot_ksil_history(KSil(3))
    with pytest.raises(InputError, match="objective must be .*; got 'best'"):
        plot_ksil_history(history, objective="best")


# Manners.


def test_without_axes_there_is_a_new_figure_and_no_default_has_changed():
    before = dict(matplotlib.rcParams)
    first = plot_bound_curve(silhouette_bounds(X))
    second = plot_silhouette(X, LABELS)
    assert first.get_figure() is not second.get_figure()
    assert pyplot.get_fignums() == [1, 2]
    assert dict(matplotlib.rcParams) == before


SHOWN_NOWHERE = """
import os
for name in ("DISPLAY", "WAYLAND_DISPLAY", "MPLBACKEND"):
    os.environ.pop(name, None)
import silchunk.plots, sys
assert "matplotlib" not in sys.modules
ax = silchunk.plots.plot_silhouette([[0.0], [0.1], [1.0], [1.1]], [0, 0, 1, 1])
ax.get_figure().canvas.draw()
import matplotlib
print(matplotlib.get_backend().lower())
"""


def test_no_display_is_needed():
    ran = subprocess.run(
        [sys.executable, "-c", SHOWN_NOWHERE], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "agg\n"), ran.stderr


def test_without_matplotlib_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(MissingExtraError, match=r'pip install "silchunk\[plot\]"') as raised:
        plot_bound_curve(silhouette_bounds(X))
    assert isinstance(raised.value, ImportError)
    assert isinstance(raised.value, silchunk.SilchunkError)


def test_colours_can_be_told_apart_by_all():
    # Okabe & Ito's eight, https://jfly.uni-koeln.de/color/, but for black and yellow.
    theirs = {"#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"}
    assert set(plots.COLOURS) == theirs
    assert len(plots.COLOURS) == len(theirs)


def test_the_curve_of_a_sample_is_that_of_its_limits():
    X = np.random.default_rng(0).standard_normal((200, 3))
    sizes = [1, 5, 20, 90]
    sampled = silchunk.silhouette_upper_bound(
        X, min_cluster_size=sizes, sample_size=50, random_state=0
    )
    ax = plot_bound_curve(sampled, min_cluster_size=20, score=0.2)
    curve = ax.lines[0]
    assert curve.get_xdata().tolist() == sizes
    assert curve.get_ydata().tolist() == sampled.upper_limit.tolist()
    assert "with confidence 0.95" in curve.get_label()
    with pytest.raises(InputError, match="no limit for min_cluster_size 7; .* asked for 1, 5, 20"):
        plot_bound_curve(sampled, min_cluster_size=7)
