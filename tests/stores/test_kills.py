"""Kills, damage and full disks: nothing wrong is ever read, and every build can go on."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from store_inputs import X, content, flip, shards, swap

from silchunk import (
    DamagedStoreError,
    StoreError,
    UnsealedStoreError,
    build_distances,
    engine,
    open_distances,
    storage,
    verify_distances,
)

BUILD = """
import sys, time
import numpy as np
from silchunk import build_distances, symmetric

read = symmetric.SymmetricPanels.read

def counted(self, start, stop, out):
    with open(sys.argv[3], "a") as log:
        log.write(f"{start}\\n")
    time.sleep(0.03)
    read(self, start, stop, out)

symmetric.SymmetricPanels.read = counted
X = np.load(sys.argv[1])
print("begin", flush=True)
build_distances(X, sys.argv[2])
print("done", flush=True)
"""


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path):
    rng = random.Random(0)
    points = np.random.default_rng(0).standard_normal((12_000, 6)).astype(np.float32)
    np.save(tmp_path / "x.npy", points)
    log = tmp_path / "computed.txt"
    arguments = [sys.executable, "-c", BUILD, "x.npy", "d.zarr", "computed.txt"]
    kills = wanted = 25
    panels, at_once = None, os.cpu_count() or 1
    for attempt in range(wanted + 40):
        process = subprocess.Popen(arguments, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "begin\n"
        if attempt < wanted:
            time.sleep(rng.uniform(0.0, 0.12))
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=60)
            if (tmp_path / "d.zarr").exists():
                with pytest.raises((UnsealedStoreError, StoreError)):
                    open_distances(tmp_path / "d.zarr")
        else:
            assert process.communicate(timeout=300)[0] == "done\n"
            break
    D = open_distances(tmp_path / "d.zarr")
    panels = D.layout.n_panels
    assert D.verify().ok
    computed = len(log.read_text().splitlines())
    assert panels <= computed <= panels + kills * at_once
    build_distances(points, tmp_path / "undisturbed.zarr", memory="4GiB")
    undisturbed = open_distances(tmp_path / "undisturbed.zarr")
    if undisturbed.layout == D.layout:
        assert content(tmp_path / "d.zarr") == content(tmp_path / "undisturbed.zarr")
    step = 1024
    for i in range(0, 12_000, step):
        j = min(12_000, i + step)
        assert np.array_equal(D.rows(i, j), undisturbed.rows(i, j))
    # A kill while the empty store is made may leave that under its temporary name, and no more.
    assert not any(shards(folder) for folder in tmp_path.glob(".*.tmp"))
    assert not list((tmp_path / "d.zarr").rglob("*.part"))


@pytest.mark.parametrize("metric", ["euclidean", "canberra"])
def test_a_panel_that_is_recorded_is_not_computed_again(tmp_path, metric, monkeypatch):
    """A cluster may run a task once more than it is asked to."""
    tasks = []
    map_panels = engine.map_panels

    def watched(task, panels, *rest, **options):
        tasks.append((task, list(panels)))
        map_panels(task, panels, *rest, **options)

    monkeypatch.setattr(engine, "map_panels", watched)
    D = build_distances(X, tmp_path / "d.zarr", metric=metric)
    task, panels = tasks[-1]
    records = storage.read_journal(tmp_path / "d.zarr")
    read = []
    monkeypatch.setattr(type(task.panels), "read", lambda self, *rest: read.append(rest))
    for start, stop in panels:
        panel = start // D.layout.panel_rows
        assert task(start, stop) == records.panels[panel]
        assert not read
    start, stop = panels[0]
    file = storage.shard_file(tmp_path / "d.zarr", 0)
    content = file.read_bytes()
    for damaged in (content[:-1], content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]):
        file.write_bytes(damaged)
        read.clear()
        task(start, stop)
        assert len(read) == 1, "what is damaged is no record's panel"


LIMITED = """
import resource, sys
import numpy as np
from silchunk import DiskFullError, build_distances
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    build_distances(np.load("x.npy"), "d.zarr", **eval(sys.argv[1]))
except DiskFullError as error:
    print(error)
