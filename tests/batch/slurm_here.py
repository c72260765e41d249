"""A SLURM of two nodes, both on a private machine."""

from __future__ import annotations

import os
import re
from pathlib import Path

from private_machine import NAME, PrivateMachine, wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel")
# Nothing here needs control groups, accounting or another user than root. Credentials that expire
# soon: SLURM lets a job that comes back wait for as long.
CONFIGURATION = """
ClusterName=here
SlurmctldHost={host}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
MpiDefault=none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1
KillWait=5
NodeName=one NodeHostname={host} NodeAddr=127.0.0.1 Port=16818 CPUs=2 RealMemory=8000
NodeName=two NodeHostname={host} NodeAddr=127.0.0.1 Port=16819 CPUs=2 RealMemory=8000
PartitionName=here Nodes=ALL Default=YES State=UP
"""
START_SECONDS = 60


class Slurm:
    """Submits scripts and tells of jobs; everything is in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        configuration = folder / "slurm.conf"
        configuration.write_text(CONFIGURATION.format(host=NAME, folder=folder))
        (folder / "state").mkdir()
        key = folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self.machine = PrivateMachine(folder, {"SLURM_CONF": str(configuration)})
        try:
            self._start(key)
        except BaseException:
            self.close()
            raise

    def _start(self, key: Path) -> None:
        self.machine.serve(
            "munged",
            "--foreground",
            f"--key-file={key}",
            *(f"--{name}-file={self.folder}/munged.{name}" for name in ("pid", "log", "seed")),
            f"--socket={self.folder}/munge.socket",
        )
        wait_until((self.folder / "munge.socket").exists, "munged", START_SECONDS, self.servers_say)
        self.machine.serve("slurmctld", "-D", "-c")
        for node in ("one", "two"):
            self.machine.serve("slurmd", "-D", "-N", node)
        wait_until(
            lambda: self.machine.tried("sinfo", "-h", "-o", "%T %D").stdout == "idle 2\n",
            "two idle nodes",
            START_SECONDS,
            self.servers_say,
        )

    def close(self) -> None:
        self.machine.close()

    def submit(self, script: Path, *arguments: object, options=(), **environment: str) -> int:
        """Submit the script as it is; returns the job's number."""
        command = ("sbatch", "--parsable", *options, script, *arguments)
        return int(self.machine.run(*command, **environment))

    def jobs(self, *number: int) -> list[dict[str, str]]:
        """What SLURM knows of its jobs, or of one."""
        text = self.machine.run("scontrol", "--oneliner", "show", "job", *number)
        return [dict(re.findall(r"(\w+)=(\S*)", line)) for line in text.splitlines() if line]

    def job(self, number: int) -> dict[str, str]:
        """What SLURM knows of a job."""
        return self.jobs(number)[0]

    def log(self, number: int) -> str:
        """What the job has printed so far."""
        file = self.folder / f"silchunk-{number}.log"
        return file.read_text() if file.exists() else ""

    def ended(self, number: int, seconds: float) -> dict[str, str]:
        """The job when it has ended for good."""
        wait_until(
            lambda: self.job(number)["JobState"] not in ("PENDING", "RUNNING", "COMPLETING"),
            f"the end of job {number}",
            seconds,
            lambda: f"{self.job(number)}\n{self.log(number)}\n{self.servers_say()}",
        )
        return self.job(number)

    def when(self, true, what: str, number: int, seconds: float = 120) -> None:
        """Wait for something about a job."""
        wait_until(true, what, seconds, lambda: f"{self.job(number)}\n{self.log(number)}")

    def servers_say(self) -> str:
        return "\n".join(
            f"{file.name}:\n{file.read_text()[-3000:]}" for file in self.folder.glob("*.out")
        )
