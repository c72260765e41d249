"""Workers that dask-jobqueue starts as jobs of a real SLURM, by cluster-configs/slurm/run.py."""

from __future__ import annotations

import re
import sys

import pytest
from batch_inputs import CONFIGS, MEMORY, METRIC
from private_machine import missing, wait_until
from slurm_here import PROGRAMS, Slurm

pytest.importorskip("dask_jobqueue", reason="needs pip install dask-jobqueue")
LACKING = missing(*PROGRAMS)
RUN_SECONDS = 150

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.skipif(bool(LACKING), reason=LACKING),
]


@pytest.fixture
def slurm(folder_of_servers):
    running = Slurm(folder_of_servers("slurm-workers"))
    yield running
    running.close()


def test_a_worker_that_is_gone_is_followed_by_another(slurm, undisturbed):
    settings = {"CORES": "1", "MEMORY": MEMORY, "INTERFACE": "lo", "LOCAL_DIRECTORY": "/tmp"}
    checkpoint = slurm.folder / "finished"
    said = slurm.machine.serve(
        *(sys.executable, CONFIGS / "slurm/run.py", undisturbed.points, *METRIC),
        *("--jobs", 1, "--checkpoint", checkpoint),
        **{f"DASK_JOBQUEUE__SLURM__{name}": value for name, value in settings.items()},
    )

    def until(true, what):
        wait_until(true, what, RUN_SECONDS, lambda: f"{slurm.jobs()}\n{slurm.servers_say()}")

    until(lambda: len(list(checkpoint.glob("panel-*.npz"))) >= 3, "three panels")
    assert [job["JobName"] for job in slurm.jobs()] == ["silchunk-worker"]
    slurm.machine.run("scancel", slurm.jobs()[0]["JobId"])
    until(lambda: "average silhouette width" in said.read_text(), "the bound")
    printed = float(re.search(r"average silhouette width <= ([\d.]+)", said.read_text())[1])
    bound = undisturbed.bound["bounds"][0]["upper_bound"]
    assert bound <= printed <= bound + 1e-6  # six digits, rounded up
    # What workers were passed is not left behind.
    until(lambda: not list(slurm.folder.glob("silchunk-*")), "an end in good order")
    first, second = slurm.jobs()
    assert first["JobState"] == "CANCELLED"
    assert second["JobName"] == "silchunk-worker"
