"""A machine within this one: its own network, process numbers and name, ended as a whole.

Servers that know no loopback listen on a network here that nobody else has, and what they leave
running ends with the machine, even where the tests themselves are killed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

NAME = "here"
# The first process: takes in what others leave, and ends when its input does.
FIRST = (
    "import signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
    "print('ready', flush=True); sys.stdin.read()"
)
# A host that has nothing but 127.0.0.1 counts as one without a network: names are not looked up.
BOOT = f"""
set -e
ip link set lo up
ip address add 10.0.0.1/32 dev lo
hostname {NAME}
mount --bind "$1" /etc/hosts
exec "$2" -c "$3"
"""
NAMESPACES = ("--net", "--uts", "--ipc", "--mount", "--pid")
ANSWER_SECONDS = 60


def missing(*programs: str) -> str:
    """Why there can be no machine with these programs, or nothing."""
    if os.geteuid() != 0:
        return "needs root"
    lacking = [p for p in ("unshare", "nsenter", "ip", *programs) if shutil.which(p) is None]
    return f"needs {', '.join(lacking)}" if lacking else ""


class PrivateMachine:
    """Runs commands in ``folder``, which it shares with this machine, as it does all files."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        # Programs of this environment, and those that only root looks for.
        path = [str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin", "/sbin"]
        self.environment = {**os.environ, "PATH": os.pathsep.join(path), **environment}
        hosts = folder / "hosts"
        hosts.write_text(f"127.0.0.1 {NAME} localhost\n")
        boot = ["bash", "-c", BOOT, "boot", str(hosts), sys.executable, FIRST]
        self.first = subprocess.Popen(
            ["unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc", *boot],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if self.first.stdout.readline() != "ready\n":
            raise OSError(self.first.communicate(timeout=ANSWER_SECONDS)[1])
        outside = self.first.pid
        inside = Path(f"/proc/{outside}/task/{outside}/children").read_text().strip()
        self.enter = ["nsenter", f"--target={inside}", *NAMESPACES, f"--wd={folder}"]
        self.servers: list[subprocess.Popen[bytes]] = []

    def run(self, *command: object, **environment: str) -> str:
        """What the command prints."""
        done = self.tried(*command, **environment)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def tried(self, *command: object, **environment: str) -> subprocess.CompletedProcess[str]:
        """The command, whether or not it succeeded."""
        return subprocess.run(
            [*self.enter, *map(str, command)],
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS,
        )

    def serve(self, *command: object, **environment: str) -> Path:
        """Start a program that goes on; returns the file that it writes to."""
        said = self.folder / f"{len(self.servers)}-{Path(str(command[0])).name}.out"
        with said.open("wb") as out:
            self.servers.append(
                subprocess.Popen(
                    [*self.enter, *map(str, command)],
                    env={**self.environment, **environment},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                )
            )
        return said

    def close(self) -> None:
        """End it, and with it all that runs there."""
        self.first.stdin.close()
        self.first.wait(timeout=ANSWER_SECONDS)
        for server in self.servers:
            server.wait(timeout=ANSWER_SECONDS)
        self.first.stdout.close()
        self.first.stderr.close()


def wait_until(true, what: str, seconds: float, logs) -> None:
    """Wait until ``true()``; else fail with what ``logs()`` says."""
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            raise AssertionError(f"not within {seconds:g} seconds: {what}\n{logs()}")
        time.sleep(0.2)
