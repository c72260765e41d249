"""A Grid Engine of one host, on a private machine."""

from __future__ import annotations

import re
from pathlib import Path

from private_machine import NAME, PrivateMachine, wait_until

PROGRAMS = ("sge_qmaster", "sge_execd", "qsub", "qconf", "qstat")
LIBRARIES = Path("/usr/lib/gridengine")
SHARED = Path("/usr/share/gridengine")
BOOTSTRAP = """
admin_user none
default_domain none
ignore_fqdn false
spooling_method classic
spooling_lib libspoolc
spooling_params {common};{spool}/qmaster
binary_path /usr/sbin
qmaster_spool_dir {spool}/qmaster
security_mode none
listener_threads 1
worker_threads 1
scheduler_threads 1
"""
# What of the defaults is changed: root may run jobs, and no job waits long.
GLOBAL = {
    "execd_spool_dir": "{spool}/execd",
    "min_uid": "0",
    "min_gid": "0",
    "load_report_time": "00:00:02",
    "login_shells": "none",
}
SCHEDULER = {
    "schedule_interval": "0:0:1",
    "flush_submit_sec": "1",
    "flush_finish_sec": "1",
    "job_load_adjustments": "NONE",
}
QUEUE = {
    "qname": "all.q",
    "hostlist": NAME,
    "pe_list": "smp",
    "load_thresholds": "NONE",
    "slots": "2",
    "notify": "00:01:00",
    "rerun": "TRUE",
}
START_SECONDS = 60


def changed(text: str, settings: dict[str, str]) -> str:
    """Lines "name value" with other values."""
    for name, value in settings.items():
        text, count = re.subn(rf"^{name}\s.*$", f"{name} {value}", text, flags=re.MULTILINE)
        assert count == 1, f"{name}: {count} lines of\n{text}"
    return text


class GridEngine:
    """Submits scripts and tells of jobs; everything is in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        root, self.spool = folder / "root", folder / "spool"
        common = root / "default/common"
        for made in (common, self.spool / "qmaster/job_scripts", self.spool / "execd"):
            made.mkdir(parents=True)
        for name in ("bin", "lib", "utilbin"):
            (root / name).mkdir()
            (root / name / "lx-amd64").symlink_to(LIBRARIES)
        (root / "util").symlink_to(SHARED / "util")
        (common / "bootstrap").write_text(BOOTSTRAP.format(common=common, spool=self.spool))
        (common / "act_qmaster").write_text(f"{NAME}\n")
        environment = {
            "SGE_ROOT": str(root),
            "SGE_CELL": "default",
            "SGE_QMASTER_PORT": "16444",
            "SGE_EXECD_PORT": "16445",
            "SGE_ND": "1",  # servers stay in the foreground
        }
        self.machine = PrivateMachine(folder, environment)
        try:
            self._install(common)
            self._start()
        except BaseException:
            self.close()
            raise

    def _install(self, common: Path) -> None:
        run = self.machine.run
        where = f"{common};{self.spool}/qmaster"
        run(LIBRARIES / "spoolinit", "classic", "libspoolc", where, "init")
        defaults = (SHARED / "default-configuration").read_text()
        settings = {name: value.format(spool=self.spool) for name, value in GLOBAL.items()}
        resources = SHARED / "util/resources"
        for kind, given in (
            ("configuration", self._file("configuration", changed(defaults, settings))),
            ("complexes", resources / "centry"),
            ("usersets", resources / "usersets"),
            ("managers", "root"),
        ):
            run(LIBRARIES / "spooldefaults", kind, given)

    def _start(self) -> None:
        run, tried = self.machine.run, self.machine.tried
        self.machine.serve("sge_qmaster")
        self._until(lambda: NAME in tried("qconf", "-sh").stdout, "a master that answers")
        run("qconf", "-as", NAME)
        scheduler = changed(run("qconf", "-ssconf"), SCHEDULER)
        run("qconf", "-Msconf", self._file("scheduler", scheduler))
        run("qconf", "-Ap", SHARED / "util/resources/pe/smp")
        self.machine.serve("sge_execd")
        self._until(lambda: NAME in tried("qconf", "-sel").stdout, "a host that answers")
        run("qconf", "-Aq", self._file("queue", changed(run("qconf", "-sq"), QUEUE)))
        self._until(
            lambda: re.search(
                rf"all.q@{NAME}\s+BIP\s+0/0/2\s+\S+\s+lx-amd64\s*$",
                tried("qstat", "-f").stdout,
                re.M,
            ),
            "a queue that takes jobs",
        )

    def _file(self, name: str, text: str) -> Path:
        (self.folder / name).write_text(text)
        return self.folder / name

    def _until(self, true, what: str) -> None:
        wait_until(true, what, START_SECONDS, self.servers_say)

    def close(self) -> None:
        self.machine.close()

    def submit(self, script: Path, *arguments: object, options=(), **environment: str) -> int:
        """Submit the script as it is; returns the job's number."""
        # Unlike other systems this one does not pass the surroundings on by itself.
        command = ("qsub", "-V", "-terse", *options, script, *arguments)
        return int(self.machine.run(*command, **environment))

    def state(self, number: int) -> str:
        """ "qw", "r", "Rr" (runs again) and so on; empty where the job has ended for good."""
        for line in self.machine.run("qstat").splitlines()[2:]:
            words = line.split()
            if words[0] == str(number):
                return words[4]
        return ""

    def log(self, number: int) -> str:
        """What the job has printed so far."""
        file = self.folder / f"silchunk-{number}.log"
        return file.read_text() if file.exists() else ""

    def ended(self, number: int, seconds: float) -> None:
        """Wait until the job has ended for good."""
        self.when(lambda: self.state(number) == "", f"the end of job {number}", number, seconds)

    def when(self, true, what: str, number: int, seconds: float = 120) -> None:
        """Wait for something about a job."""
        wait_until(
            true,
            what,
            seconds,
            lambda: f"{self.state(number)}\n{self.log(number)}\n{self.servers_say()}",
        )

    def servers_say(self) -> str:
        files = [*self.folder.glob("*.out"), *self.spool.rglob("messages")]
        return "\n".join(f"{file}:\n{file.read_text()[-3000:]}" for file in files)
