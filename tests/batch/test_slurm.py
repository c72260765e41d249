"""The scripts of cluster-configs/slurm, submitted as they are to a real SLURM of two nodes."""

from __future__ import annotations

import numpy as np
import pytest
from batch_inputs import (
    CONFIGS,
    METRIC,
    SIZES,
    bounds_in,
    content,
    panels_recorded,
    pauses,
    submitted_until_done,
)
from private_machine import missing
from slurm_here import PROGRAMS, Slurm

from silchunk import open_distances, silhouette_bounds

SCRIPTS = CONFIGS / "slurm"
LACKING = missing(*PROGRAMS)
ONE_NODE = ("--cpus-per-task=1", "--mem=1170M")  # of which 7/8 are 1 GiB
TWO_WORKERS = ("--nodes=2", "--ntasks=2", "--cpus-per-task=1", "--mem-per-cpu=1G")
JOB_SECONDS = 150

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.skipif(bool(LACKING), reason=LACKING),
]


@pytest.fixture(scope="module")
def slurm(folder_of_servers):
    running = Slurm(folder_of_servers("slurm"))
    yield running
    running.close()


def programs(slurm):
    """Command lines of all that runs on the nodes."""
    return slurm.machine.run("ps", "-ww", "-eo", "args")


def test_a_build_cut_off_by_its_wall_time_puts_itself_into_the_queue_again(slurm, undisturbed):
    store = slurm.folder / "d.zarr"
    script = SCRIPTS / "distances.sbatch"
    job = slurm.submit(script, undisturbed.points, store, *METRIC, options=ONE_NODE)
    slurm.when(lambda: panels_recorded(store) >= 3, "three panels", job)
    # As SLURM does it before the wall-time, by --signal=B:USR1@120.
    slurm.machine.run("scancel", "--signal=USR1", "--batch", job)
    found = slurm.ended(job, JOB_SECONDS)
    log = slurm.log(job)
    assert (found["JobState"], found["Restarts"]) == ("COMPLETED", "1"), log
    assert f"job {job}, restart 0: silchunk ended with code 75" in log
    assert f"job {job}, restart 1: silchunk ended with code 0" in log
    [(done, of)] = pauses(log)
    assert 3 <= done < of
    # The second run has computed what the first one had left, no more.
    assert panels_recorded(store) == panels_recorded(undisturbed.store)
    assert content(store) == content(undisturbed.store)
    assert open_distances(store).verify().ok


def test_slurm_itself_tells_a_job_that_its_time_is_nearly_over(slurm):
    # Several times the minute that the job is given, on any machine; a panel is a few seconds.
    np.save(slurm.folder / "many.npy", np.random.default_rng(1).standard_normal((20_000, 480)))
    options = (*ONE_NODE, "--time=1", "--signal=B:USR1@20")
    script = SCRIPTS / "distances.sbatch"
    job = slurm.submit(script, "many.npy", "many.zarr", *METRIC, options=options)
    slurm.when(lambda: slurm.job(job)["Restarts"] == "1", "the job in the queue again", job)
    slurm.machine.run("scancel", job)
    assert "SIGUSR1: ending after the panels under way" in slurm.log(job)
    assert f"job {job}, restart 0: silchunk ended with code 75" in slurm.log(job)
    assert "TIME LIMIT" not in slurm.log(job)


def test_a_build_that_somebody_cancels_does_not_come_back(slurm, undisturbed):
    store = slurm.folder / "cancelled.zarr"
    script = SCRIPTS / "distances.sbatch"
    job = slurm.submit(script, undisturbed.points, store, *METRIC, options=ONE_NODE)
    slurm.when(lambda: panels_recorded(store) >= 1, "a panel", job)
    slurm.machine.run("scancel", job)
    found = slurm.ended(job, JOB_SECONDS)
    assert (found["JobState"], found["Restarts"]) == ("CANCELLED", "0"), slurm.log(job)
    assert "silchunk ended with code 75" in slurm.log(job)
    assert "restart 1" not in slurm.log(job)


