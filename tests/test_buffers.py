"""Pages that are kept between tasks: what the system is asked for, counted."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest

from silchunk import buffers

# A mebibyte is 256 pages.
FAULTS = """
import json, resource
import numpy as np
from silchunk import buffers

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        np.ones(1 << 17)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

found = [faults()]
buffers.keep_pages()
buffers.keep_pages()
faults()
found.append(faults())
buffers.drop()
found.append(faults())
print(json.dumps(found))
"""

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="another C library has no such thresholds"
)


def counted(script=FAULTS, **environment):
    others = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**others, **environment},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return json.loads(done.stdout)


def test_pages_are_kept_where_dask_has_them_given_back_and_only_until_then():
    before, kept, after = counted(MALLOC_TRIM_THRESHOLD_="65536")
    assert before > 20_000
    assert kept < 1_000
    assert after > 20_000


def test_what_nobody_has_set_is_left_alone(monkeypatch):
    monkeypatch.delenv(buffers.TRIM_VARIABLE, raising=False)
    called = []
    monkeypatch.setattr(buffers, "_set_thresholds", lambda *_: called.append(1))
    buffers.keep_pages()
    buffers.drop()
    assert not called


def test_a_threshold_of_ones_own_is_set_again():
    before, kept, after = counted(
        MALLOC_TRIM_THRESHOLD_="65536", MALLOC_MMAP_THRESHOLD_=str(16 << 20)
    )
    assert kept < 1_000
    # Below that threshold, and above the heap's end: trimmed, as before.
    assert abs(after - before) < 5_000


MANY = """
import resource
import numpy as np
from silchunk import buffers

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        some = [np.ones(1 << 17) for _ in range(8)]
        del some
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
found = [faults()]
buffers.raise_thresholds()
faults()
found.append(faults())
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print([*found, int(peak) >> 10])
"""


def test_thresholds_do_not_depend_on_what_was_freed_before():
    before, after, peak = counted(MANY)
    assert before > 10_000  # twice the largest array that was freed is kept: two of eight
    assert after < 1_000
    assert peak < 60  # MiB, with NumPy and Dask


def test_thresholds_that_somebody_has_set_stay():
    before, after, _ = counted(MANY, MALLOC_TRIM_THRESHOLD_="65536")
    assert before > 10_000
    assert abs(after - before) < 1_000
