"""Tasks on their way to workers."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import numpy as np
import pytest

from silchunk import parcel

LARGE = np.arange(1000.0)


@dataclass(frozen=True)
class Task:
    parts: dict
    factor: float

    def __call__(self, start, stop):
        return self.factor * self.parts["x"][start:stop].sum(), self


@pytest.fixture(autouse=True)
def forgotten():
    yield
    parcel.forget()


def sent(task, folder):
    return pickle.loads(pickle.dumps(parcel.packed(task, folder)))


def test_a_task_arrives_as_it_was(tmp_path):
    fortran = np.asfortranarray(LARGE.reshape(20, 50))
    task = Task({"x": LARGE, "some": LARGE[::2], "fortran": fortran, "name": "a"}, 2.0)
    result, arrived = sent(task, tmp_path)(3, 7)
    assert result == 2 * (3 + 4 + 5 + 6)
    assert arrived.parts.keys() == task.parts.keys()
    for name in ("x", "some", "fortran"):
        assert np.array_equal(arrived.parts[name], task.parts[name])
        assert np.isfortran(arrived.parts[name]) == np.isfortran(task.parts[name])
        assert not arrived.parts[name].flags.writeable


def test_arrays_lie_in_files_once_each_and_small_ones_travel(tmp_path):
    small = LARGE[:10].copy()
    task = Task({"x": LARGE, "again": LARGE, "small": small, "objects": np.array([None] * 500)}, 1)
    box = parcel.packed(task, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["0.npy"]
    assert np.array_equal(np.load(tmp_path / "0.npy"), LARGE)
    assert len(pickle.dumps(box)) < LARGE.nbytes
    _, arrived = box(0, 1)
    assert arrived.parts["again"] is arrived.parts["x"]
    assert np.array_equal(arrived.parts["small"], small)


def test_functions_of_a_main_program_travel_too(tmp_path):
    weights = np.arange(500.0)
    assert sent(lambda start, stop: weights[start:stop].sum(), tmp_path)(1, 4) == 1 + 2 + 3


def test_a_process_unpacks_once_until_it_forgets(tmp_path):
    box = sent(Task({"x": LARGE}, 1.0), tmp_path)
    assert box(0, 1)[1] is box(1, 2)[1]
    other = sent(Task({"x": -LARGE}, 1.0), tmp_path)
    assert other(1, 2)[0] == -1
    first = box(0, 1)[1]
    parcel.forget()
    (tmp_path / "0.npy").unlink()
    with pytest.raises(FileNotFoundError, match=r"0\.npy"):
        box(0, 1)
    assert first.parts["x"] is not None


def test_a_file_that_cannot_be_read_for_a_moment_is_tried_again(tmp_path, monkeypatch):
    box = sent(Task({"x": LARGE}, 1.0), tmp_path)
    load, failures = np.load, [OSError(116, "Stale file handle")] * 2

    def blinking(*given, **options):
        if failures:
            raise failures.pop()
        return load(*given, **options)

    monkeypatch.setattr(np, "load", blinking)
    assert box(3, 5)[0] == 3 + 4
    assert not failures
