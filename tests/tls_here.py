"""Certificates, and a Dask cluster of this machine's processes that talks by them alone, started
by the commands of cluster-configs/tls/README.md."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "cluster-configs" / "tls"
PAGE = CONFIGS / "README.md"
# Seconds that a process may take to begin, to answer, and to end.
PATIENCE = 120


def blocks(language, page=PAGE):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), flags=re.DOTALL)


def shown(start):
    """The commands of the page that begin so."""
    return [line for block in blocks("bash") for line in block.splitlines() if line[:11] == start]


SCHEDULER = shown("dask schedu")[0]
BY_SETTINGS, BY_OPTIONS = shown("dask worker")


def environment(folder=None, **more):
    """Of a process whose only settings of Dask's are those beside the certificates in a folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DASK_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    settings = {} if folder is None else {"DASK_CONFIG": str(folder / "dask.yaml")}
    waiting = {"DASK_SILCHUNK__LOST_TIMEOUT": "5 s"}
    return {**kept, "PATH": path, "HOST": "127.0.0.1", **waiting, **settings, **more}


def ran(command, *, cwd, folder=None, code=0, umask=-1, **more):
    """What a command prints, with the certificates in a folder."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment(folder, **more),
        umask=umask,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def make_certificates(folder, *days, code=0):
    command = ["bash", CONFIGS / "make-certificates.sh", folder, *days]
    return ran(command, cwd=folder.parent, code=code)


@dataclass(frozen=True)
class Cluster:
    folder: Path
    address: str
    processes: list[subprocess.Popen]

    def text(self):
        """All that its processes have logged, and their command lines."""
        logs = [path.read_text() for path in sorted(self.folder.glob("*.log"))]
        return "\n".join([*logs, *command_lines(self.processes)])


@contextmanager
def cluster(certificates, folder):
    """A scheduler and two workers on loopback, of which the second has its certificate by options;
    they run in ``folder``."""
    with ExitStack() as stack:
        scheduler = stack.enter_context(started(SCHEDULER, folder, certificates))
        address = _written_address(folder / "scheduler.json", scheduler)
        workers = [
            stack.enter_context(started(BY_SETTINGS, folder, certificates)),
            stack.enter_context(started(BY_OPTIONS, folder, None, TLS=str(certificates))),
        ]
        yield Cluster(folder, address, [scheduler, *workers])


@contextmanager
def started(command, folder, certificates, **more):
    """A process that logs into ``folder``, and has gone with those it started afterwards."""
    with (folder / f"{len(list(folder.glob('*.log')))}.log").open("w") as log:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=folder,
            env=environment(certificates, **more),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        own = _family(process)
        process.terminate()
        _, left = psutil.wait_procs(own, timeout=30)
        for one in left:
            one.kill()
        process.wait(30)


def command_lines(processes):
    return [" ".join(one.cmdline()) for process in processes for one in _family(process)]


def _family(process):
    if process.poll() is not None:
        return []
    whole = psutil.Process(process.pid)
    return [whole, *whole.children(recursive=True)]


def _written_address(file, process):
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        try:
            return json.loads(file.read_text())["address"]
        except (FileNotFoundError, ValueError):
            time.sleep(0.1)
    raise AssertionError(f"no scheduler has begun: {file.with_name('0.log').read_text()}")
