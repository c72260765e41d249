"""Checkpoints: the same bits however often a job is cut off."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from functools import partial

import checkpoint_inputs
import dask
import numpy as np
import pytest
from checkpoint_inputs import (
    CALLS,
    JOURNAL,
    X,
    bits,
    digest,
    fail_after,
    panel_files,
    recorded,
    recorded_or_none,
    run,
)

from silchunk import (
    InputError,
    StoppedError,
    build_distances,
    plan,
    silhouette_bounds,
    silhouette_upper_bound,
    silhouette_upper_bound_samples,
    stopping,
)

# pytest looks for fixtures among the names of a module.
short_panels = checkpoint_inputs.short_panels
computed = checkpoint_inputs.computed
folder = checkpoint_inputs.folder

every_call = pytest.mark.parametrize("name", CALLS)


# Going on.


@every_call
def test_the_same_bits_and_no_work_twice(folder, computed, name):
    expected = run(name)
    whole = list(computed)
    assert len(whole) > 3
    computed.clear()
    assert run(name, checkpoint=folder) == expected
    assert computed == whole
    assert len(panel_files(folder)) == len(whole)
    before = digest(folder)
    computed.clear()
    assert run(name, checkpoint=folder) == expected
    assert computed == []
    assert digest(folder) == before
    assert bits(CALLS[name](checkpoint=str(folder))) == expected


@every_call
def test_a_failure_loses_no_finished_panel(folder, computed, name):
    expected = run(name)
    whole = list(computed)
    for done in (0, 1, 3):
        fail_after(max(0, done - len(recorded_or_none(folder))), computed, name, folder)
        assert recorded(folder) == set(range(done))
    assert run(name, checkpoint=folder) == expected
    assert computed == whole[3:]
    assert not list(folder.glob("*.part"))


@pytest.mark.parametrize("name", [n for n in CALLS if not n.startswith("sample")])
def test_another_plan_keeps_to_the_panels(folder, computed, monkeypatch, name):
    expected = run(name)
    fail_after(2, computed, name, folder)
    monkeypatch.setattr(plan, "PREFERRED_PANEL_ROWS", 256)
    assert run(name, memory="1GiB", checkpoint=folder) == expected
    assert computed == [(128, 192), (192, 256), (256, 300)]
    computed.clear()
    assert run(name, memory="2GiB") == expected
    assert computed == [(0, 256), (256, 300)], "without the checkpoint, panels were to be longer"


def test_a_sample_keeps_to_the_panels_of_its_checkpoint(folder):
    """However many workers there are, between which it would be divided."""
    options = {"sample_size": 64, "random_state": 0}
    with dask.config.set(num_workers=8):
        expected = silhouette_upper_bound(X, **options)
        assert silhouette_upper_bound(X, checkpoint=folder, **options) == expected
    alone = silhouette_upper_bound(X, checkpoint=folder, scheduler="synchronous", **options)
    assert alone == expected


def test_a_sample_that_cannot_be_drawn_again_is_refused(folder):
    with pytest.raises(InputError, match="needs random_state"):
        silhouette_upper_bound(X, sample_size=64, checkpoint=folder)
    assert not folder.exists()


@every_call
def test_another_scheduler(folder, computed, name):
    expected = run(name)
    whole = list(computed)
    fail_after(2, computed, name, folder)
    with dask.config.set(num_workers=3):
        assert bits(CALLS[name](scheduler="threads", checkpoint=folder)) == expected
    assert sorted(computed) == whole[2:]


def test_panels_that_are_done_out_of_order(folder, computed):
    """Threads finish in any order; the journal may tell of any of them."""
    expected = run("bounds")
    run("bounds", checkpoint=folder)
    head, *lines, _ = (folder / JOURNAL).read_bytes().split(b"\n")
    for kept in ([4], [3, 0], [2, 4], [0, 1, 2, 3], []):
        chosen = [lines[panel] for panel in kept]
        (folder / JOURNAL).write_bytes(b"\n".join([head, *chosen, b""]))
        computed.clear()
        assert run("bounds", checkpoint=folder) == expected
        missing = [panel for panel in range(5) if panel not in kept]
        assert computed == [(64 * p, min(300, 64 * p + 64)) for p in missing]


def test_calls_that_need_the_same_of_the_distances_share_a_checkpoint(folder, computed):
    sizes = [1, 2, 3, 4, 90]
    several = silhouette_upper_bound_samples(X, min_cluster_size=sizes, checkpoint=folder)
    computed.clear()
    result = silhouette_bounds(X, min_cluster_size=sizes, checkpoint=folder)
    assert np.array_equal(result.samples, several)
    assert bits(result) == bits(silhouette_bounds(X, min_cluster_size=sizes))
    assert computed == [(0, 64), (64, 128), (128, 192), (192, 256), (256, 300)]


def test_inputs_on_disk(folder, tmp_path, computed):
    np.save(tmp_path / "x.npy", X)
    expected = run("bounds", checkpoint=folder)
    computed.clear()
    given = silhouette_bounds(tmp_path / "x.npy", checkpoint=f"file://{folder}")
    assert bits(given) == expected
    assert computed == []
    store = build_distances(X, tmp_path / "d.zarr")
    plain = silhouette_bounds(store, scheduler="synchronous")
    other = tmp_path / "of a store"
    silhouette_bounds(store, checkpoint=other, scheduler="synchronous")
    computed.clear()
    assert bits(silhouette_bounds(tmp_path / "d.zarr", checkpoint=other)) == bits(plain)
    assert computed == []


@pytest.mark.cluster
def test_on_a_cluster(client, folder, tmp_path, computed, monkeypatch):
    expected = run("bounds and sizes")
    fail_after(2, computed, "bounds and sizes", folder)
    monkeypatch.undo()
    job = CALLS["bounds and sizes"]
    steps = []
    on_cluster = partial(job, scheduler=client, progress=lambda *step: steps.append(step))
    assert bits(on_cluster(checkpoint=folder)) == expected
    assert steps == [(1, 3), (2, 3), (3, 3)]
    steps.clear()
    assert bits(on_cluster(checkpoint=folder)) == expected
    assert steps == []
    other = tmp_path / "begun there"
    assert bits(on_cluster(checkpoint=other)) == expected
    before = digest(other)
    assert bits(job(checkpoint=other)) == expected
    assert digest(other) == before


# Kills.

JOB = """
import sys, time
import numpy as np
from silchunk import plan, silhouette_bounds
from silchunk.reduction import ReduceRows

