"""Sampled rows that are never held, the kernels behind them, and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
import sampling_inputs
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sampling_inputs import check_against_all_rows, points

from silchunk import (
    OverBudgetError,
    plan,
    silhouette_upper_bound,
    silhouette_upper_bound_samples,
    streaming,
)
from silchunk.draws import draw_rows
from silchunk.kernels import streamed

# pytest looks for fixtures among the names of a module.
sampled_values = sampling_inputs.sampled_values


# Rows that are never held.


def cloud(kind, n):
    rng = np.random.default_rng(n)
    if kind == "gaussian":
        return rng.standard_normal((n, 3))
    if kind == "blobs":
        return points(n, 2)
    if kind == "ties":
        return rng.integers(0, 3, (n, 2)).astype(float)
    if kind == "duplicates":
        return rng.standard_normal((5, 2))[rng.integers(0, 5, n)]
    if kind == "one apart":
        return np.r_[np.zeros((n - 1, 1)), [[3.0]]]
    return np.exp(6 * rng.standard_normal((n, 2)))


CLOUDS = ["gaussian", "blobs", "ties", "duplicates", "one apart", "spread"]


@pytest.mark.parametrize("held", [600, 30])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("kind", CLOUDS)
@pytest.mark.parametrize("n", [601, 1537, 3000])
def test_streamed_rows_equal_held_ones(n, kind, dtype, held, monkeypatch, sampled_values):
    X = cloud(kind, n).astype(dtype)
    asked = [
        {"min_cluster_size": [1, 2, n // 7, n // 2]},
        {"min_cluster_size": [1, n // 9, n // 3], "n_clusters": 3},
        {"n_clusters": n},
        {"min_cluster_size": n // 20, "n_clusters": 20},
    ]
    begun = []

    class Watched(streaming._Row):
        def _begin(self, *arguments):
            begun.append(self)
            super()._begin(*arguments)

    for options in asked:
        full = silhouette_upper_bound_samples(X, **options)
        with monkeypatch.context() as patch:
            patch.setattr(streaming, "HELD_VALUES", held)
            patch.setattr(streaming, "_Row", Watched)
            check_against_all_rows(X, full, sampled_values, s=20, atol=1e-13, **options)
    assert len(set(begun)) == 20 * len(asked), "all rows were to be streamed"


@pytest.mark.parametrize("metric", ["cosine", "manhattan", "canberra"])
def test_streamed_rows_of_other_metrics(metric, monkeypatch, sampled_values):
    X = points(1100, 4)
    full = silhouette_upper_bound_samples(X, metric=metric)
    monkeypatch.setattr(streaming, "HELD_VALUES", 50)
    check_against_all_rows(X, full, sampled_values, atol=1e-13, metric=metric)


def test_all_points_alike(monkeypatch):
    X = np.full((700, 2), 3.0)
    monkeypatch.setattr(streaming, "HELD_VALUES", 30)
    found = silhouette_upper_bound(X, sample_size=10, min_cluster_size=[1, 350], random_state=0)
    assert found.estimate.tolist() == [0.0, 0.0]
    assert found.standard_error.tolist() == [0.0, 0.0]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "dtype"), [("gaussian", "f4"), ("ties", "f8"), ("spread", "f8")])
def test_more_points_than_a_row_is_held_of(kind, dtype, sampled_values):
    n, s = plan.HELD_VALUES + 4000, 12
    X = cloud(kind, n).astype(dtype)
    sizes = [1, 50, n // 3]
    silhouette_upper_bound(
        X, sample_size=s, random_state=5, n_clusters=3, min_cluster_size=sizes, dtype="float64"
    )
    exact = X.astype(np.longdouble)
    for row, values in zip(draw_rows(s, 5, n), sampled_values[0], strict=True):
        d = np.sort(np.sqrt(((exact - exact[row]) ** 2).sum(axis=1)))
        own = np.cumsum(d)[1:-1]
        rest = np.cumsum(d[::-1])[::-1][2:]
        k = np.arange(2, n)
        quotients = (own / (k - 1)) / (rest / (n - k))
        for m, value in zip(sizes, values, strict=True):
            within = quotients[(k >= m) & (k <= n - 2 * m)]
            assert value == pytest.approx(float(1 - min(1, within.min())), abs=1e-12)


# The kernels behind them.


def least_quotients(row, ranges):
    """By the definition, in rational numbers; ``row`` has a zero for the point itself."""
    ordered = [Fraction(float(v)) for v in np.sort(row)]
    n = len(ordered)
    before = [Fraction(0)]
    for value in ordered:
        before.append(before[-1] + value)
    found = []
    for first, last in ranges:
        least = Fraction(1)
        for k in range(max(first, 2), min(last, n - 1) + 1):
            rest = before[n] - before[k]
            if rest:
                least = min(least, before[k] / (k - 1) / (rest / (n - k)))
        found.append(float(least))
    return found


def stream(row, ranges, held, edges, step):
    """The least quotients by the kernels, never more than ``held`` values at once; and passes."""
    n = len(row)
    smallest, largest = np.array(ranges, np.int64).T.copy()
    least = np.ones(len(ranges))
    in_question = np.ones(len(edges) + 1, np.uint8)
    blocks = [row[first : first + step] for first in range(0, n, step)]
    for passes in range(1, 200):
        counts = np.zeros(len(edges) + 1, np.int64)
        sums, lost = np.zeros(len(edges) + 1), np.zeros(len(edges) + 1)
        for block in blocks:
            streamed.add_to_bins(np.sort(block), edges, counts, sums, lost)
        of = np.searchsorted(edges, row, side="right")
        assert np.array_equal(counts, np.bincount(of, minlength=len(edges) + 1))
        expected = np.bincount(of, row.astype(float), len(edges) + 1)
        np.testing.assert_allclose(sums, expected, rtol=1e-12, atol=1e-320)
        wanted = in_question
        count = streamed.mark_bins(
            n, edges, row.max(), counts, sums, smallest, largest, least, wanted
        )
        assert count == counts[wanted == 1].sum()
        if count == 0:
            return least, passes
        if count <= held:
            break
        edges, in_question = streamed.finer_bins(edges, wanted, float(row.max()))
        assert (np.diff(edges) > 0).all()
        assert edges.dtype == row.dtype
        assert in_question.shape == (len(edges) + 1,)
    else:
        raise AssertionError("bins are refined without end")
    intervals = streamed.intervals_of(edges, wanted)
    kept, filled = np.empty(count, row.dtype), 0
    for block in blocks:
        filled = streamed.collect(block, intervals, kept, filled)
    assert filled == count
    kept.sort()
    assert np.array_equal(kept, np.sort(row[wanted[np.searchsorted(edges, row, "right")] == 1]))
    streamed.least_of_bins(n, kept, counts, sums, wanted, smallest, largest, least)
    return least, passes + 1


VALUES = st.one_of(
    st.sampled_from([0.0, 1.0, 2.0, 3.0]),
    st.floats(0, 10, width=32),
    st.floats(1, 1 + 2.0**-21, width=32),
    st.sampled_from([2.0**-149, 2.0**-140, 2.0**-126, 2.0**120, 1e-5]),
)


@st.composite
def streams(draw):
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    alphabet = draw(st.lists(VALUES, min_size=1, max_size=30))
    others = draw(st.lists(st.sampled_from(alphabet), min_size=2, max_size=90))
    row = np.array([0.0, *others], dtype)
    if dtype == np.float64 and draw(st.booleans()):
        row = np.where(row < 2.0**-140, row * 2.0**-925, row)  # down to the least float64
    n = len(row)
    ranges = []
    for _ in range(draw(st.integers(1, 3))):
        k = draw(st.integers(2, n))
        m = draw(st.integers(1, n // k))
        ranges.append((m, n - (k - 1) * m))
    sample = np.sort(row[: draw(st.integers(2, n))])
    return row, ranges, draw(st.integers(1, n)), streamed.first_edges(sample)


def zeros_and(*others, dtype=np.float64):
    row = np.array([0.0, *others], dtype)
    return row, [(1, len(row) - 1)], 1, row[:1].copy()


@settings(max_examples=400, deadline=None)
@given(streams(), st.integers(1, 100))
@example(zeros_and(*[1.0] * 50), 7)
@example(zeros_and(*[1.0] * 50, dtype=np.float32), 7)
@example(zeros_and(*[0.0] * 20, 1.0), 7)
@example(zeros_and(*[2.0**-149] * 20, 1.0, dtype=np.float32), 7)
@example(zeros_and(*[5e-324] * 20, 1e300), 7)
@example(zeros_and(*np.geomspace(1e-300, 1e300, 60)), 100)
@example(zeros_and(*np.nextafter(1.0, [0.0, 2.0] * 10)), 100)
def test_streamed_quotients_are_their_definition(problem, step):
    row, ranges, held, edges = problem
    if row.max() == 0:
        return  # such rows are done before
    least, passes = stream(row, ranges, held, edges, step)
    np.testing.assert_allclose(least, least_quotients(row, ranges), rtol=0, atol=1e-13)
    assert passes <= 70  # each halves what a bin spans of the floating-point numbers


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", CLOUDS)
def test_few_passes_are_enough(kind, dtype):
    n = 20_000
    X = cloud(kind, n)
    row = np.sqrt(((X - X[0]) ** 2).sum(axis=1)).astype(dtype)
    ranges = [(1, n - 1), (n // 10, n - n // 5)]
    sample = np.sort(row[: n // 5])
    least, passes = stream(row, ranges, 2000, streamed.first_edges(sample), 1000)
    ordered = np.sort(row).astype(np.longdouble)
    k = np.arange(2, n)
    rest = np.cumsum(ordered[::-1])[::-1][2:]
    quotients = (np.cumsum(ordered)[1:-1] / (k - 1)) / (rest / (n - k))
    for (first, last), found in zip(ranges, least, strict=True):
        within = quotients[(k >= first) & (k <= last)]
        assert found == pytest.approx(float(min(1, within.min())), abs=1e-13)
    assert passes <= 11  # a bin is cut into some 2⁷ parts, of 2⁶⁴ numbers at most


# Memory.


def planned(n, **options):
    options = {"width": 8, "itemsize": 4, "budget_bytes": 2 << 30, "concurrency": 2, **options}
    return plan.plan_panels(n=n, from_points=True, **options)


def test_the_plan_does_not_depend_on_the_number_of_points():
    for s in (8, 64, 1000, 50_000):
        few, many = (planned(n, sampled_rows=s) for n in (10**5, 10**9))
        assert few.peak_bytes == many.peak_bytes <= few.budget_bytes
        assert few.panels() == many.panels()
        assert few.panels()[0][0] == 0
        assert few.panels()[-1][1] == s
    assert planned(10**6, sampled_rows=64).peak_bytes < planned(10**6, sampled_rows=1000).peak_bytes
    with pytest.raises(OverBudgetError, match="one panel of 64 rows.*allows 100 MiB"):
        planned(10**6, sampled_rows=64, budget_bytes=100 << 20)


MEASURE = """
import json, sys
import silchunk
from silchunk import plan
made, plans = plan.plan_panels, []
plan.plan_panels = lambda **options: plans.append(made(**options)) or plans[-1]
found = silchunk.silhouette_upper_bound(
    sys.argv[1], sample_size=64, random_state=0, memory="400MiB", metric=sys.argv[2]
)
lines = open("/proc/self/status").read().splitlines()
peak = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
print(json.dumps([peak, plans[0].peak_bytes, plans[0].budget_bytes, found.n]))
"""


def measure(path, metric):
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path), metric],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
def test_measured_peaks_do_not_depend_on_the_number_of_points(metric, tmp_path):
    rng = np.random.default_rng(0)
    peaks = []
    for n in (80_000, 100_000, 400_000):  # the first compiles what has not been compiled
        np.save(tmp_path / f"{n}.npy", rng.standard_normal((n, 4), dtype=np.float32))
        peak, expected, budget, found_n = measure(tmp_path / f"{n}.npy", metric)
        assert found_n == n
        assert peak <= expected <= budget
        peaks.append(peak)
    assert abs(peaks[2] - peaks[1]) < 24 << 20
