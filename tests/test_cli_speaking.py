"""What commands say beside their results, and how they end."""

from __future__ import annotations

import json
import logging
import os
import shlex
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

import silchunk
from silchunk import bounds, progress
from silchunk.cli.base import BAD_INPUT, FAILED, OVER_BUDGET, PAUSED, STOPPED, app
from silchunk.cli.speaking import print_json

runner = CliRunner()
X = np.random.default_rng(0).standard_normal((120, 3))


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    np.save("labels.npy", np.arange(120) % 3)
    return "x.npy"


def run(*arguments, code=0):
    result = runner.invoke(app, [str(a) for a in arguments], prog_name="silchunk")
    assert result.exit_code == code, result.output
    return result


@pytest.mark.parametrize(
    "arguments",
    [
        ("bound", "x.npy", "--curve", "c.csv"),
        ("cluster", "x.npy", "-k", "3", "-o", "l.npy", "--centers", "c.npy"),
        ("score", "x.npy", "labels.npy", "--table", "t.zarr"),
        ("distances", "x.npy", "d.zarr"),
    ],
)
def test_quiet_commands_give_their_result_and_nothing_else(source, monkeypatch, arguments):
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    loud = run(*arguments)
    assert "%" in loud.stderr
    np.save("y.npy", X)
    other = [a.replace("x.npy", "y.npy").replace("c.", "e.").replace("l.", "m.") for a in arguments]
    other = [a.replace("t.zarr", "u.zarr").replace("d.zarr", "f.zarr") for a in other]
    quiet = run(*other, "-q")
    assert quiet.stderr == ""
    assert len(quiet.stdout.splitlines()) == len(loud.stdout.splitlines())


def test_a_quiet_export_says_nothing_at_all(source):
    run("distances", source, "d.zarr")
    assert run("export", "d.zarr", "m.npy").stderr == "wrote m.npy\n"
    assert run("export", "d.zarr", "n.npy", "--quiet").output == ""


def test_errors_and_warnings_are_not_quiet(source):
    np.save("square.npy", np.abs(np.arange(5.0)[:, None] - np.arange(5.0)))
    assert run("bound", "square.npy", "-q").stderr.startswith("warning: SRC is square")
    assert "no file or folder" in run("bound", "nowhere.npy", "-q", code=BAD_INPUT).stderr


def test_verbose_commands_pass_on_what_is_logged(source, monkeypatch):
    log = logging.getLogger("silchunk")
    handlers, level = list(log.handlers), log.level
    plain = silchunk.silhouette_bounds

    def logging_bounds(*arguments, **keywords):
        log.info("a line of the log")
        return plain(*arguments, **keywords)

    monkeypatch.setattr(bounds, "silhouette_bounds", logging_bounds)
    assert run("bound", source).stderr == ""
    assert "a line of the log\n" in run("bound", source, "-v").stderr
    assert (log.handlers, log.level) == (handlers, level)  # nothing is left of it


def test_where_an_error_arose_is_for_those_who_ask(source):
    said = run("bound", "nowhere.npy", code=BAD_INPUT).stderr
    assert said == "silchunk: X: there is no file or folder 'nowhere.npy'.\n".replace("X:", "SRC:")
    verbose = run("bound", "nowhere.npy", "--verbose", code=BAD_INPUT).stderr
    assert verbose.startswith("Traceback (most recent call last)")
    assert verbose.endswith(said)


def test_a_bug_is_called_one(source, monkeypatch):
    def broken(*arguments, **keywords):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(bounds, "silhouette_bounds", broken)
    said = run("bound", source, "-m", 2, code=FAILED).stderr
    first, *rest = said.splitlines()
    assert first == "silchunk: this is a bug of silchunk, no mistake of yours."
    assert rest[0] == "  ZeroDivisionError: division by zero"
    assert "in test_cli_speaking.py, line" in rest[1]
    assert f"silchunk {silchunk.__version__}, Python" in said
    assert f"numpy {np.__version__}" in said
    assert rest[-2].endswith("run with -v:")
    assert rest[-1] == "  silchunk bound x.npy -m 2 -v"
    assert "Traceback" not in said
    verbose = run(*shlex.split(rest[-1])[1:], code=FAILED).stderr
    assert "Traceback" in verbose
    assert verbose.splitlines()[-1].endswith("the traceback above.")


