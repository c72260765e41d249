"""Axes to draw into, and what was drawn in them."""

from __future__ import annotations

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from silhouette_inputs import blobs

X, LABELS = blobs(120, 3, 4)


def new_axes():
    """Axes of a figure that pyplot does not know."""
    figure = Figure(figsize=(5, 4), layout="constrained")
    FigureCanvasAgg(figure)
    return figure.add_subplot()


def filled(ax) -> list[np.ndarray]:
    """Widths of bars, cluster by cluster."""
    return [patch.get_data().values for patch in ax.patches if patch.get_fill()]


def lines(ax) -> dict[str, np.ndarray]:
    """(x, y) of the lines that a legend explains, by its words."""
    return {
        line.get_label(): np.array(line.get_data(), float)
        for line in ax.lines
        if not line.get_label().startswith("_")
    }


def names(ax) -> list[str]:
    return [text.get_text() for text in ax.get_yticklabels()]
