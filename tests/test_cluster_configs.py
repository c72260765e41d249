"""Batch scripts of cluster-configs for PBS and LSF, run as they are with stand-ins for the sites'
commands."""

from __future__ import annotations

import os
import re
import shutil
import signal

import pytest
from config_inputs import CONFIGS, SLOW_PANELS, Job, environment, finish, points, stand_in

from silchunk import open_distances

OVERVIEW = (CONFIGS / "README.md").read_text()
BATCH = [*sorted((CONFIGS / "pbs").glob("*.pbs")), *sorted((CONFIGS / "lsf").glob("*.lsf"))]

# What PBS and LSF would tell and start. A host is this machine, as often as it is named.
QSTAT = 'echo "Job Id: $2"; echo "    Resource_List.walltime = $WALLTIME"'
QSUB = (
    'printf "%s\\n" "$@" > "$SUBMITTED"; for name in SRC OUT ROUND; do echo "$name=${!name}"; done'
)
PBSDSH = """
[[ $1 == -- ]]; shift
while read -r host; do env -i "$@" & done < "$PBS_NODEFILE"
wait
"""
BLAUNCH = """
[[ $1 == -u ]]; hosts=$2; shift 2
while read -r host; do "$@" & done < "$hosts"
wait
"""


@pytest.fixture
def pbs(tmp_path):
    """Variables of a PBS job with one node and an hour."""
    for name, script in (("qstat", QSTAT), ("qsub", QSUB), ("pbsdsh", PBSDSH)):
        stand_in(tmp_path / "commands", name, script)
    (tmp_path / "nodes").write_text("here\n")
    return {
        "PBS_JOBID": "7.here",
        "PBS_O_WORKDIR": str(tmp_path),
        "PBS_NODEFILE": str(tmp_path / "nodes"),
        "NCPUS": "2",
        "WALLTIME": "01:00:00",
        "SUBMITTED": str(tmp_path / "submitted"),
        "SRC": "points.npy",
        "MEMORY": "1GiB",
    }


@pytest.fixture
def lsf(tmp_path):
    """Variables of an LSF job with two slots of one host."""
    stand_in(tmp_path / "commands", "blaunch", BLAUNCH)
    (tmp_path / "hosts").write_text("here\nhere\n")
    return {
        "LSB_DJOB_NUMPROC": "2",
        "LSB_DJOB_HOSTFILE": str(tmp_path / "hosts"),
        "SRC": "points.npy",
        "MEMORY": "1GiB",
    }


def start(script, folder, variables, log="job.log", **more):
    env = environment(folder / "commands", **(variables | more))
    return Job("bash", CONFIGS / script, cwd=folder, env=env, log=log)


def slow_panels(folder):
    """Variables with which panels take a second each, and are many."""
    (folder / "slow").mkdir()
    (folder / "slow" / "sitecustomize.py").write_text(SLOW_PANELS)
    return {"PYTHONPATH": str(folder / "slow"), "NCPUS": "1", "LSB_DJOB_NUMPROC": "1"}


@pytest.mark.slow
@pytest.mark.parametrize("script", ["pbs/bound.pbs", "lsf/bound.lsf"])
def test_a_bound_by_the_threads_of_one_node(script, tmp_path, request):
    expected = points(tmp_path)
    variables = request.getfixturevalue(script.partition("/")[0])
    job = finish(start(script, tmp_path, variables, OPTIONS="--json"))
    assert job.bound() == pytest.approx(expected, rel=1e-12)
    assert not job.listening
    assert (tmp_path / "bound-of-points.npy").is_dir()


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("script", ["pbs/cluster.pbs", "lsf/cluster.lsf"])
def test_a_bound_by_a_cluster_of_the_job(script, tmp_path, request):
    expected = points(tmp_path)
    variables = request.getfixturevalue(script.partition("/")[0])
    sizes = {"WORKERS": "2", "THREADS": "1", "WORKER_MEMORY": "1GiB"}
    job = finish(start(script, tmp_path, variables, OPTIONS="--json", **sizes))
    assert job.bound() == pytest.approx(expected, rel=1e-12)
    assert job.listening == {"127.0.0.1"}
    assert list((tmp_path / "silchunk-scratch").glob("cluster-*")) == []


