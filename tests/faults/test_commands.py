"""Commands with workers that are paused, interrupted or killed: nothing stays behind, and the same
command goes on."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
from drills import Begun, ended, processes, recorded, session, wait_until

import silchunk

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

X = np.random.default_rng(5).standard_normal((2000, 5)).astype(np.float32)
DISTANCES = ("distances", "x.npy", "d.zarr")
OWN = ("--workers", "2", "--threads", "1")
PAUSED = 75


@pytest.fixture
def begun(tmp_path):
    return Begun(tmp_path)


@pytest.fixture
def started(tmp_path, begun):
    np.save(tmp_path / "x.npy", X)
    with processes(tmp_path, DASK_DISTRIBUTED__WORKER__PRELOAD=repr([str(begun.preload)])) as all_:
        yield all_


@pytest.fixture
def expected(tmp_path):
    return silchunk.build_distances(X, tmp_path / "undisturbed.zarr").rows(0, len(X)).tobytes()


def whole(store):
    return silchunk.open_distances(store).rows(0, len(X)).tobytes()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_all_processes_pauses_a_command(number, started, begun, expected, tmp_path):
    """As a terminal sends one, or a batch system."""
    command = started.silchunk(*DISTANCES, *OWN)
    begun.wait_for(4)
    assert len(session(command.pid)) >= 3, "the workers were to be among them"
    os.killpg(command.pid, number)
    code, output = ended(command)
    assert code == PAUSED, output
    assert "Run the same again to go on" in output
    assert "Traceback" not in output
    if number != signal.SIGTERM:  # by which Dask ends workers
        assert "after the panels under way" in output
        assert recorded(tmp_path / "d.zarr") >= 3
    code, output = ended(started.silchunk(*DISTANCES))
    assert code == 0, output
    assert whole(tmp_path / "d.zarr") == expected


def test_a_time_limit_pauses_a_command(started, begun, expected, tmp_path):
    begun.preload.write_text(begun.preload.read_text().replace("sleep(0.2)", "sleep(2)"))
    code, output = ended(started.silchunk(*DISTANCES, *OWN, "--time-limit", "6s"))
    assert code == PAUSED, output
    assert "the time limit is reached" in output
    code, output = ended(started.silchunk(*DISTANCES))
    assert code == 0, output
    assert whole(tmp_path / "d.zarr") == expected


def test_two_interrupts_end_at_once_what_goes_on_later(started, begun, expected, tmp_path):
    command = started.silchunk(*DISTANCES, *OWN)
    begun.wait_for(4)
    os.killpg(command.pid, signal.SIGINT)
    wait_until(lambda: "ending after the panels" in command.log.read_text(), "the first to arrive")
    os.killpg(command.pid, signal.SIGINT)
    code, output = ended(command)
    assert code in (PAUSED, 130), output
    code, output = ended(started.silchunk(*DISTANCES))
    assert code == 0, output
    assert whole(tmp_path / "d.zarr") == expected


def test_workers_of_a_command_that_is_killed_end_too(started, begun, expected, tmp_path):
    command = started.silchunk(*DISTANCES, *OWN)
    begun.wait_for(4)
    command.send_signal(signal.SIGKILL)
    assert ended(command)[0] == -signal.SIGKILL
    code, output = ended(started.silchunk(*DISTANCES))
    assert code == 0, output
    assert whole(tmp_path / "d.zarr") == expected


def test_a_command_that_is_killed_goes_on_with_the_same_cluster(started, begun, expected, tmp_path):
    """Whose workers still run what the command before had sent."""
    started.scheduler()
    for _ in range(2):
        started.worker()
    command = started.silchunk(*DISTANCES, "--scheduler-file", "scheduler.json")
    begun.wait_for(4)
    command.send_signal(signal.SIGKILL)
    command.wait()
    again = started.silchunk(*DISTANCES, "--scheduler-file", "scheduler.json")
    code, output = ended(again)
    assert code == 0, output
    assert whole(tmp_path / "d.zarr") == expected


FIT = ("cluster", "x.npy", "-k", "6", "--random-state", "0", "--max-iter", "10")


def test_a_fit_that_is_killed_with_its_cluster_goes_on(started, begun, tmp_path):
    undisturbed = started.silchunk(*FIT, "--output", "whole.npy")
    code, output = ended(undisturbed)
    assert code == 0, output
    started.scheduler()
    worker = started.worker()
    fit = (*FIT, "--checkpoint", "fit", "--output", "labels.npy")
    command = started.silchunk(*fit, "--scheduler-file", "scheduler.json")
    wait_until((tmp_path / "fit").exists, "a checkpoint")
    begun.wait_for(1)
    for process in (command, worker):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert not (tmp_path / "labels.npy").exists()
    code, output = ended(started.silchunk(*fit, *OWN))
    assert code == 0, output
    assert (tmp_path / "labels.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
