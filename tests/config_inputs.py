"""Running what cluster-configs holds on this machine: stand-ins for a site's commands, and an eye
on what listens and what is left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

import numpy as np
import psutil
import pytest

from silchunk import silhouette_bounds

CONFIGS = Path(__file__).parents[1] / "cluster-configs"
LOOPBACK = {"127.0.0.1", "::1"}
SECONDS = 240.0
# Programs of MPI, which listen where MPI's own settings say.
LAUNCHERS = {"mpirun", "mpiexec", "prterun", "prted", "orted", "mpiexec.hydra", "hydra_pmi_proxy"}

# Commands of silchunk whose panels take a second each, so that a run can be cut off in its midst:
# for Python's own `sitecustomize`, which processes import as they start.
SLOW_PANELS = """
import sys, time
if any("silchunk" in argument for argument in sys.orig_argv):
    from silchunk import inbox, symmetric

    def slow(function):
        def slowly(*arguments):
            time.sleep(1.0)
            return function(*arguments)
        return slowly

    symmetric.SymmetricPanels.read = slow(symmetric.SymmetricPanels.read)  # as distances are built
    inbox.Inbox.put = slow(inbox.Inbox.put)  # as results come in
"""


def points(folder, n=300):
    """Write points.npy; returns the bound of any clustering of them."""
    X = np.random.default_rng(0).random((n, 4))
    np.save(folder / "points.npy", X)
    return silhouette_bounds(X).asw


def environment(commands=None, **more):
    """This process's variables, with silchunk and ``commands`` on the path, and nobody else's
    settings of jobs."""
    folders = [str(commands)] if commands else []
    folders += [str(Path(sys.executable).parent), os.environ["PATH"]]
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PBS_", "LSB_", "SLURM_", "DASK_"))
    }
    return {**kept, "PATH": os.pathsep.join(folders), "NUMBA_NUM_THREADS": "2", **more}


def stand_in(folder, name, script):
    """An executable of a site's command, written in bash."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/bash\nset -eu\n{script}\n")
    path.chmod(0o755)
    return path


def listening(pid):
    """Addresses at which a process listens, in whatever network namespace it is."""
    proc = Path(f"/proc/{pid}")
    files, found = set(), set()
    for file in (proc / "fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed since
            files.add(os.readlink(file))
    for table in ("tcp", "tcp6"):
        for line in (proc / "net" / table).read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in files:
                words = bytes.fromhex(local.partition(":")[0])
                found.add(str(ip_address(b"".join(turned(words)))))
    return found


def turned(words):
    """Four bytes at a time, back to front, as the kernel prints addresses."""
    return [words[i : i + 4][::-1] for i in range(0, len(words), 4)]


class Job:
    """A started command, all processes that it has had, and where they listened."""

    def __init__(self, *command, cwd, env, log="job.log"):
        self.log = cwd / log
        self.output = cwd / f"{log}.out"
        with self.log.open("w") as errors, self.output.open("w") as output:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
        self.pids = {self.process.pid}  # of this command, and of others that it has had started
        self.seen = set()
        self.listening = set()
        self.until = time.monotonic() + SECONDS

    def look(self):
        """Take down what runs now, and where it listens."""
        for pid in self.pids:
            with suppress(psutil.Error):
                own = psutil.Process(pid)
                self.seen |= {own, *own.children(recursive=True)}
        for one in self.seen:
            with suppress(psutil.Error, OSError):
                if one.name() not in LAUNCHERS:
                    self.listening |= listening(one.pid)

    def wait(self, ready=None):
        """Until the command ends, or ``ready()`` holds; returns the exit code, if it has ended."""
        while self.process.poll() is None and not (ready and ready()):
            self.look()
            if time.monotonic() > self.until:
                self.kill()
                pytest.fail(f"not done after {SECONDS:g} seconds:\n{self.log.read_text()}")
            time.sleep(0.1)
        return self.process.returncode

    def kill(self):
        self.look()
        for one in self.seen:
            with suppress(psutil.Error):
                one.kill()
        self.process.wait(30)

    def left_behind(self):
        """Names of its processes that run on; they are ended then."""
        left = psutil.wait_procs(self.seen, timeout=30)[1]
        names = [one.name() for one in left]
        self.kill()
        return names

    def bound(self):
        """The upper bound that it printed as JSON."""
        return json.loads(self.output.read_text())["bounds"][0]["upper_bound"]


def finish(job, code=0):
    """Wait for a job to end with ``code``, listening on loopback alone and leaving nothing."""
    try:
        ended = job.wait()
        assert ended == code, f"code {ended}:\n{job.log.read_text()}{job.output.read_text()}"
        assert job.left_behind() == []
        assert job.listening <= LOOPBACK
    finally:
        job.kill()
    return job
