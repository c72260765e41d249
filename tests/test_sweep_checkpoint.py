"""A sweep goes on where it was cut off, and with nothing that is not its own."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from test_sweep import TRUTH, X

from silchunk import (
    ForeignStoreError,
    InputError,
    KMeans,
    StaleStoreError,
    StoppedError,
    StoreInUseError,
    plan,
    stopping,
    storage,
    sweep,
)
from silchunk.checkpoint import JOURNAL
from silchunk.sweep_jobs import SweepRows

asked = []


def labels_of(K):
    asked.append(K)
    if K == 5:
        raise ValueError("not this one")
    return np.arange(140) % K if K == 4 else TRUTH % K


@pytest.fixture
def panels(monkeypatch):
    """The panels that are computed, of which there are three; and no K is asked for yet."""
    found = []
    run = SweepRows.__call__

    def counted(self, start, stop):
        found.append(start // 64)
        return run(self, start, stop)

    monkeypatch.setattr(plan, "PREFERRED_PANEL_ROWS", 64)
    monkeypatch.setattr(SweepRows, "__call__", counted)
    asked.clear()
    return found


def run(counts=(2, 3, 4, 5), **options):
    return sweep(X, counts, estimator=labels_of, scheduler="synchronous", **options)


def same(found, other):
    assert found.rows == other.rows
    assert found.labels.keys() == other.labels.keys()
    for K, labels in found.labels.items():
        assert np.array_equal(labels, other.labels[K])


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_nothing_is_done_twice(tmp_path, panels):
    expected = run()
    assert (asked, panels) == ([2, 3, 4, 5], [0, 1, 2])
    folder = tmp_path / "job"
    same(run(checkpoint=folder), expected)
    before = contents(folder)
    asked.clear()
    panels.clear()
    same(run(checkpoint=str(folder)), expected)
    assert asked == panels == []
    assert contents(folder) == before


def test_more_clusters_may_be_asked_for_later(tmp_path, panels):
    folder = tmp_path / "job"
    run((2, 3), checkpoint=folder)
    asked.clear()
    same(run((2, 3, 4, 5), checkpoint=folder), run((2, 3, 4, 5)))
    assert asked == [4, 5, 2, 3, 4, 5]
    asked.clear()
    same(run((3,), checkpoint=folder), run((3,)))
    assert asked == [3]


def test_a_signal_stops_between_two_k_and_between_panels(tmp_path, panels):
    expected = run()
    panels.clear()
    folder = tmp_path / "job"

    def stopped_by(step, match):
        with stopping.stop_on_signals(), pytest.raises(StoppedError, match=match):
            run(checkpoint=folder, progress=step)

    def at_once(done, total):
        os.kill(os.getpid(), signal.SIGTERM)

    asked.clear()
    stopped_by(at_once, "stopped as asked")
    first = list(asked)
    assert first[0] == 2
    assert len(first) < 4
    steps = []

    def in_the_pass(done, total):
        steps.append(total)
        if panels == [0, 1]:
            os.kill(os.getpid(), signal.SIGTERM)

    stopped_by(in_the_pass, "stopped as asked after 2 of 3 panels")
    assert panels == [0, 1]
    same(run(checkpoint=folder), expected)
    assert panels == [0, 1, 2]


def test_a_fit_goes_on_inside_a_k(tmp_path):
    folder = tmp_path / "job"
    seen = []

    def interrupt(iteration):
        seen.append(iteration.iteration)
        if len(seen) == 3:
            raise KeyboardInterrupt

    Y = np.random.default_rng(0).standard_normal((500, 3))
    with pytest.raises(KeyboardInterrupt):
        sweep(Y, [5], estimator=KMeans(tol=0, callback=interrupt), checkpoint=folder)
    assert (folder / "fit-5.npz").exists()
    found = sweep(Y, [5], estimator=KMeans(tol=0, callback=interrupt), checkpoint=folder)
    assert seen[3] == seen[2] == seen[0] + 2, "the iteration that was cut off, and no earlier one"
    assert len(seen) > 4
    assert not (folder / "fit-5.npz").exists()
    assert found.rows == sweep(Y, [5], estimator=KMeans(tol=0)).rows


def test_a_damaged_record_is_computed_again(tmp_path, panels, caplog):
    folder = tmp_path / "job"
    expected = run(checkpoint=folder)
    record = folder / "clusterings" / "panel-0000003.npz"
    record.write_bytes(record.read_bytes()[:-1])
    asked.clear()
    same(run(checkpoint=folder), expected)
    assert asked == [3]
    assert "panel-0000003.npz is damaged" in caplog.text


@pytest.mark.parametrize(
    ("points", "options", "message"),
    [
        (X + 1, {}, "the input is not the same"),
        (X, {"metric": "manhattan"}, "metric was 'euclidean', now 'manhattan'"),
        (X, {"estimator": "ksil"}, "estimator was 'kmeans', now 'ksil'"),
        (X, {"random_state": 1}, "parameters of the estimator was"),
        (X, {"min_cluster_size": 3}, "parameters of the estimator was"),
        (X, {"estimator": KMeans(n_init=3)}, "estimator was 'kmeans', now 'KMeans'"),
    ],
)
def test_other_input_or_parameters_are_refused(tmp_path, points, options, message):
    folder = tmp_path / "job"
    sweep(X, [2], estimator="kmeans", checkpoint=folder)
    before = contents(folder)
    with pytest.raises(StaleStoreError, match=message):
        sweep(points, [2], checkpoint=folder, **{"estimator": "kmeans", **options})
    assert contents(folder) == before


def test_another_function_is_refused_and_one_that_cannot_be_known_too(tmp_path):
    folder = tmp_path / "job"
    shift = [1, 2]
    sweep(X, [2], estimator=lambda K: (TRUTH + shift[0]) % K, checkpoint=folder)
    with pytest.raises(StaleStoreError, match="parameters of the estimator was"):
        sweep(X, [2], estimator=lambda K: (TRUTH + shift[1]) % K, checkpoint=folder)
    stream = (number for number in (1, 2))
    with pytest.raises(InputError, match="the estimator uses .* leave out checkpoint="):
        sweep(X, [2], estimator=lambda K: TRUTH % (K * next(stream)), checkpoint=tmp_path / "b")


def test_what_is_not_its_own_is_left_alone(tmp_path):
    full, file, link = tmp_path / "full", tmp_path / "file", tmp_path / "link"
    full.mkdir()
    (full / "clusterings").mkdir()
    (full / "thesis.txt").write_text("years")
    file.write_text("years")
    link.symlink_to(full)
    before = contents(tmp_path)
    for place, message in (
        (full, "is not the checkpoint of a sweep: it holds thesis.txt"),
        (file, "is a file"),
        (link, "is a symbolic link"),
    ):
        with pytest.raises(ForeignStoreError, match=message):
            sweep(X, [2], estimator="kmeans", checkpoint=place)
    (full / "thesis.txt").unlink()
    (full / "clusterings" / "thesis.txt").write_text("years")
    with pytest.raises(ForeignStoreError, match="clusterings is not the checkpoint of a silchunk"):
        sweep(X, [2], estimator="kmeans", checkpoint=full)
    with pytest.raises(InputError, match="there is no folder"):
        sweep(X, [2], estimator="kmeans", checkpoint=tmp_path / "none" / "job")
    assert len(contents(tmp_path)) == len(before)


def test_one_at_a_time(tmp_path):
    folder = tmp_path / "job"
    sweep(X, [2], estimator="kmeans", checkpoint=folder)
    with (
        storage.locked(folder / "clusterings"),
        pytest.raises(StoreInUseError, match="by another process"),
    ):
        sweep(X, [2], estimator="kmeans", checkpoint=folder)


JOB = """
import sys, time
import numpy as np
from silchunk import plan, sweep
from silchunk.sweep_jobs import SweepRows