plan.PREFERRED_PANEL_ROWS = 64
run = ReduceRows.__call__

def counted(self, start, stop):
    with open("computed.txt", "a") as log:
        log.write(f"{start // 64}\\n")
    time.sleep(0.02)
    return run(self, start, stop)

ReduceRows.__call__ = counted
print("begin", flush=True)
result = silhouette_bounds("x.npy", cluster_sizes=[2000, 1000], certify=True, checkpoint="job")
np.savez("result.npz", samples=result.samples, curve=result.curve(), macro=result.sized.macro)
print("done", flush=True)
"""


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path, folder):
    rng = random.Random(0)
    points = np.random.default_rng(0).standard_normal((3000, 4))
    np.save(tmp_path / "x.npy", points)
    log = tmp_path / "computed.txt"
    kills = 12
    done = set()
    for attempt in range(kills + 1):
        log.write_text("")
        process = subprocess.Popen(
            [sys.executable, "-c", JOB], cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "begin\n"
        if attempt < kills:
            time.sleep(rng.uniform(0.1, 0.8))
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=60)
        else:
            assert process.communicate(timeout=300)[0] == "done\n"
        assert not done & set(map(int, log.read_text().split())), "a finished panel was lost"
        if folder.exists():
            lines = (folder / JOURNAL).read_text().splitlines()[1:]
            found = {
                int(p) for line in lines for p in re.findall(r'"panel": (\d+)} [0-9a-f]{8}$', line)
            }
            assert done <= found
            done = found
    assert done == set(range(47))
    assert not list(folder.glob("*.part"))
    expected = silhouette_bounds(points, cluster_sizes=[2000, 1000], certify=True)
    with np.load(tmp_path / "result.npz") as result:
        assert np.array_equal(result["samples"], expected.samples)
        assert np.array_equal(result["curve"], expected.curve())
        assert float(result["macro"]) == expected.sized.macro


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_pause_a_job(folder, computed, number):
    expected = run("bounds")

    def send(done, total):
        if done == 2:
            os.kill(os.getpid(), number)

    with (
        stopping.stop_on_signals(),
        pytest.raises(StoppedError, match="stopped as asked after 2 of 5 panels"),
    ):
        run("bounds", checkpoint=folder, progress=send)
    assert recorded(folder) == {0, 1}
    computed.clear()
    assert run("bounds", checkpoint=folder) == expected
    assert computed == [(128, 192), (192, 256), (256, 300)]
