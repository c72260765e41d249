"""Checkpoints that are damaged, torn or cut short by a full disk: no bit is taken on trust."""

from __future__ import annotations

import errno
import logging
import os
import re
import subprocess
import sys

import checkpoint_inputs
import numpy as np
import pytest
from checkpoint_inputs import (
    JOURNAL,
    X,
    digest,
    fail_after,
    panel_files,
    recorded,
    recorded_or_none,
    run,
)

from silchunk import DiskFullError, ForeignStoreError

# pytest looks for fixtures among the names of a module.
short_panels = checkpoint_inputs.short_panels
computed = checkpoint_inputs.computed
folder = checkpoint_inputs.folder


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