"""


@pytest.mark.parametrize("options", [{}, {"metric": "canberra"}])
@pytest.mark.parametrize("limit", [200, 9_000, 60_000])
def test_a_full_disk_is_a_pause(tmp_path, options, limit):
    np.save(tmp_path / "x.npy", X)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, repr(options), str(limit)],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert re.search(r"no room to write [\d,]+ bytes to .*d.zarr.*run the same again", done.stdout)
    assert "bytes free on that disk" in done.stdout
    D = build_distances(tmp_path / "x.npy", tmp_path / "d.zarr", **options)
    assert D.verify().ok
    assert not list(tmp_path.rglob("*.part"))


class StoreMachine(RuleBasedStateMachine):
    """Build, kill, corrupt, delete, resume, verify, in any order: never a wrong value."""

    @initialize(metric=st.sampled_from(["euclidean", "manhattan", "canberra"]))
    def begin(self, metric):
        import tempfile
        from pathlib import Path

        self.folder = Path(tempfile.mkdtemp(prefix="silchunk-test-"))
        self.metric = metric
        self.path = self.folder / "d.zarr"
        self.n = 200
        reference = build_distances(X[: self.n], self.folder / "reference", metric=metric)
        self.expected = reference.rows(0, self.n)

    def build(self, **options):
        return build_distances(
            X[: self.n], self.path, metric=self.metric, scheduler="sync", **options
        )

    @rule()
    def finish(self):
        try:
            D = self.build()
        except DamagedStoreError:
            return
        if verify_distances(self.path).ok:
            assert np.array_equal(D.rows(0, self.n), self.expected)

    @rule(after=st.integers(1, 5))
    def kill(self, after):
        def stop(done, total):
            if done == after:
                raise KeyboardInterrupt

        try:
            self.build(progress=stop)
        except (KeyboardInterrupt, DamagedStoreError):
            return

    @rule(torn=st.binary(min_size=1, max_size=20))
    def tear_the_journal(self, torn):
        journal = self.path / "silchunk-journal.jsonl"
        if journal.exists():
            with journal.open("ab") as stream:
                stream.write(torn.replace(b"\n", b""))

    @rule(which=st.integers(0, 3), how=st.sampled_from(["flip", "delete", "truncate", "swap"]))
    def damage(self, which, how):
        files = shards(self.path) if self.path.exists() else []
        if which >= len(files):
            return
        file = files[which]
        if how == "flip":
            flip(file)
        elif how == "delete":
            file.unlink()
        elif how == "truncate":
            os.truncate(file, file.stat().st_size // 2)
        else:
            swap(file, files[-1])

    @rule()
    def flip_metadata(self):
        if (self.path / "zarr.json").exists():
            flip(self.path / "zarr.json")

    @rule()
    def repair(self):
        if not self.path.exists():
            return
        try:
            found = verify_distances(self.path, repair=True)
        except UnsealedStoreError:
            return
        assert found.ok
        assert np.array_equal(open_distances(self.path).rows(0, self.n), self.expected)

    @invariant()
    def what_is_read_is_right(self):
        if not self.path.exists():
            return
        for start in range(0, self.n, 64):
            try:
                rows = open_distances(self.path).rows(start, min(self.n, start + 64))
            except StoreError:
                continue
            assert np.array_equal(rows, self.expected[start : start + 64])

    def teardown(self):
        shutil.rmtree(self.folder, ignore_errors=True)


class TestStore(StoreMachine.TestCase):
    settings = settings(
        max_examples=25,
        stateful_step_count=12,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.slow
def test_signals_pause_a_build(tmp_path):
    np.save(tmp_path / "x.npy", X)
    code = (
        "import os, signal, sys, numpy as np\n"
        "from silchunk import StoppedError, build_distances, plan, stopping\n"
        "plan.PREFERRED_PANEL_ROWS = 64\n"
        "number = getattr(signal, sys.argv[1])\n"
        "def progress(done, total):\n"
        "    if done == 2: os.kill(os.getpid(), number)\n"
        "with stopping.stop_on_signals():\n"
        "    try: build_distances('x.npy', 'd.zarr', progress=progress, scheduler='sync')\n"
        "    except StoppedError as error: print(error)\n"
    )
    for name in ("SIGINT", "SIGTERM", "SIGUSR1"):
        done = subprocess.run(
            [sys.executable, "-c", code, name],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        assert "stopped as asked after 2 of 5 panels" in done.stdout
        with pytest.raises(UnsealedStoreError, match="2 of 5 panels"):
            open_distances(tmp_path / "d.zarr")
        assert build_distances(X, tmp_path / "d.zarr").verify().ok
        shutil.rmtree(tmp_path / "d.zarr")
