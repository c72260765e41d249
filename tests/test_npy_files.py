"""Files that several threads open at once."""

from __future__ import annotations

import gc
import sys
import threading
import time

import numpy as np
import pytest

from silchunk.npy_files import load_npy, map_npy


@pytest.fixture
def interrupted():
    """Other threads come in wherever the collector runs, as with Dask, which watches it."""

    def callback(*_):
        time.sleep(0)

    before, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.callbacks.append(callback)
    gc.set_threshold(20)
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*before)
    gc.callbacks.remove(callback)


@pytest.mark.parametrize("read", [map_npy, load_npy])
def test_many_threads_open_a_file(read, tmp_path, interrupted):
    np.save(tmp_path / "x.npy", np.arange(3.0))
    seen, failed = [], []

    def work():
        try:
            for _ in range(200):
                value = float(read(tmp_path / "x.npy").sum())
                seen.append(value)
        except SystemError as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert set(seen) == {3.0}
    assert len(seen) == 1600


def test_a_map_that_is_written_in_memory_leaves_the_file(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(3))
    copy = map_npy(tmp_path / "x.npy", "c")
    copy[1] = 5
    assert map_npy(tmp_path / "x.npy").tolist() == [0, 0, 0]
    map_npy(tmp_path / "x.npy", "r+")[2] = 7
    assert load_npy(tmp_path / "x.npy").tolist() == [0, 0, 7]
