"""The page about a clustering as a browser shows it."""

from __future__ import annotations

import io

import numpy as np
import pytest
from browser_here import see
from matplotlib import image
from silhouette_inputs import blobs

from silchunk import evaluate

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PHONE, DESKTOP = 375, 1280
# Widths of pictures, the smallest letters in them, and tables that are cut off.
FIGURES = "[...document.querySelectorAll('figure svg')].map(e => e.getBoundingClientRect().width)"
LETTERS = (
    "Math.min(...[...document.querySelectorAll('figure svg text')]"
    ".map(e => e.getBoundingClientRect().height))"
)
CUT_OFF = (
    "[...document.querySelectorAll('.wide')].filter(e => e.scrollWidth > e.clientWidth).length"
)
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
ALERTED = "window.alerted"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    X, labels = blobs(300, 3, 5)
    names = np.array(["<script>window.alerted = 1</script>", "kinder", "Füchse", "d", "e"])
    path = tmp_path_factory.mktemp("page") / "report.html"
    evaluate(X, names[labels], true_labels=labels).to_html(
        path, source="x.npy", command="silchunk report x.npy labels.npy -o report.html"
    )
    return path


def pixels(seen) -> np.ndarray:
    """(height, width, 3) from 0 to 1."""
    return image.imread(io.BytesIO(seen.png), format="png")[..., :3]


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_is_seen_whole(page, width, dark):
    seen = see(
        page, width, "document.title", FIGURES, LETTERS, CUT_OFF, BACKGROUND, ALERTED, dark=dark
    )
    title, figures, letters, cut_off, background, alerted = seen.values
    assert title == "A clustering of 300 points into 5 clusters"
    assert alerted is None
    assert seen.complaints == []
    assert seen.requests == [page.as_uri()]
    assert seen.wider == 0
    assert cut_off == 0
    assert len(figures) == 2
    assert all(300 < one <= min(width, 600) for one in figures)
    assert letters >= 9  # pixels: they can be read
    shot = pixels(seen)
    assert shot.shape == (seen.size[1], width, 3)
    red, green, blue = (int(part) for part in background[4:-1].split(","))
    assert (max(red, green, blue) < 60) == dark
    # Not blank: from top to bottom there is something other than the background.
    marked = (np.abs(shot - np.array([red, green, blue]) / 255).max(axis=2) > 0.2).any(axis=1)
    bands = np.array_split(marked, 12)
    assert all(band.any() for band in bands)
    assert marked.mean() < 1


def test_the_bars_of_clusters_are_in_their_colours(page):
    shot = pixels(see(page, DESKTOP))
    for colour in ("0072B2", "E69F00", "009E73", "D55E00", "56B4E9"):
        wanted = np.array([int(colour[i : i + 2], 16) for i in (0, 2, 4)]) / 255
        assert (np.abs(shot - wanted).max(axis=2) < 0.01).sum() > 200


def test_printed_it_is_black_on_white(page):
    seen = see(page, 800, BACKGROUND, "getComputedStyle(document.body).color", media="print")
    assert seen.values == ["rgb(255, 255, 255)", "rgb(0, 0, 0)"]
    assert seen.wider == 0
    dark = see(page, 800, BACKGROUND, media="print", dark=True)
    assert dark.values == ["rgb(255, 255, 255)"]


def test_a_page_that_complains_is_caught(tmp_path):
    path = tmp_path / "bad.html"
    path.write_text("<script>console.error('no'); nothing.here</script><img src='missing.png'>")
    seen = see(path, 400)
    assert len(seen.complaints) >= 2
    assert any("missing.png" in one for one in seen.requests)
