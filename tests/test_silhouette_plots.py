"""What a picture of silhouettes shows, read from what was drawn."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from matplotlib import pyplot
from plot_inputs import LABELS, X, filled, lines, names, new_axes
from silhouette_inputs import blobs

import silchunk
from silchunk import InputError, silhouette_bounds, silhouette_table
from silchunk.plots import plot_silhouette


@pytest.fixture
def ax():
    return new_axes()


def test_bars_are_the_silhouettes_of_each_cluster_in_order(ax):
    table = silhouette_table(X, LABELS)
    assert plot_silhouette(table, ax=ax) is ax
    bars = filled(ax)
    assert len(bars) == 4
    for cluster, widths in enumerate(bars):
        assert np.array_equal(widths, np.sort(table.samples[cluster == LABELS])[::-1])
    mean = lines(ax)[f"mean {table.micro:.3f}"]
    assert np.array_equal(mean[0], [table.micro, table.micro])
    sizes = np.bincount(LABELS)
    assert names(ax) == [f"{cluster} ({size})" for cluster, size in enumerate(sizes)]
    for patch, size in zip(ax.patches, sizes, strict=True):
        assert np.allclose(np.diff(patch.get_data().edges), 1)
        assert len(patch.get_data().edges) == size + 1
    left, right = ax.get_xlim()
    assert left < table.samples.min()
    assert right == 1


def test_clusters_do_not_overlap_and_the_first_is_on_top(ax):
    plot_silhouette(silhouette_table(X, LABELS), ax=ax)
    spans = [patch.get_data().edges[[0, -1]] for patch in ax.patches]
    for (_, above), (below, _) in itertools.pairwise(spans):
        assert above < below
    bottom, top = ax.get_ylim()
    assert top < bottom
    assert bottom == pytest.approx(spans[-1][1])


def test_names_are_outside_of_the_bars(ax):
    plot_silhouette(silhouette_table(X, LABELS), ax=ax)
    figure = ax.get_figure()
    figure.draw_without_rendering()
    frame = ax.get_window_extent()
    for text in ax.get_yticklabels():
        assert text.get_window_extent().x1 <= frame.x0


def test_points_and_labels_in_place_of_a_table(ax):
    plot_silhouette(X, LABELS, metric="manhattan", ax=ax)
    expected = silchunk.silhouette_samples(X, LABELS, metric="manhattan")
    widths = np.sort(np.concatenate(filled(ax)))
    assert np.allclose(widths, np.sort(expected))


def test_many_points_are_drawn_by_ranks(ax):
    X, labels = blobs(3000, 2, 3)
    table = silhouette_table(X, labels)
    plot_silhouette(table, most_points=300, ax=ax)
    bars = filled(ax)
    assert 295 <= sum(map(len, bars)) <= 305
    for cluster, widths in enumerate(bars):
        own = np.sort(table.samples[labels == cluster])[::-1]
        # Each bar stands for about ten points, and is one of theirs.
        for place, width in enumerate(widths):
            low, high = (int(part * len(own) / len(widths)) for part in (place, place + 1))
            assert width in own[low : high + 1]
    # The space that a cluster takes is still that of its points.
    spans = [np.ptp(patch.get_data().edges) for patch in ax.patches]
    assert np.allclose(spans, np.bincount(labels))


def test_the_envelope_is_above_every_bar(ax):
    table, bounds = silhouette_table(X, LABELS), silhouette_bounds(X)
    plot_silhouette(table, bounds=bounds, ax=ax)
    envelopes = [patch.get_data().values for patch in ax.patches if not patch.get_fill()]
    assert len(envelopes) == 4
    for cluster, (widths, above) in enumerate(zip(filled(ax), envelopes, strict=True)):
        assert np.array_equal(above, np.sort(bounds.samples[cluster == LABELS])[::-1])
        assert (widths <= above + 1e-12).all()


def test_noise_that_is_left_out_has_no_bars(ax):
    noisy = LABELS - 1
    kept = noisy >= 0
    table = silhouette_table(X, noisy, noise="drop")
    plot_silhouette(table, bounds=silhouette_bounds(X[kept]), ax=ax)
    assert sum(map(len, filled(ax))) == kept.sum()
    envelopes = [patch.get_data().values for patch in ax.patches if not patch.get_fill()]
    expected = np.sort(silhouette_bounds(X[kept]).samples)
    assert np.array_equal(np.sort(np.concatenate(envelopes)), expected)


def test_a_sample_has_bars_for_the_points_looked_at(ax):
    table = silhouette_table(X, LABELS, sample_size=40, random_state=0)
    plot_silhouette(table, bounds=silhouette_bounds(X), ax=ax)
    assert np.array_equal(np.sort(np.concatenate(filled(ax))), np.sort(table.samples))
    envelopes = [patch.get_data().values for patch in ax.patches if not patch.get_fill()]
    expected = np.sort(silhouette_bounds(X).samples[table.points])
    assert np.array_equal(np.sort(np.concatenate(envelopes)), expected)


def test_of_very_many_clusters_the_largest_are_drawn(ax):
    labels = np.r_[np.arange(250), np.repeat(np.arange(50), 7)]
    X = np.random.default_rng(0).standard_normal((len(labels), 2))
    table = silhouette_table(X, labels)
    plot_silhouette(table, ax=ax)
    assert sorted(map(len, filled(ax)), reverse=True) == [8] * 50 + [1] * 150
    assert ax.get_ylabel() == "the 200 largest of 250 clusters"
    ax.get_figure().draw_without_rendering()
    boxes = [text.get_window_extent() for text in ax.get_yticklabels()]
    assert 5 < len(boxes) < 50  # there is no room for more
    for above, below in itertools.pairwise(boxes):
        assert above.y0 >= below.y1 - 1


@pytest.mark.parametrize("label", ["$x_{", "a\nb\x00c", "a" * 100, "<b>", "漢字"])
def test_labels_are_written_as_they_are(ax, label):
    labels = np.where(LABELS == 0, label, LABELS.astype(str))
    plot_silhouette(silhouette_table(X, labels), ax=ax)
    shown = {"a\nb\x00c": "a b\N{REPLACEMENT CHARACTER}c", "a" * 100: "a" * 15 + "…"}
    assert f"{shown.get(label, label)} ({(LABELS == 0).sum()})" in names(ax)


def test_what_cannot_be_drawn():
    table = silhouette_table(X, LABELS)
    with pytest.raises(InputError, match="give nothing but it"):
        plot_silhouette(table, LABELS)
    with pytest.raises(InputError, match="give nothing but it"):
        plot_silhouette(table, metric="manhattan")
    with pytest.raises(InputError, match="labels is missing"):
        plot_silhouette(X)
    with pytest.raises(InputError, match="bounds are of 7 points; the silhouettes are of 120"):
        plot_silhouette(table, bounds=np.ones(7))
    with pytest.raises(InputError, match="most_points must be at least 1; got 0"):
        plot_silhouette(table, most_points=0)
    assert pyplot.get_fignums() == []
