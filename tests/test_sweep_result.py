"""What a sweep gives back: K that cannot be, recommendations, tables, files, progress."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from test_sweep import TRUTH, X

from silchunk import (
    InputError,
    OutputExistsError,
    OverBudgetError,
    Sweep,
    SweepRow,
    progress,
    silhouette_upper_bound,
    sweep,
)
from silchunk.pages import UNWRITABLE


def made(*rows):
    """A sweep with these rows, each (K, micro, macro, Davies-Bouldin, Calinski-Harabasz, bound)."""
    return Sweep(
        90,
        "euclidean",
        "made",
        [
            SweepRow(K, K, 5, micro, macro, db, ch, 0.9, 0.85, bound, 1 - micro / bound)
            for K, micro, macro, db, ch, bound in rows
        ],
        {},
    )


# K that cannot be.


def test_what_cannot_be_clustered_is_told_and_the_rest_goes_on():
    def labels(K):
        if K == 3:
            raise RuntimeError("no luck\ntoday")
        if K == 4:
            return np.zeros(140)
        if K == 5:
            return TRUTH[:-1]
        if K == 6:
            return TRUTH
        return np.arange(140) if K == 7 else TRUTH % K

    found = sweep(X, [1, 2, 3, 4, 5, 6, 7, 500], estimator=labels)
    rows = {row.n_clusters: row for row in found.rows}
    assert {K: row.reason for K, row in rows.items()} == {
        1: "A silhouette needs two clusters at least.",
        2: None,
        3: "RuntimeError: no luck today",
        4: "All points came into one cluster.",
        5: "labels must have one entry for each of the 140 points; their shape is (139,).",
        6: "4 clusters found instead of 6.",
        7: "Every point is a cluster of its own.",
        500: "4 clusters found instead of 500.",
    }
    assert [row.n_clusters for row in found.rows if row.micro is not None] == [2, 6, 500]
    assert [row.n_clusters_found for row in found.rows] == [None, 2, None, 1, None, 4, 140, 4]
    assert sorted(found.labels) == [2, 4, 6, 7, 500]
    # What is known of K clusters does not depend on whether any were found.
    for K in (2, 3, 4, 5, 6, 7):
        bound = silhouette_upper_bound(X, n_clusters=K)
        assert rows[K].upper_bound_n_clusters == pytest.approx(bound, abs=1e-12)
    assert rows[1].upper_bound_n_clusters is rows[500].upper_bound_n_clusters is None
    # It is no bound of four clusters.
    assert rows[6].wcre_n_clusters is None
    assert rows[6].wcre_min_size > 0
    assert set(found.recommended.values()) == {2}
    assert "RuntimeError: no luck today" in str(found)


def test_fewer_distinct_points_than_clusters():
    Y = np.repeat([[0.0, 0.0], [1.0, 5.0], [7.0, 1.0]], 5, axis=0)
    found = sweep(Y, [2, 3, 4, 20])
    assert [row.n_clusters_found for row in found.rows] == [2, 3, 3, None]
    assert found.rows[1].micro == found.rows[2].micro == 1.0
    assert found.rows[2].reason == "3 clusters found instead of 4."
    assert "n_samples=15 should be >= n_clusters=20" in found.rows[3].reason
    assert found.recommended["micro"] == 3


def test_points_that_are_all_alike():
    found = sweep(np.ones((9, 2)), [2, 3], estimator="kmeans")
    assert [row.reason for row in found.rows] == ["All points came into one cluster."] * 2
    assert found.recommended == {}
    assert not found.agreed
    assert "No K gave a clustering that can be scored" in str(found)


def test_smaller_clusters_than_asked_for_are_not_recommended():
    Y = np.r_[X[:10], X[:10], X[:1] + 1000]
    (row,) = sweep(Y, [2], min_cluster_size=1).rows
    assert (row.smallest, row.reason) == (1, None)
    with pytest.warns(ConvergenceWarning, match="fewer than min_cluster_size=10"):
        found = sweep(Y, [2], min_cluster_size=10)
    assert found.rows[0].reason == (
        "The smallest cluster has 1 of the 10 points that min_cluster_size asks for."
    )
    assert found.rows[0].micro is not None
    assert found.recommended == {}


# Recommendations.


def test_each_criterion_recommends_its_best_and_disagreement_is_told():
    found = made(
        (2, 0.40, 0.30, 0.9, 50.0, 0.50),
        (3, 0.50, 0.45, 0.8, 40.0, 0.80),
        (4, 0.45, 0.50, 0.7, 60.0, 0.70),
        (5, 0.10, 0.20, 1.5, 10.0, 0.60),
    )
    assert found.recommended == {
        "micro": 3,
        "macro": 4,
        "davies_bouldin": 4,
        "calinski_harabasz": 4,
        "share_of_bound": 2,
    }
    assert not found.agreed
    assert found.verdict.startswith(
        "The criteria disagree: K = 2 by share of the bound; K = 3 by micro silhouette; K = 4 by "
        "macro silhouette, Davies-Bouldin and Calinski-Harabasz. No index decides"
    )


def test_agreement_is_told_and_does_not_decide_either():
    found = made((2, 0.3, 0.3, 0.9, 50.0, 0.8), (3, 0.5, 0.5, 0.8, 60.0, 0.8))
    assert found.agreed
    assert found.verdict.startswith(
        "All 5 criteria prefer K = 3. K = 3 is the largest that was looked at: a larger one may be "
        "better yet. No index decides the number of clusters by itself"
    )
    first = made((2, 0.5, 0.5, 0.8, 60.0, 0.8), (3, 0.3, 0.3, 0.9, 50.0, 0.8))
    assert first.verdict.startswith("All 5 criteria prefer K = 2. No index decides")


def test_of_equals_the_fewest_clusters_are_recommended():
    found = made((2, 0.5, 0.5, 0.8, 9.0, 0.9), (3, 0.5, 0.5, 0.8, 9.0, 0.9))
    assert set(found.recommended.values()) == {2}


# Tables and pages.


def test_a_table_for_people():
    found = sweep(X, [2, 3, 4])
    row = found.rows[2]
    head, _, _, _, *rest = str(found).splitlines()
    assert head == "140 points in K = 2 to 4 clusters by ksil (euclidean distance)"
    cells = rest[2].replace("*", " ").split()
    assert cells[:4] == ["4", str(row.smallest), f"{row.micro:.3f}", f"{row.macro:.3f}"]
    for cell, bound in zip(
        cells[4:7],
        (row.upper_bound_n_clusters, row.upper_bound_min_size, row.assignment_bound),
        strict=True,
    ):
        assert bound <= float(cell) < bound + 0.001, "a bound is rounded up"
    assert cells[7] == f"{int(100 * row.share_of_bound)}%"
    assert [float(cell) for cell in cells[8:]] == [
        float(f"{row.davies_bouldin:.4g}"),
        float(f"{row.calinski_harabasz:.4g}"),
    ]
    starred = [line for line in rest[:3] if f"{max(r.micro for r in found.rows):.3f}*" in line]
    assert [line.split()[0] for line in starred] == [str(found.recommended["micro"])]
    assert max(map(len, str(found).splitlines())) <= 100
    assert repr(found) == str(found)


def test_a_data_frame():
    found = sweep(X, [1, 2, 3], estimator="kmeans")
    frame = found.to_pandas()
    assert frame.index.tolist() == [1, 2, 3]
    assert frame.index.name == "n_clusters"
    assert frame.loc[3, "micro"] == found.rows[2].micro
    assert frame.loc[3, "wcre_n_clusters"] == found.rows[2].wcre_n_clusters
    assert frame.loc[1, "reason"] == found.rows[0].reason
    assert np.isnan(frame.loc[1, "micro"])


def evil(K):
    if K == 3:
        raise ValueError("<script>alert(1)</script>")
    return TRUTH % K


def test_pages_have_all_figures_and_escape_what_others_wrote(tmp_path):
    evil.__name__ = "<b>evil</b>"
    found = sweep(X, [2, 3, 4], estimator=evil)
    page = found.to_html(tmp_path / "sweep.html", source="<i>x</i>", command="a < b")
    assert (tmp_path / "sweep.html").read_text() == page
    for text in (page, found._repr_html_()):
        assert "<script>" not in text
        assert "<b>evil" not in text
        assert "ValueError: &lt;script&gt;alert(1)&lt;/script&gt;" in text
        assert f"{found.rows[2].micro:.3f}" in text
        assert "No index decides" in text
    assert "&lt;i&gt;x&lt;/i&gt;" in page
    assert "a &lt; b" in page
    assert page.count("<svg") == 1
    assert not re.search(r"(src|href)=.(https?:)?//", page)
    assert not UNWRITABLE.search(page)
    with pytest.raises(OutputExistsError, match="sweep.html exists already"):
        found.to_html(tmp_path / "sweep.html")


# Files of labels, and what is told on the way.


def test_labels_in_a_folder(tmp_path):
    folder = tmp_path / "labels"
    plain = sweep(X, [1, 2, 3], estimator="kmeans")
    found = sweep(X, [1, 2, 3], estimator="kmeans", labels_folder=folder)
    assert sorted(file.name for file in folder.iterdir()) == ["labels-2.npy", "labels-3.npy"]
    for K in (2, 3):
        assert isinstance(found.labels[K], np.memmap)
        assert np.array_equal(np.load(folder / f"labels-{K}.npy"), plain.labels[K])
    assert list(tmp_path.iterdir()) == [folder]
    with pytest.raises(OutputExistsError, match="labels exists already and is left as it is"):
        sweep(X, [2], estimator="kmeans", labels_folder=folder)
    with pytest.raises(InputError, match="there is no folder"):
        sweep(X, [2], estimator="kmeans", labels_folder=tmp_path / "none" / "labels")


def test_progress_says_which_k_and_what_is_done_inside(monkeypatch, capsys, caplog):
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    sweep(X, [2, 3], estimator="kmeans", progress=True)
    said = capsys.readouterr().err
    told = re.findall(r"^(sweep: .*|labels: 100%|silhouettes and bounds: 100%)", said, re.M)
    assert [told[0], told[-2], told[-1]] == [
        "sweep: K = 2 (1 of 2)",
        "sweep: silhouettes and bounds of all K",
        "silhouettes and bounds: 100%",
    ]
    assert told.index("sweep: K = 3 (2 of 2)") > told.index("labels: 100%") > 0
    with caplog.at_level("INFO", "silchunk"):
        sweep(X, [2], estimator="kmeans")
    assert "sweep: K = 2 (1 of 1)" in caplog.messages
    steps = []
    sweep(X, [2], estimator=lambda K: TRUTH % K, progress=lambda *step: steps.append(step))
    assert steps[-1] == (1, 1)
    sweep(X, [2], estimator="kmeans", progress=False)
    assert capsys.readouterr().err == ""
    assert json.dumps(sweep(X, [2], estimator="kmeans").facts())


MEASURE = """
import sys
from silchunk import sweep

found = sweep("x.npy", range(2, 15), estimator="kmeans", memory=sys.argv[1])
assert found.rows[-1].micro is not None
lines = open("/proc/self/status").read().splitlines()
print(next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM")))
"""


@pytest.mark.slow
def test_memory_stays_within_the_budget(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((9000, 8), np.float32))
    for budget in (415, 500):
        command = [sys.executable, "-c", MEASURE, f"{budget}MiB"]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300
        )
        assert int(done.stdout) <= budget
    with pytest.raises(OverBudgetError, match="but the budget allows"):
        sweep(tmp_path / "x.npy", [2, 3], estimator="kmeans", memory="350MiB")