def test_a_bound_cut_off_by_its_time_limit_goes_on_when_submitted_again(slurm, undisturbed):
    jobs = []

    def run(limit):
        again = (SCRIPTS / "bound.sbatch", undisturbed.points, *METRIC, *SIZES, "--json")
        jobs.append(slurm.submit(*again, options=ONE_NODE, SILCHUNK_TIME_LIMIT=limit))
        slurm.ended(jobs[-1], JOB_SECONDS)
        return slurm.log(jobs[-1])

    checkpoint = slurm.folder / "points.npy.checkpoint"
    log = submitted_until_done(run, checkpoint, undisturbed.bound_seconds)
    assert bounds_in(log) == undisturbed.bound["bounds"]
    ends = [slurm.job(job)["ExitCode"] for job in jobs]
    assert ends == ["75:0"] * (len(jobs) - 1) + ["0:0"]
    # The curve is written once, when it is complete.
    assert [curve.name for curve in slurm.folder.glob("*.csv")] == [f"silchunk-{jobs[-1]}.csv"]
    sizes = (slurm.folder / f"silchunk-{jobs[-1]}.csv").read_text().splitlines()
    assert len(sizes) == 1 + undisturbed.bound["n"] // 2


def test_a_bound_on_workers_of_two_nodes_is_the_one_computed_here(slurm, undisturbed):
    job = slurm.submit(
        SCRIPTS / "cluster.sbatch",
        *("bound", undisturbed.store, "-m", 20, "--json"),
        options=TWO_WORKERS,
        SILCHUNK_INTERFACE="lo",
    )
    seen = set()

    def over():
        seen.update(line for line in programs(slurm).splitlines() if "dask worker" in line)
        return slurm.job(job)["JobState"] not in ("PENDING", "RUNNING", "COMPLETING")

    slurm.when(over, "the end", job, JOB_SECONDS)
    found = slurm.job(job)
    assert (found["JobState"], found["NodeList"]) == ("COMPLETED", "one,two"), slurm.log(job)
    here = silhouette_bounds(undisturbed.store, min_cluster_size=20)
    [bound] = bounds_in(slurm.log(job))
    assert bound["upper_bound"] == here.at(20)
    # It was the workers that computed, and nothing of it is left.
    assert any(f"silchunk-{job}/scheduler.json" in line for line in seen)
    assert "dask" not in programs(slurm)
    assert not (slurm.folder / f"silchunk-{job}").exists()


def test_a_build_on_workers_is_stopped_and_goes_on_with_others(slurm, undisturbed):
    store = slurm.folder / "by-workers.zarr"
    line = (SCRIPTS / "cluster.sbatch", "distances", undisturbed.points, store, *METRIC)
    first = slurm.submit(*line, options=TWO_WORKERS, SILCHUNK_INTERFACE="lo")
    slurm.when(lambda: panels_recorded(store) >= 3, "three panels", first)
    slurm.machine.run("scancel", "--signal=USR1", "--batch", first)
    assert slurm.ended(first, JOB_SECONDS)["ExitCode"] == "75:0", slurm.log(first)
    assert "dask" not in programs(slurm)
    second = slurm.submit(*line, options=TWO_WORKERS, SILCHUNK_INTERFACE="lo")
    assert slurm.ended(second, JOB_SECONDS)["ExitCode"] == "0:0", slurm.log(second)
    assert panels_recorded(store) == panels_recorded(undisturbed.store)
    assert content(store) == content(undisturbed.store)


def test_several_nodes_need_the_name_of_their_network(slurm, undisturbed):
    arguments = ("bound", undisturbed.store)
    job = slurm.submit(SCRIPTS / "cluster.sbatch", *arguments, options=TWO_WORKERS)
    assert slurm.ended(job, JOB_SECONDS)["ExitCode"] == "64:0"
    assert "set SILCHUNK_INTERFACE to the network between the nodes" in slurm.log(job)