@pytest.mark.parametrize("script", ["pbs/cluster.pbs", "lsf/cluster.lsf"])
def test_loopback_does_not_reach_other_nodes(script, tmp_path, request):
    points(tmp_path)
    variables = request.getfixturevalue(script.partition("/")[0])
    for name in ("nodes", "hosts"):
        (tmp_path / name).write_text("here\nthere\nthere\n")
    job = finish(start(script, tmp_path, variables), code=64)
    assert "INTERFACE=lo reaches no other" in job.log.read_text()


@pytest.mark.slow
def test_a_pbs_build_submits_itself_before_the_wall_time(tmp_path, pbs):
    points(tmp_path, 2100)  # a dozen panels of a second, and two seconds
    pbs |= {"OUT": "d,1.zarr", "MARGIN": "300"}
    first = start("pbs/distances.pbs", tmp_path, pbs | slow_panels(tmp_path), WALLTIME="00:05:02")
    finish(first, code=75)
    assert (tmp_path / "submitted").read_text().splitlines() == [
        "-v",
        "SRC,OUT,OPTIONS,MEMORY,MARGIN,ROUND",
        str(CONFIGS / "pbs/distances.pbs"),
    ]
    told = first.output.read_text().splitlines()[-3:]
    assert told == ["SRC=points.npy", "OUT=d,1.zarr", "ROUND=2"]
    (tmp_path / "submitted").unlink()
    finish(start("pbs/distances.pbs", tmp_path, pbs, log="second.log", ROUND="2"))
    assert not (tmp_path / "submitted").exists()
    assert open_distances(tmp_path / "d,1.zarr").verify().ok


@pytest.mark.slow
def test_a_pbs_build_that_gets_nowhere_is_not_submitted_for_ever(tmp_path, pbs):
    points(tmp_path, 2100)
    pbs |= {"OUT": "d.zarr", "WALLTIME": "00:05:02", "ROUND": "20"}
    finish(start("pbs/distances.pbs", tmp_path, pbs | slow_panels(tmp_path)), code=75)
    assert not (tmp_path / "submitted").exists()


@pytest.mark.slow
def test_a_deleted_pbs_build_is_not_submitted(tmp_path, pbs):
    points(tmp_path, 2100)
    job = start("pbs/distances.pbs", tmp_path, pbs | slow_panels(tmp_path), OUT="d.zarr")
    assert job.wait((tmp_path / "d.zarr" / "silchunk-journal.jsonl").exists) is None
    os.killpg(job.process.pid, signal.SIGTERM)  # as qdel, to all processes of the job
    finish(job, code=-signal.SIGTERM)
    assert not (tmp_path / "submitted").exists()


@pytest.mark.slow
def test_an_lsf_build_pauses_with_the_code_that_queues_it_again(tmp_path, lsf):
    points(tmp_path, 2100)
    job = start("lsf/distances.lsf", tmp_path, lsf | slow_panels(tmp_path), OUT="d.zarr")
    assert job.wait((tmp_path / "d.zarr" / "silchunk-journal.jsonl").exists) is None
    os.killpg(job.process.pid, signal.SIGUSR1)  # as LSF, to all processes of the job
    finish(job, code=75)
    assert '#BSUB -Q "75"' in (CONFIGS / "lsf/distances.lsf").read_text().splitlines()
    finish(start("lsf/distances.lsf", tmp_path, lsf, log="second.log", OUT="d.zarr"))
    assert open_distances(tmp_path / "d.zarr").verify().ok