def test_memory_that_the_system_does_not_have_is_no_bug(source, monkeypatch):
    def hungry(*arguments, **keywords):
        raise MemoryError("Unable to allocate 1 TiB")

    monkeypatch.setattr(bounds, "silhouette_bounds", hungry)
    said = run("bound", source, code=OVER_BUDGET).stderr
    assert "the system has no more memory" in said
    assert "with --memory" in said
    assert said.endswith("Unable to allocate 1 TiB\n")


def test_errors_of_the_system_name_the_file(source, monkeypatch):
    def refused(*arguments, **keywords):
        raise PermissionError(13, "Permission denied", "secret.npy")

    monkeypatch.setattr(bounds, "silhouette_bounds", refused)
    assert run("bound", source, code=FAILED).stderr == "silchunk: secret.npy: Permission denied\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("bound", "x.npy"),
        ("bound", "x.npy", "--sample-size", "20"),
        ("estimate", "x.npy"),
        ("score", "x.npy", "labels.npy"),
        ("evaluate", "x.npy", "labels.npy"),
        ("cluster", "x.npy", "-k", "3", "-o", "l.npy"),
        ("distances", "x.npy", "d.zarr"),
        ("import", "m.npy", "i.zarr"),
        ("export", "e.zarr", "n.npy"),
        ("info", "e.zarr"),
        ("verify", "e.zarr"),
    ],
)
def test_json_says_what_it_is_of(source, arguments):
    run("distances", source, "e.zarr")
    run("export", "e.zarr", "m.npy")
    facts = json.loads(run(*arguments, "--json", "-q").stdout)
    assert list(facts)[:2] == ["command", "silchunk"]
    assert facts["command"] == arguments[0]
    assert facts["silchunk"] == silchunk.__version__
    assert facts["source"] == arguments[1]


def test_the_demonstration_is_an_object_too():
    facts = json.loads(run("demo", "--json").stdout)
    assert facts["command"] == "demo"
    assert [row["name"] for row in facts["data_sets"]][:2] == ["iris", "wine"]


def test_json_has_no_infinity(capsys):
    print_json({"a": [float("inf"), 1.5], "b": {"c": float("nan")}, "d": (2, "x", None)})
    facts = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert facts["a"] == [None, 1.5]
    assert facts["b"] == {"c": None}
    assert facts["d"] == [2, "x", None]


def interrupted(tmp_path, number, *arguments, wait_for):
    """Standard error and exit code of a command that is sent a signal in its midst."""
    points = np.random.default_rng(0).standard_normal((40_000, 8)).astype(np.float32)
    np.save(tmp_path / "the points.npy", points)
    process = subprocess.Popen(
        [sys.executable, "-m", "silchunk", *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        # Shells start what runs in the background with SIGINT ignored, these tests perhaps too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 120
    if wait_for is None:
        process.stderr.readline()  # of progress: it is well under way
    while wait_for and not list(tmp_path.glob(wait_for)) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    _, said = process.communicate(timeout=120)
    return said, process.returncode


@pytest.mark.slow
def test_control_c_says_how_to_go_on_with_what_is_kept(tmp_path):
    arguments = ("bound", "the points.npy", "--checkpoint", "n_clusters")
    said, code = interrupted(tmp_path, signal.SIGINT, *arguments, wait_for="n_clusters/panel-*")
    assert code == PAUSED, said
    assert said.splitlines()[-2] == "To go on:"
    assert said.splitlines()[-1] == "  silchunk bound 'the points.npy' --checkpoint n_clusters"
    kept = {path.name for path in (tmp_path / "n_clusters").glob("panel-*")}
    assert kept
    again = [sys.executable, "-m", *shlex.split(said.splitlines()[-1])]
    done = subprocess.run(again, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "any clustering: average silhouette width" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [("SIGINT", STOPPED), ("SIGTERM", PAUSED)])
def test_who_stops_what_keeps_nothing_is_told_of_checkpoints(tmp_path, number, code):
    number = getattr(signal, number)
    said, ended = interrupted(tmp_path, number, "bound", "the points.npy", wait_for=None)
    assert ended == code, said
    assert (
        said.splitlines()[-1] == "  silchunk bound 'the points.npy' --checkpoint bound.checkpoint"
    )
    assert "Traceback" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["the points.npy"]
