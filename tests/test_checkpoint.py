"""Checkpoints: the same bits however often a job is cut off, and nothing else is touched."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import random
import re
import signal
import subprocess
import sys
import time
from functools import partial

import dask
import numpy as np
import oracles
import pytest

from silchunk import (
    DiskFullError,
    ForeignStoreError,
    InputError,
    StaleStoreError,
    StoppedError,
    StoreInUseError,
    build_distances,
    macro_silhouette_upper_bound,
    plan,
    silhouette_bounds,
    silhouette_upper_bound,
    silhouette_upper_bound_samples,
    stopping,
)
from silchunk.reduction import PickRows, ReduceRows
from silchunk.streaming import StreamRows

X = np.random.default_rng(0).standard_normal((300, 3))
D = oracles.distances(X, np.float64)
JOURNAL = "silchunk-checkpoint.jsonl"

CALLS = {
    "average": partial(silhouette_upper_bound, X),
    "several sizes": partial(silhouette_upper_bound, X, min_cluster_size=[1, 2, 90]),
    "many sizes": partial(silhouette_upper_bound, X, min_cluster_size=[1, 2, 3, 4, 90]),
    "samples": partial(silhouette_upper_bound_samples, X, n_clusters=3),
    "many samples": partial(silhouette_upper_bound_samples, X, min_cluster_size=[1, 2, 3, 4, 90]),
    "bounds": partial(silhouette_bounds, X),
    "bounds, certified": partial(silhouette_bounds, X, certify=True, n_clusters=3),
    "bounds and sizes": partial(silhouette_bounds, X, cluster_sizes=[150, 100, 50]),
    "bounds of a matrix": partial(silhouette_bounds, D, metric="precomputed"),
    "sizes": partial(silhouette_upper_bound, X, cluster_sizes=[150, 100, 50]),
    "macro": partial(macro_silhouette_upper_bound, X, [150, 100, 50], certify=True),
    "rearrangement": partial(macro_silhouette_upper_bound, X, [200, 100], method="rearrangement"),
    "sample": partial(silhouette_upper_bound, X, sample_size=290, random_state=3),
    "sample of a matrix": partial(
        silhouette_upper_bound,
        D,
        metric="precomputed",
        sample_size=290,
        random_state=3,
        certify=True,
    ),
}
every_call = pytest.mark.parametrize("name", CALLS)


def bits(result):
    """Everything that a result says, to the last bit."""
    if isinstance(result, (float, np.ndarray)):
        return np.asarray(result).tobytes()
    if hasattr(result, "curve"):
        return result.samples.tobytes(), result.curve().tobytes(), result.sized
    return np.array([result.estimate, result.standard_error, result.upper_limit]).tobytes()


def digest(folder):
    """Of every name and byte in a folder."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        found.update(str(path.relative_to(folder)).encode())
        found.update(path.read_bytes() if path.is_file() else b"/")
    return found.hexdigest()


def panel_files(folder):
    return sorted(folder.glob("panel-*.npz"))


def recorded(folder):
    """The panels that the journal tells of, read as one would by hand."""
    lines = (folder / JOURNAL).read_bytes().split(b"\n")[1:-1]
    return {json.loads(line[:-9])["panel"] for line in lines}


@pytest.fixture(autouse=True)
def short_panels(monkeypatch):
    """Panels of 64 rows; of a sample of points, 32."""
    monkeypatch.setattr(plan, "PREFERRED_PANEL_ROWS", 16)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "job"


@pytest.fixture
def computed(monkeypatch):
    """The ranges of rows that are computed, in order; the one of index ``fail_at`` fails."""

    class Computed(list):
        fail_at = None

    panels = Computed()
    for task in (ReduceRows, PickRows, StreamRows):

        def counted(self, start, stop, run=task.__call__):
            if panels.fail_at == len(panels):
                raise InputError("this panel was to fail")
            panels.append((start, stop))
            return run(self, start, stop)

        monkeypatch.setattr(task, "__call__", counted)
    return panels


def run(name, **options):
    return bits(CALLS[name](scheduler="synchronous", **options))


def fail_after(done, computed, name, folder):
    """Run a job that fails once so many panels are done; all of its panels, as it had them."""
    computed.clear()
    computed.fail_at = done
    with pytest.raises(InputError, match="this panel was to fail"):
        run(name, checkpoint=folder)
    computed.fail_at = None
    assert len(computed) == done
    computed.clear()


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


def recorded_or_none(folder):
    return recorded(folder) if folder.exists() else ()


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


# Another job's checkpoint.

