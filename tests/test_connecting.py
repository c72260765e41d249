"""Where a command computes: schedulers by address or by file, processes and threads of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading

import dask
import numpy as np
import pytest
from typer.testing import CliRunner

from silchunk import ClusterError, InputError, StoppedError, engine, stopping
from silchunk.cli.base import BAD_INPUT, FAILED, PAUSED, app
from silchunk.cli.execution import parsed_seconds
from silchunk.engine import connecting, executor
from silchunk.engine.connecting import connected
from silchunk.stopping import stop_on_signals, stop_requested

MINUTE, HOUR, DAY = 60, 3600, 86_400


@pytest.fixture
def soon():
    """Schedulers are not waited for for long."""
    with dask.config.set({"silchunk.lost-timeout": "300 ms"}):
        yield


@pytest.fixture
def closed_port():
    """A port that nobody listens at, and nobody else gets meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def enter(**options):
    with connected(**options):
        pass


# Time limits.


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("2.5", 2.5),
        ("45s", 45),
        ("55m", 55 * MINUTE),
        ("0.5h", 30 * MINUTE),
        ("1h30m", 90 * MINUTE),
        ("1d2h3m4s", DAY + 2 * HOUR + 3 * MINUTE + 4),
        ("1:30:00", 90 * MINUTE),
        ("00:00:07", 7),
        ("1-12:00:00", DAY + 12 * HOUR),
    ],
)
def test_times_are_read_as_batch_systems_and_people_write_them(text, seconds):
    assert parsed_seconds(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "0m",
        "00:00:00",
        "-5",
        "5 m",
        "m",
        "1h-",
        "soon",
        "nan",
        "1e3",
        "1.5:00:00",
        "55:00",
    ],
)
def test_other_times_are_refused(text):
    with pytest.raises(InputError, match="--time-limit takes a time such as 55m"):
        parsed_seconds(text)


def test_a_time_limit_stops_no_later_job():
    with stop_on_signals(time_limit=0.01):
        until = threading.Event()
        while not stop_requested.is_set():
            until.wait(0.01)
    assert not stop_requested.is_set()
    with stop_on_signals(time_limit=600):
        pass
    assert not [one for one in threading.enumerate() if isinstance(one, threading.Timer)]


def test_handlers_are_as_before_afterwards():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    before = [signal.getsignal(number) for number in numbers]
    with stop_on_signals():
        assert [signal.getsignal(number) for number in numbers] != before
    assert [signal.getsignal(number) for number in numbers] == before


def test_a_signal_may_come_while_another_is_handled(monkeypatch):
    """The flag has no lock that the second would wait for."""
    handled = []

    class Log:
        def warning(self, text, name):
            handled.append(name)
            if name == "SIGTERM":
                signal.raise_signal(signal.SIGUSR1)
                raise RuntimeError("reentrant call")  # as a stream does that is in use

    monkeypatch.setattr(stopping, "log", Log())
    with stop_on_signals():
        signal.raise_signal(signal.SIGTERM)
        assert stop_requested.is_set()
    assert handled == ["SIGTERM", "SIGUSR1"]


@pytest.mark.parametrize(
    "options",
    [
        {"address": "tcp://127.0.0.1:8786", "workers": 2},
        {"address": "tcp://127.0.0.1:8786", "scheduler_file": "s.json"},
        {"scheduler_file": "s.json", "workers": 2},
    ],
)
def test_two_places_are_refused(options):
    with pytest.raises(InputError, match="name one of scheduler, scheduler file and workers"):
        enter(**options)


@pytest.mark.parametrize("place", ["address", "scheduler_file"])
def test_threads_are_those_of_the_scheduler(place):
    with pytest.raises(InputError, match="threads are those of the workers"):
        enter(**{place: "tcp://127.0.0.1:8786"}, threads=2)


def test_threads_of_this_process_are_set_for_the_length_of_it():
    before = executor().concurrency
    with connected(threads=before + 3):
        assert executor().concurrency == before + 3
        assert executor().client is None
    assert executor().concurrency == before


# Schedulers that run.


@pytest.mark.parametrize("address", ["", "localhost", "127.0.0.1:8786", "tcp://host", "tcp://:x"])
def test_addresses_are_of_one_form(address):
    with pytest.raises(InputError, match="a scheduler is at tcp://host:8786"):
        enter(address=address)


@pytest.mark.cluster
def test_a_scheduler_is_reached_by_its_address(client):
    with connected(address=client.scheduler.address):
        assert executor().processes == 2
        assert executor().client is not client
    assert executor().client is None
    assert client.status == "running"


