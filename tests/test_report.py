"""The page about a clustering: what it says, and that nothing in it is taken for markup."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure
from silhouette_inputs import blobs
from sklearn.metrics import pairwise_distances
from typer.testing import CliRunner

import silchunk
from silchunk import OutputExistsError, evaluate
from silchunk.cli.base import BAD_INPUT, CANNOT_WRITE, FAILED, app
from silchunk.errors import InputNotFoundError
from silchunk.pages import MissingExtraError, render, svg, write_new
from silchunk.plots import shown_label
from silchunk.report import worst_points

runner = CliRunner()
X, LABELS = blobs(120, 3, 4)
NASTY = "<script>alert('x')</script> & \"y\""

# Elements that have no end tag.
VOID = {"meta", "link", "br", "path", "use", "rect", "image"}


class Reader(HTMLParser):
    """The elements of a page in order, its text, and that each is closed where it should be."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data):
        if "style" not in self._open:
            self.text += data

    def cells(self, row: str) -> list[str]:
        """Words of the line that begins so."""
        return next(line for line in self.text.splitlines() if line.startswith(row)).split()


@pytest.fixture(scope="module")
def judged():
    return evaluate(X, LABELS, true_labels=LABELS // 2)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    np.save("labels.npy", LABELS)
    return tmp_path


def report(*arguments, code=0):
    result = runner.invoke(app, ["report", *(str(a) for a in arguments)])
    assert result.exit_code == code, result.output
    return result


# What it says.


def test_headline_scores_and_ceilings(judged):
    page = Reader(judged.to_html(source="these points"))
    assert judged.verdict in page.text
    assert "A clustering of 120 points into 4 clusters" in page.text
    assert "these points · euclidean distance" in page.text
    widths = [re.fullmatch(r"width: ([\d.]+)%", a["style"]) for _, a in page.tags if "style" in a]
    drawn = [float(width[1]) for width in widths if width]
    expected = []
    for score, ceiling in (
        (judged.micro, judged.any_clustering),
        (judged.micro, judged.smallest_cluster),
        (judged.micro, judged.these_sizes),
        (judged.macro, judged.macro_these_sizes),
    ):
        expected += [100 * ceiling.bound, 100 * score]
        said = re.search(rf"{ceiling.whose}\s*at most ([\d.]+), (\d+)% reached", page.text)
        assert ceiling.bound <= float(said[1]) <= ceiling.bound + 0.001
        assert int(said[2]) <= 100 * ceiling.reached
    assert drawn == pytest.approx(expected, abs=0.005)


def test_clusters_indices_agreement_and_how_it_was_computed(judged):
    text = Reader(judged.to_html(command="silchunk report 'a b.npy'")).text
    clusters = judged.silhouettes.clusters
    for label, size, mean in zip(clusters.labels, clusters.sizes, clusters.means, strict=True):
        assert f"\n{label}{size}{mean:.3f}".replace("-", "−") in text
    assert f"Davies-Bouldin{judged.davies_bouldin:.4g}" in text
    assert f"Dunn{judged.dunn:.4g}" in text
    assert f"Adjusted Rand index{judged.agreement.ari:.3f}" in text
    assert "120, each of 3 numbers" in text
    assert "exact, over all 120 × 120 distances" in text
    assert f"silchunk {silchunk.__version__}, numpy {np.__version__}" in text
    assert "silchunk report 'a b.npy'" in text


def test_a_matrix_has_no_centroids_and_no_features():
    judged = evaluate(pairwise_distances(X), LABELS, metric="precomputed")
    text = Reader(judged.to_html()).text
    assert "Davies-Bouldin" not in text
    assert "Agreement" not in text
    assert "To repeat it" not in text
    assert "120, by their distances to each other" in text


def test_a_bad_clustering_is_said_to_be_one():
    labels = np.random.default_rng(0).permutation(LABELS)
    judged = evaluate(X, labels)
    assert judged.micro < 0
    page = Reader(judged.to_html())
    assert ("p", {"class": "headline doubtful"}) in page.tags
    assert "no nearer to their own cluster" in page.text
    assert f"{judged.micro:.3f}".replace("-", "−") in page.text


def test_points_that_are_left_out_are_counted():
    judged = evaluate(X, LABELS - 1, noise="drop")
    text = Reader(judged.to_html()).text
    assert f"A clustering of {(LABELS > 0).sum()} points into 3 clusters" in text
    assert f"{(LABELS == 0).sum()} left out as noise" in text


def test_points_that_fit_worst(judged):
    table = judged.silhouettes
    worst = worst_points(table, 7)
    order = np.argsort(table.samples, kind="stable")[:7]
    assert [int(one["point"]) for one in worst] == order.tolist()
    assert [one["cluster"] for one in worst] == [str(LABELS[i]) for i in order]
    assert [one["nearest"] for one in worst] == [str(table.nearest[i]) for i in order]
    assert [float(one["a"]) for one in worst] == pytest.approx(table.a[order], rel=1e-3)
    assert [float(one["b"]) for one in worst] == pytest.approx(table.b[order], rel=1e-3)


def test_worst_points_are_found_across_blocks_and_without_noise(monkeypatch):
    noisy = LABELS - 1
    table = silchunk.silhouette_table(X, noisy, noise="drop")
    whole = worst_points(table, 9)
    monkeypatch.setattr("silchunk.silhouette_result.BLOCK_ROWS", 16)
    assert worst_points(table, 9) == whole
    samples = np.where(noisy < 0, np.inf, table.samples)
    assert [int(one["point"]) for one in whole] == np.argsort(samples, kind="stable")[:9].tolist()


def test_few_of_very_many_clusters_are_listed():
    X, _ = blobs(400, 2, 3)
    judged = evaluate(X, np.arange(400) % 130)
    page = Reader(judged.to_html())
    assert "30 more are not listed" in page.text
    rows = [tag for tag, _ in page.tags].count("tr")
    assert rows == 100 + 10 + 3 + 2  # clusters, points, indices, and two heads


# One file, in which text is text.


def test_the_page_needs_no_other_file(judged):
    page = judged.to_html()
    assert "http" not in page
    assert "@import" not in page
    for tag, attributes in Reader(page).tags:
        assert tag not in ("script", "iframe", "object", "embed", "base", "form")
        assert not any(name.startswith("on") for name in attributes)
        for name in ("src", "href", "action", "data"):
            assert attributes.get(name, "#").startswith(("#", "data:,"))
    for target in re.findall(r"url\(([^)]*)\)", page):
        assert target.startswith("#")
    assert page.count("<!DOCTYPE html>") == 1
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids)) > 0
    used = set(re.findall(r'(?:url\(|href=")#([^")]*)', page))
    assert used <= set(ids)


