"""What commands say of themselves: help, examples, suggestions, completion."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import silchunk.cli
from silchunk.cli import commands
from silchunk.cli.base import app

runner = CliRunner()
COMMANDS = sorted(get_command(app).commands)
# What an example writes that others read.
WRITTEN = {"export": "matrix.npy", "cluster": "labels.npy"}
PROGRAM = [sys.executable, "-m", "silchunk"]


def run(*arguments, code=0):
    result = runner.invoke(app, [str(a) for a in arguments], prog_name="silchunk")
    assert result.exit_code == code, result.output
    return result


def program(*arguments, **environment):
    return subprocess.run(
        [*PROGRAM, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_every_example_is_on_one_line_and_runs(command, tmp_path, monkeypatch):
    (example,) = re.findall("^  +Example: (.*)$", run(command, "--help").stdout, re.MULTILINE)
    assert example.startswith(f"silchunk {command}")
    monkeypatch.chdir(tmp_path)
    points = np.random.default_rng(0).random((60, 4))
    np.save("points.npy", points)
    np.save("labels.npy", np.arange(60) % 3)
    np.save("matrix.npy", np.abs(points[:, :1] - points[:, 0]))
    if "d.zarr" in example and command not in ("distances", "import"):
        run("distances", "points.npy", "d.zarr")
    if command in WRITTEN:
        os.remove(WRITTEN[command])
    for part in example.split(" && "):
        run(*shlex.split(part)[1:])


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_can_be_quiet_verbose_and_speak_json(command):
    said = run(command, "--help").stdout
    _, _, last = said.partition("What is said:\n")
    for option in ("--json", "-q, --quiet", "-v, --verbose", "--help"):
        assert f"\n  {option} " in f"\n{last}", option


def test_options_are_under_headings():
    said = run("bound", "--help").stdout
    headings = re.findall("^([A-Z].*):$", said, re.MULTILINE)
    assert headings == ["Arguments", "Options", "Where to compute", "What is said"]
    where = said.partition("Where to compute:\n")[2].partition("What is said")[0]
    assert re.findall("^  (--[a-z-]+)", where, re.MULTILINE) == [
        "--threads",
        "--workers",
        "--scheduler",
        "--scheduler-file",
        "--time-limit",
    ]


def test_the_commands_are_listed_in_order_with_their_exit_codes():
    said = run("--help").stdout
    listed = said.partition("Commands:\n")[2].partition("Exit codes:\n")
    names = re.findall("^  ([a-z]+) ", listed[0], re.MULTILINE)
    assert sorted(names) == COMMANDS
    assert names == [name for name in commands.ORDER if name in names]
    assert "..." not in said.partition("Commands:\n")[2]
    codes = re.findall("^  ([0-9]+) ", listed[2], re.MULTILINE)
    used = {code for name, code in vars(commands).items() if name.isupper() and type(code) is int}
    assert {int(code) for code in codes} == used


def test_the_page_on_other_tools_has_the_exit_codes():
    page = (Path(__file__).parents[1] / "docs/interoperability.md").read_text()
    table = dict(re.findall(r"^\| ([0-9]+) \| (.*) \|$", page, re.MULTILINE))
    assert list(table) == [str(code) for code in commands.MEANINGS]
    for code, meaning in commands.MEANINGS.items():
        assert table[str(code)].replace("`", "").startswith(meaning)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bound", "x.npy", "--mertic", "l1"), "No such option: --mertic. Did you mean --metric?"),
        (("bound", "x.npy", "--mem", "1GiB"), "No such option: --mem. Did you mean --memory?"),
        (("bound", "x.npy", "--no-valid"), "No such option: --no-valid. Did you mean --no-valida"),
        (("cluster", "x.npy", "-k", "2", "--ouput", "l"), "Did you mean --output?"),
        (("bound", "x.npy", "--frobnicate"), "Error: No such option: --frobnicate.\n"),
        (("--verison",), "Did you mean --version?"),
        (("-v", "bound", "x.npy"), "-v is an option of commands: it follows the name of one."),
        (("bund", "x.npy"), "No such command 'bund'. Did you mean 'bound'?"),
        (("evalute", "x.npy"), "Did you mean 'evaluate'?"),
        (("frobnicate",), "Error: No such command 'frobnicate'.\n"),
    ],
)
def test_who_mistypes_is_told_what_they_may_have_meant(arguments, message):
    result = run(*arguments, code=2)
    assert message in result.stderr
    assert re.search("Try 'silchunk.* --help' for help", result.stderr)
    assert result.stdout == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_shown_for_the_shell_that_is_named(shell):
    mark = {"bash": "complete -o default -F", "zsh": "#compdef silchunk", "fish": "complete --c"}
    done = program("--show-completion", shell)
    assert done.returncode == 0, done.stderr
    assert mark[shell] in done.stdout
    assert "_SILCHUNK_COMPLETE" in done.stdout


def test_completion_knows_its_shells():
    done = program("--show-completion", "tcsh")
    assert done.returncode == 1
    assert "tcsh not supported" in done.stderr


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("silchunk bo", {"bound"}),
        ("silchunk e", {"estimate", "evaluate", "export"}),
        ("silchunk bound --me", {"--metric", "--memory"}),
        ("silchunk score --q", {"--quiet"}),
    ],
)
def test_names_are_completed(words, found):
    done = program(
        _SILCHUNK_COMPLETE="complete_bash",
        COMP_WORDS=words,
        COMP_CWORD=str(words.count(" ")),
    )
    assert set(done.stdout.split()) == found


def test_the_package_is_a_program():
    done = program("--version")
    assert done.stdout == f"silchunk {silchunk.__version__}\n"
    assert program("--help").stdout.startswith("Usage: silchunk [OPTIONS] COMMAND")