begun = partial(silhouette_bounds, min_cluster_size=2, n_clusters=3, cluster_sizes=[150, 100, 50])
CHANGES = {
    "the last digit of a value": (
        {"X": np.where(X[7, 1] == X, np.nextafter(X, 9), X)},
        "the input",
    ),
    "the order of points": ({"X": X[::-1]}, "the input is not the same"),
    "n": ({"X": X[:-1], "cluster_sizes": [150, 100, 49]}, "n was 300, now 299"),
    "metric": ({"metric": "manhattan"}, "metric was 'euclidean', now 'manhattan'"),
    "dtype": ({"dtype": "float32"}, "dtype was 'float64', now 'float32'"),
    "min_cluster_size": ({"min_cluster_size": 3}, r"min_cluster_size was \[2\], now \[3\]"),
    "several sizes": ({"min_cluster_size": [2, 3]}, r"was \[2\], now \[2, 3\]"),
    "n_clusters": ({"n_clusters": None}, "n_clusters was 3, now None"),
    "cluster_sizes": (
        {"cluster_sizes": [149, 101, 50]},
        r"cluster_sizes was \[50, 100, 150\], now \[50, 101, 149\]",
    ),
    "no cluster_sizes": ({"cluster_sizes": None}, r"cluster_sizes was \[50, 100, 150\], now \[\]"),
    "certify": ({"certify": True}, "certify was False, now True"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("finished", [False, True])
def test_a_stale_checkpoint_is_refused(folder, computed, change, finished):
    options = {"X": X, "scheduler": "synchronous", "checkpoint": folder}
    computed.fail_at = None if finished else 2
    if finished:
        expected = bits(begun(**options))
    else:
        with pytest.raises(InputError, match="this panel was to fail"):
            begun(**options)
        computed.fail_at = None
        expected = bits(begun(X, scheduler="synchronous"))
    before = digest(folder)
    computed.clear()
    changed, message = CHANGES[change]
    with pytest.raises(StaleStoreError, match=f"is the checkpoint of another job: .*{message}"):
        begun(**{**options, **changed})
    assert computed == []
    assert digest(folder) == before
    assert bits(begun(**options)) == expected


def test_all_that_differs_is_named(folder):
    silhouette_bounds(X, checkpoint=folder)
    message = "n was 300, now 299; .*metric was 'euclidean', now 'chebyshev'; the input .*; n_clus"
    with pytest.raises(StaleStoreError, match=message):
        silhouette_bounds(X[1:], metric="chebyshev", n_clusters=2, checkpoint=folder)


def test_changed_parameters_of_a_metric_are_refused(folder):
    options = {"metric": "minkowski", "checkpoint": folder}
    silhouette_bounds(X, metric_params={"p": 3}, **options)
    before = digest(folder)
    with pytest.raises(StaleStoreError, match="metric_params was {'p': 3}, now {'p': 4}"):
        silhouette_bounds(X, metric_params={"p": 4}, **options)
    assert digest(folder) == before


def test_points_and_a_matrix_are_not_the_same_input(folder):
    silhouette_bounds(D, metric="precomputed", checkpoint=folder)
    with pytest.raises(StaleStoreError, match="metric was 'precomputed', now 'euclidean'"):
        silhouette_bounds(X, checkpoint=folder)


@pytest.mark.parametrize(
    "change", [{"random_state": 4}, {"sample_size": 291}, {"sample_size": None}]
)
@pytest.mark.parametrize("name", ["sample", "sample of a matrix"])
def test_another_sample_is_refused(folder, name, change):
    run(name, checkpoint=folder)
    before = digest(folder)
    with pytest.raises(StaleStoreError, match="sample .by sample_size and random_state. was"):
        run(name, checkpoint=folder, **change)
    assert digest(folder) == before


# What silchunk did not make.


def user_folder(path):
    path.mkdir()
    (path / "notes.txt").write_text("mine")


def user_file(path):
    path.write_text("mine")


def other_journal(path):
    path.mkdir()
    (path / JOURNAL).write_text("mine\n")


def distance_store(path):
    build_distances(X, path)


def link(path):
    silhouette_bounds(X, checkpoint=path.with_name("real"))
    path.symlink_to("real")


def broken_link(path):
    path.symlink_to("nowhere")


def sentinel(path):
    silhouette_bounds(X, checkpoint=path)
    (path / "notes.txt").write_text("mine")


def sentinel_of_a_like_name(path):
    silhouette_bounds(X, checkpoint=path)
    (path / "panel-0000000.npz.mine").write_text("mine")


FOREIGN = {
    user_folder: "is not the checkpoint of a silchunk job",
    os.mkdir: "is not the checkpoint of a silchunk job",
    user_file: "is not the checkpoint of a silchunk job",
    other_journal: "is not the checkpoint of a silchunk job",
    distance_store: "is not the checkpoint of a silchunk job",
    link: "is a symbolic link; give the folder it points to",
    broken_link: "is a symbolic link",
    sentinel: "it holds notes.txt. It is left as it is",
    sentinel_of_a_like_name: "it holds panel-0000000.npz.mine",
}


@pytest.mark.parametrize("occupy", FOREIGN, ids=lambda occupy: occupy.__name__)
def test_nothing_foreign_is_harmed(tmp_path, folder, computed, occupy):
    occupy(folder)
    computed.clear()
    before = digest(tmp_path)
    with pytest.raises(ForeignStoreError, match=FOREIGN[occupy]):
        run("bounds", checkpoint=folder)
    assert digest(tmp_path) == before
    assert computed == []


def test_what_appears_meanwhile_is_left_alone(folder, monkeypatch):
    from silchunk import journal

    create = journal.create

    def create_late(*arguments):
        create(*arguments)
        user_folder(folder)

    monkeypatch.setattr(journal, "create", create_late)
    with pytest.raises(ForeignStoreError, match="came into being meanwhile"):
        run("bounds", checkpoint=folder)
    assert [path.name for path in folder.parent.rglob("*")] == ["job", "notes.txt"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no/where/job", "there is no folder '.*no/where' to make job in"),
        ("s3://a/b", "in a folder"),
    ],
)
def test_places_where_no_checkpoint_can_be(tmp_path, monkeypatch, computed, path, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        run("bounds", checkpoint=path)
    assert computed == []
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_is_no_store(folder):
    silhouette_bounds(X, checkpoint=folder)
    before = digest(folder)
    for overwrite in (False, True):
        with pytest.raises(ForeignStoreError, match="is not a silchunk distance store"):
            build_distances(X, folder, overwrite=overwrite)
    assert digest(folder) == before


# Damage.


def flip(file, position):
    data = bytearray(file.read_bytes())
    data[position] ^= 0x10
    file.write_bytes(data)


def swap(one, other):
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


DAMAGE = {
    "truncated": (lambda files: os.truncate(files[1], 100), {1}),
    "emptied": (lambda files: os.truncate(files[1], 0), {1}),
    "cut by a byte": (lambda files: os.truncate(files[1], files[1].stat().st_size - 1), {1}),
    "first byte": (lambda files: flip(files[1], 0), {1}),
    "middle byte": (lambda files: flip(files[1], files[1].stat().st_size // 2), {1}),
    "last byte": (lambda files: flip(files[1], -1), {1}),
    "appended to": (lambda files: files[1].write_bytes(files[1].read_bytes() + b"x"), {1}),
    "deleted": (lambda files: files[1].unlink(), {1}),
    "swapped": (lambda files: swap(files[1], files[0]), {0, 1}),
    "copied from another": (lambda files: files[1].write_bytes(files[0].read_bytes()), {1}),
    "all deleted": (lambda files: [file.unlink() for file in files], None),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("name", ["bounds and sizes", "many samples"])
def test_damaged_panels_are_computed_again(folder, computed, caplog, damage, finished, name):
    expected = run(name)
    whole = list(computed)
    done = 5 if finished else 3
    if finished:
        run(name, checkpoint=folder)
    else:
        fail_after(3, computed, name, folder)
    harm, damaged = DAMAGE[damage]
    harm(panel_files(folder))
    damaged = set(range(done)) if damaged is None else damaged
    computed.clear()
    with caplog.at_level(logging.WARNING, "silchunk"):
        assert run(name, checkpoint=folder) == expected
    assert sorted(computed) == [whole[i] for i in sorted(damaged | set(range(done, 5)))]
    found = re.findall(r"panel-(\d+)\.npz is damaged; its panel is computed again", caplog.text)
    assert sorted(map(int, found)) == sorted(damaged)
    computed.clear()
    assert run(name, checkpoint=folder) == expected
    assert computed == [], "what was damaged is whole again"


def another_jobs_panel(folder):
    other = folder.with_name("other")
    run("bounds", checkpoint=other)
    panel_files(folder)[2].write_bytes(panel_files(other)[2].read_bytes())


def test_a_panel_of_another_checkpoint_is_not_taken(folder, computed):
    expected = run("bounds, certified")
    run("bounds, certified", checkpoint=folder)
    another_jobs_panel(folder)
    computed.clear()
    assert run("bounds, certified", checkpoint=folder) == expected
    assert computed == [(128, 192)]


TEARS = {
    "half a record": (lambda text: text[:-20], {4}),
    "no end of line": (lambda text: text[:-1], {4}),
    "a few bytes more": (lambda text: text + b'{"pan', set()),
    "many bytes more": (lambda text: text + bytes(5000), set()),
    "a record of another journal": (
        lambda text: text + b'{"bytes": 1, "crc32c": 1, "panel": 0} 00000000\n',
        set(),
    ),
    "a byte of the third record": (
        lambda text: text.replace(b'"panel": 2', b'"panel": 3'),
        {2},
    ),
    "the header alone": (lambda text: text[: text.index(b"\n") + 1], {0, 1, 2, 3, 4}),
    "records in another order": (
        lambda text: b"".join([text.splitlines(True)[0], *reversed(text.splitlines(True)[1:])]),
        set(),
    ),
}


@pytest.mark.parametrize("tear", TEARS)
def test_a_torn_journal(folder, computed, tear):
    expected = run("bounds")
    whole = list(computed)
    run("bounds", checkpoint=folder)
    change, lost = TEARS[tear]
    before = (folder / JOURNAL).read_bytes()
    (folder / JOURNAL).write_bytes(change(before))
    assert (folder / JOURNAL).read_bytes() != before
    computed.clear()
    assert run("bounds", checkpoint=folder) == expected
    assert computed == [whole[i] for i in sorted(lost)]
    assert recorded(folder) == {0, 1, 2, 3, 4}


def test_a_journal_without_its_header_is_left_alone(folder):
    run("bounds", checkpoint=folder)
    flip(folder / JOURNAL, 20)
    before = digest(folder)
    with pytest.raises(ForeignStoreError, match="is not the checkpoint of a silchunk job"):
        run("bounds", checkpoint=folder)
    assert digest(folder) == before


def test_leftover_parts_are_no_obstacle(folder, computed):
    expected = run("bounds")
    fail_after(2, computed, "bounds", folder)
    (folder / "panel-0000002.npz.part").write_bytes(b"half")
    (folder / f"{JOURNAL}.part").write_bytes(b"half")
    assert run("bounds", checkpoint=folder) == expected
    assert not list(folder.glob("*.part"))


HOLD = """
import fcntl, os, sys
folder = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(folder, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_one_process_at_a_time(folder, computed):
    expected = run("bounds")
    fail_after(2, computed, "bounds", folder)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "held\n"
        before = digest(folder)
        with pytest.raises(StoreInUseError, match="by another process; wait for it to end"):
            run("bounds", checkpoint=folder)
        assert digest(folder) == before
        assert computed == []
    finally:
        holder.communicate(timeout=60)
    assert run("bounds", checkpoint=folder) == expected


# Full disks.


@pytest.mark.parametrize("call", range(1, 9))
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_a_pause(folder, computed, monkeypatch, call, code):
    """Whichever file there is no room for: the new journal, a panel, or its record."""
    expected = run("bounds")
    calls = []
    sync = os.fsync

    def fsync(file):
        calls.append(file)
        if len(calls) == call:
            raise OSError(code, os.strerror(code))
        sync(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(DiskFullError, match=r"no room to write [\d,]+ bytes to .*job"):
            run("bounds", checkpoint=folder)
    assert not list(folder.parent.glob(".*.tmp"))
    kept = recorded_or_none(folder)
    computed.clear()
    assert run("bounds", checkpoint=folder) == expected
    assert len(computed) == 5 - len(kept)
    assert not list(folder.glob("*.part"))


LIMITED = """
import resource, sys
import numpy as np
from silchunk import DiskFullError, plan, silhouette_bounds
plan.PREFERRED_PANEL_ROWS = 64
silhouette_bounds(np.load("x.npy"), scheduler="synchronous")  # kernels are kept in files, too
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
try:
    silhouette_bounds(np.load("x.npy"), checkpoint="job", scheduler="synchronous")
except DiskFullError as error:
    print(error)
"""


@pytest.mark.parametrize(("limit", "written"), [(200, "job"), (1400, r"job/panel-0000000\.npz")])
def test_files_that_must_not_grow(tmp_path, folder, limit, written):
    np.save(tmp_path / "x.npy", X)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(limit)],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert re.search(rf"no room to write [\d,]+ bytes to .*{written} ", done.stdout)
    assert "run the same again: it goes on" in done.stdout
    assert run("bounds", checkpoint=folder) == run("bounds")
    assert not list(tmp_path.rglob("*.part"))