@pytest.mark.parametrize("label", [NASTY, "</svg><img src=x onerror=alert(1)>", "--><b>"])
def test_labels_and_names_are_escaped(label):
    labels = np.where(LABELS == 0, label, LABELS.astype(str))
    page = Reader(evaluate(X, labels).to_html(source=label, command=label))
    assert not {"script", "img", "b"} & {tag for tag, _ in page.tags}
    assert page.text.count(label) >= 3
    assert f"{shown_label(label)} ({(LABELS == 0).sum()})" in page.text  # in the picture


@pytest.mark.parametrize("label", ["\x00\x1b[31m", "\ud800", "$\\frac{", "{{ 7 * 7 }}", ""])
def test_labels_that_are_no_proper_text(label):
    names = np.array(["a", label, "c", "d"], dtype=object)
    page = evaluate(X, names[LABELS].tolist()).to_html()
    page.encode()  # can be written
    assert "\x00" not in Reader(page).text


def test_a_figure_as_an_element():
    figure = pyplot.figure()
    ax = figure.add_subplot()
    ax.plot([0, 1], color="#000000", label=' id="a" #000000')
    ax.legend()
    element = str(svg(figure, 'a "b" <c>'))
    assert element.startswith('<svg viewBox="0 0 ')
    assert 'aria-label="a &quot;b&quot; &lt;c&gt;"' in element
    assert ' id="a" #000000</text>' in element  # text is left alone
    assert "stroke: currentColor" in element
    assert "font-family" not in element
    assert pyplot.get_fignums() == []
    before = dict(pyplot.rcParams)
    assert svg(Figure()).startswith("<svg")
    assert dict(pyplot.rcParams) == before


def test_a_name_that_a_template_is_not_given():
    with pytest.raises(Exception, match="'source' is undefined"):
        render("report.html", n=1, n_clusters=1)


# Files.