@pytest.mark.cluster
def test_a_scheduler_is_reached_by_its_file_that_comes_late(client, tmp_path):
    file = tmp_path / "scheduler.json"

    def write():
        for text in ("", '{"address"', json.dumps({"address": client.scheduler.address})):
            threading.Event().wait(0.3)
            file.write_text(text)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with connected(scheduler_file=file):
            assert executor().processes == 2
    finally:
        writer.join()


def test_nobody_at_an_address_is_an_error(soon, closed_port):
    address = f"tcp://127.0.0.1:{closed_port}"
    with pytest.raises(ClusterError, match=f"no scheduler answers at {address} within 0.3 seconds"):
        enter(address=address)


def test_a_file_that_does_not_come_is_an_error(soon, tmp_path):
    with pytest.raises(ClusterError, match="none.json does not exist after 0.3 seconds. Start the"):
        enter(scheduler_file=tmp_path / "none.json")


@pytest.mark.parametrize("text", ["", "{}", "[1]", "no JSON"])
def test_a_file_without_an_address_is_an_error(text, soon, tmp_path):
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(ClusterError, match="s.json holds no scheduler address after 0.3 seconds"):
        enter(scheduler_file=tmp_path / "s.json")


def test_who_waits_for_a_scheduler_may_be_stopped(tmp_path):
    clock = threading.Timer(0.3, stop_requested.set)
    clock.start()
    try:
        with pytest.raises(StoppedError, match="stopped as asked, waiting for a scheduler"):
            enter(scheduler_file=tmp_path / "none.json")
    finally:
        clock.join()
        stop_requested.clear()


@pytest.mark.parametrize("setting", ["soon", "3 parsecs", [], {}])
def test_a_setting_that_is_no_time_is_named(setting, tmp_path):
    with (
        dask.config.set({"silchunk.lost-timeout": setting}),
        pytest.raises(InputError, match='silchunk.lost-timeout is a time such as "10 minutes"'),
    ):
        enter(scheduler_file=tmp_path / "none.json")


# Processes of its own.


@pytest.mark.cluster
@pytest.mark.slow
def test_processes_are_started_and_ended():
    with connected(workers=2, threads=3):
        where = executor()
        assert (where.processes, where.concurrency) == (2, 3)
        assert where.memory_bytes == connecting.machine.memory_limit() // 2
        pids = list(where.client.run(os.getpid).values())
        assert len({os.getpid(), *pids}) == 3
        ignored = where.client.run(signal.getsignal, signal.SIGINT)
        assert list(ignored.values()) == [signal.SIG_IGN] * 2
    assert executor().client is None
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]


@pytest.mark.cluster
@pytest.mark.slow
def test_several_commands_on_one_machine_do_not_meet(recwarn):
    """Of Dask's default port for a dashboard there is one."""
    with connected(workers=1, threads=1), connected(workers=1, threads=1):
        assert executor().processes == 1
    assert not [one for one in recwarn if "already in use" in str(one.message)]


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.random.default_rng(0).standard_normal((120, 3)))

    def invoke(*arguments, code):
        result = CliRunner().invoke(app, ["bound", "x.npy", *arguments])
        assert result.exit_code == code, result.output
        return result.output

    return invoke


def test_options_name_one_place(run):
    said = run("--scheduler", "tcp://127.0.0.1:8786", "--workers", "2", code=BAD_INPUT)
    assert "name one of" in said
    assert "got 'nowhere'" in run("--scheduler", "nowhere", code=BAD_INPUT)


def test_a_scheduler_file_that_does_not_come_fails(run, soon):
    assert "none.json does not exist" in run("--scheduler-file", "none.json", code=FAILED)


def test_threads_are_an_option(run, monkeypatch):
    seen = []
    map_panels = engine.map_panels

    def watched(*arguments, where, **options):
        seen.append(where.concurrency)
        map_panels(*arguments, where=where, **options)

    monkeypatch.setattr(engine, "map_panels", watched)
    with dask.config.set(num_workers=1):
        run("--threads", "3", code=0)
        assert set(seen) == {3}
        seen.clear()
        run(code=0)
        assert set(seen) == {1}


STOPPED = """
from silchunk import stopping
from silchunk.cli import app

stopping.stop_requested.is_set = lambda: True
app(["bound", "x.npy"])
"""


def test_a_command_that_records_nothing_begins_anew(run, tmp_path):
    command = [sys.executable, "-c", STOPPED]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == PAUSED
    assert "This command has recorded nothing, so the same command begins anew" in done.stderr