plan.PREFERRED_PANEL_ROWS = 64
run = SweepRows.__call__

def slow(self, start, stop):
    time.sleep(0.02)
    return run(self, start, stop)

SweepRows.__call__ = slow
X = np.load("x.npy")
print("begin", flush=True)
found = sweep(X, range(2, 12), checkpoint="job")
np.savez("result.npz", labels=[found.labels[K] for K in range(2, 12)], rows=repr(found.rows))
print("done", flush=True)
"""


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path):
    points = np.random.default_rng(0).standard_normal((2000, 4))
    np.save(tmp_path / "x.npy", points)
    rng = random.Random(0)
    kept = {}
    for attempt in range(9):
        process = subprocess.Popen(
            [sys.executable, "-c", JOB], cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "begin\n"
        if attempt < 8:
            time.sleep(rng.uniform(0.2, 2.0))
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=60)
        else:
            assert process.communicate(timeout=300)[0] == "done\n"
        journals = sorted((tmp_path / "job").glob(f"*/{JOURNAL}"))
        for path in journals:
            lines = path.read_bytes().split(b"\n")[:-1]
            assert set(kept.get(path, [])) <= set(lines), "what was recorded is lost"
            kept[path] = lines
    expected = sweep(points, range(2, 12))
    with np.load(tmp_path / "result.npz") as result:
        assert np.array_equal(result["labels"], [expected.labels[K] for K in range(2, 12)])
        assert str(result["rows"]) == repr(expected.rows)