def test_written_whole_or_not_at_all(judged, folder, monkeypatch):
    page = judged.to_html("page.html")
    made = re.compile(r"Made by silchunk, .*")
    assert (folder / "page.html").read_text() == page
    assert made.sub("", page) == made.sub("", judged.to_html())
    with pytest.raises(OutputExistsError, match="page.html exists already and is left as it is"):
        judged.to_html("page.html")
    with pytest.raises(InputNotFoundError, match="there is no folder 'nowhere'"):
        judged.to_html("nowhere/page.html")

    def taken(source, target):
        raise FileExistsError

    monkeypatch.setattr("os.link", taken)
    with pytest.raises(OutputExistsError, match="other.html exists already"):
        write_new("other.html", "page")
    assert sorted(p.name for p in folder.iterdir()) == ["labels.npy", "page.html", "x.npy"]


def test_without_what_it_needs_the_remedy_is_named(judged, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=r'pip install "silchunk\[plot\]"'):
        judged.to_html("page.html")
    result = report("nowhere.npy", "labels.npy", "-o", "page.html", code=FAILED)
    assert 'pip install "silchunk[plot]"' in result.stderr  # before anything is looked at
    assert not (folder / "page.html").exists()


# The command.


def test_the_command(folder):
    result = report("x.npy", "labels.npy", "-o", "page.html", "--metric", "manhattan")
    judged = evaluate(X, LABELS, metric="manhattan")
    assert result.stdout == f"{judged.verdict}\n"
    assert result.stderr.endswith("wrote page.html\n")
    text = Reader((folder / "page.html").read_text()).text
    assert "labels.npy of x.npy · manhattan distance" in text
    assert "report x.npy labels.npy -o page.html --metric manhattan" in " ".join(text.split())


def test_the_command_for_programs(folder):
    result = report("x.npy", "labels.npy", "-o", "page.html", "--json", "--threads", 1)
    facts = json.loads(result.stdout)
    assert facts["report"] == "page.html"
    assert facts["source"] == "x.npy"
    assert facts["micro"] == evaluate(X, LABELS).micro


def test_names_of_files_are_escaped(folder):
    (folder / "x.npy").rename(folder / "<b>$(x).npy")
    report("<b>$(x).npy", "labels.npy", "-o", "page.html")
    page = Reader((folder / "page.html").read_text())
    assert "b" not in {tag for tag, _ in page.tags}
    assert "labels.npy of <b>$(x).npy" in page.text
    assert "'<b>$(x).npy'" in page.text  # quoted for a shell


def test_what_the_command_refuses(folder):
    (folder / "page.html").write_text("mine")
    result = report("nowhere.npy", "labels.npy", "-o", "page.html", code=CANNOT_WRITE)
    assert "page.html exists already" in result.stderr
    assert (folder / "page.html").read_text() == "mine"
    report("nowhere.npy", "labels.npy", "-o", "new.html", code=BAD_INPUT)
    report("x.npy", "labels.npy", "-o", "nowhere/new.html", code=CANNOT_WRITE)
    assert not (folder / "new.html").exists()


# From a sample.


def test_the_page_of_a_sample_says_how_sure_it_is():
    judged = evaluate(X, LABELS, sample_size=60, random_state=4)
    text = Reader(judged.to_html()).text
    table = judged.silhouettes
    shown = f"{table.micro:.3f} ± {table.micro_standard_error:.3f}"
    assert shown.replace("-", "\N{MINUS SIGN}") in text
    assert "estimated from 60 points, some of every cluster, each held against all 120" in text
    assert f"standard error {table.micro_standard_error:.4f} of the mean over points" in text
    assert "holds with a confidence of 0.95" in text
    assert "no point was sampled" not in text
    assert "The line over the bars" not in text
    assert "no clustering is above, with confidence 0.95" in judged.to_html()


def test_worst_points_of_a_sample_are_numbered_as_all_points_are():
    table = silchunk.silhouette_table(X, LABELS, sample_size=60, random_state=4)
    [worst] = worst_points(table, 1)
    low = int(np.nanargmin(table.samples))
    assert worst["point"] == str(table.points[low])


def test_the_command_line_samples(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    np.save("labels.npy", LABELS)
    sample = ["--sample-size", "60", "--random-state", "4"]
    done = runner.invoke(app, ["report", "x.npy", "labels.npy", "-o", "page.html", *sample])
    assert done.exit_code == 0, done.output
    assert "reaches about" in done.output
    assert "estimated from 60 points" in Reader((tmp_path / "page.html").read_text()).text
    done = runner.invoke(app, ["evaluate", "x.npy", "labels.npy", "--json", *sample])
    assert json.loads(done.stdout)["sample_size"] == 60