@pytest.mark.slow
@pytest.mark.cluster
def test_an_lsf_cluster_lives_until_silchunk_has_paused(tmp_path, lsf):
    points(tmp_path, 2100)
    sizes = {"WORKERS": "1", "THREADS": "1", "WORKER_MEMORY": "1GiB"}
    job = start("lsf/cluster.lsf", tmp_path, lsf | slow_panels(tmp_path), **sizes)
    journal = tmp_path / "bound-of-points.npy" / "silchunk-checkpoint.jsonl"
    assert job.wait(journal.exists) is None
    os.killpg(job.process.pid, signal.SIGUSR1)  # as LSF, to all processes of the job
    finish(job, code=75)
    log = job.log.read_text()
    assert "run the same again to go on" in log.lower()
    # The scheduler and the worker were there to the last, and were told to end.
    assert "Closing scheduler. Reason: signal-15" in log
    assert "Reason: scheduler-close" in log


FOLDERS = ["docker", "kubernetes", "local", "lsf", "mpi", "pbs", "ssh"]


def test_the_overview_has_every_folder():
    shown = re.findall(r"^\| \[(\w+)\]\(\1/README\.md\) \|", OVERVIEW, flags=re.MULTILINE)
    assert sorted(shown) == sorted(one.name for one in CONFIGS.iterdir() if one.is_dir())


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_file_is_told_of_and_every_link_leads_somewhere(folder):
    text = (CONFIGS / folder / "README.md").read_text()
    files = {file.name for file in (CONFIGS / folder).iterdir() if file.is_file()}
    assert files - {"README.md"} == {name for name in files if f"`{name}`" in text}
    assert len(files) >= 2
    for link in re.findall(r"\]\((?!https:)([^)]+)\)", text):
        assert (CONFIGS / folder / link).exists()


@pytest.mark.slow
@pytest.mark.cluster
def test_the_commands_for_one_machine_run(tmp_path):
    expected = points(tmp_path)
    shutil.copytree(CONFIGS / "local", tmp_path, dirs_exist_ok=True)
    text = (CONFIGS / "local" / "README.md").read_text()
    commands = re.findall(r"^\$ (.*)$", text, flags=re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        job = finish(Job("bash", "-c", command, cwd=tmp_path, env=environment()))
        assert f"average silhouette width <= {expected:.6f}" in job.output.read_text()
        assert job.listening == {"127.0.0.1"}


def directives(script):
    """Lines for the batch system, as (option, value)."""
    marker = f"#{'PBS' if script.suffix == '.pbs' else 'BSUB'} "
    lines = script.read_text().splitlines()
    found = [line.removeprefix(marker) for line in lines if line.startswith(marker)]
    return [tuple(text.split(" ", 1)) for text in found]


@pytest.mark.parametrize("script", BATCH, ids=lambda path: path.name)
def test_directives_stand_before_the_first_command(script):
    lines = script.read_text().splitlines()
    head = re.match(r"(#.*\n)+", script.read_text())[0].splitlines()
    assert lines[0] == "#!/bin/bash"
    asked = [line for line in lines if re.match(r"#(PBS|BSUB) ", line)]
    assert len(asked) >= 4
    assert set(asked) <= set(head)


@pytest.mark.parametrize("script", BATCH, ids=lambda path: path.name)
def test_every_script_asks_for_time_memory_and_processors(script):
    asked = " ".join(" ".join(pair) for pair in directives(script))
    if script.suffix == ".pbs":
        assert re.search(r"-l walltime=\d\d:\d\d:\d\d\b", asked)
        assert re.search(r"-l select=\d+:ncpus=\d+:(mpiprocs=1:)?mem=\d+gb\b", asked)
    else:
        assert re.search(r"-W \d+:\d\d -wa USR1 -wt \d+ -r -Q \"75\"", asked)
        assert re.search(r"-n \d+ -R \"span\[(hosts=1|ptile=16)\]\" -M \d+GB", asked)
