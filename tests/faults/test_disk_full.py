"""Disks that are full or may not be written to, where workers do the writing."""

from __future__ import annotations

import re
import subprocess
from contextlib import contextmanager, suppress

import numpy as np
import pytest
from drills import Begun, ended, processes, recorded, wait_until

import silchunk

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

X = np.random.default_rng(5).standard_normal((2000, 5)).astype(np.float32)
CANNOT_WRITE = 73


@contextmanager
def small_disk(folder, size):
    """A file system of so many bytes."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(reason=f"to mount a file system is not permitted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def take_all(file):
    """Write until there is no room."""
    with file.open("wb", buffering=0) as stream, suppress(OSError):
        while stream.write(bytes(1 << 20)):
            pass


@pytest.fixture
def expected(tmp_path):
    np.save(tmp_path / "x.npy", X)
    return silchunk.build_distances(X, tmp_path / "undisturbed.zarr").rows(0, len(X)).tobytes()


def check_done(process, store, expected):
    code, output = ended(process)
    assert code == 0, output
    D = silchunk.open_distances(store)
    assert D.verify().ok
    assert D.rows(0, len(X)).tobytes() == expected
    assert not list(store.rglob("*.part"))


def test_a_disk_that_gets_full_is_a_pause(tmp_path, expected):
    begun = Begun(tmp_path)
    build = ("distances", "x.npy", "disk/d.zarr")
    slowly = {"DASK_DISTRIBUTED__WORKER__PRELOAD": repr([str(begun.preload)])}
    # Room for all of it, until somebody else takes it.
    with small_disk(tmp_path / "disk", 64 << 20) as disk, processes(tmp_path, **slowly) as started:
        store = disk / "d.zarr"
        command = started.silchunk(*build, "--workers", "2", "--threads", "1")
        wait_until(lambda: store.exists() and recorded(store) >= 2, "two records")
        take_all(disk / "others")
        code, output = ended(command)
        assert code == CANNOT_WRITE, output
        assert re.search(r"no room to write [\d,]+ bytes to .*d.zarr", output)
        assert "bytes free on that disk). Make room, then run the same again" in output
        kept = recorded(store)
        assert kept >= 2
        (disk / "others").unlink()
        check_done(started.silchunk(*build), store, expected)


def test_a_quota_on_files_is_a_pause(tmp_path, expected):
    """The limit holds for workers alone: they write the panels."""
    limit = tmp_path / "limit.py"
    limit.write_text(
        "import resource\n"
        "def dask_setup(worker):\n"
        "    most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, most))\n"
    )
    build = ("distances", "x.npy", "d.zarr")
    limited = {"DASK_DISTRIBUTED__WORKER__PRELOAD": repr([str(limit)])}
    with processes(tmp_path, **limited) as started:
        code, output = ended(started.silchunk(*build, "--workers", "1"))
        assert code == CANNOT_WRITE, output
        assert re.search(r"no room to write [\d,]+ bytes to .*d.zarr.*File too large", output)
        check_done(started.silchunk(*build), tmp_path / "d.zarr", expected)


def test_a_disk_that_is_read_only_is_an_error_and_loses_nothing(tmp_path, expected):
    begun = Begun(tmp_path)
    build = ("distances", "x.npy", "disk/d.zarr")
    slowly = {"DASK_DISTRIBUTED__WORKER__PRELOAD": repr([str(begun.preload)])}
    with small_disk(tmp_path / "disk", 64 << 20) as disk, processes(tmp_path, **slowly) as started:
        store = disk / "d.zarr"

        def remount(how):
            subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)

        command = started.silchunk(*build, "--workers", "2", "--threads", "1")
        wait_until(lambda: store.exists() and recorded(store) >= 2, "two records")
        command.send_signal(15)
        assert ended(command)[0] == 75
        kept = (store / "silchunk-journal.jsonl").read_bytes()
        remount("ro")
        for again in (build, ("distances", "x.npy", "disk/new.zarr")):
            code, output = ended(started.silchunk(*again, "--workers", "1"))
            assert code == CANNOT_WRITE, output
            assert "Read-only file system" in output
            assert str(disk) in output
            assert "Traceback" not in output
        assert (store / "silchunk-journal.jsonl").read_bytes() == kept
        remount("rw")
        check_done(started.silchunk(*build), store, expected)
