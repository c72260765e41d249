"""The scripts of cluster-configs/sge, submitted as they are to a real Grid Engine of one host."""

from __future__ import annotations

import pytest
from batch_inputs import (
    CONFIGS,
    MEMORY,
    METRIC,
    SIZES,
    bounds_in,
    content,
    panels_recorded,
    pauses,
    submitted_until_done,
)
from private_machine import missing
from sge_here import PROGRAMS, GridEngine

SCRIPTS = CONFIGS / "sge"
LACKING = missing(*PROGRAMS)
ONE_SLOT = ("-pe", "smp", "1")
JOB_SECONDS = 180

pytestmark = [
    pytest.mark.sge,
    pytest.mark.slow,
    pytest.mark.skipif(bool(LACKING), reason=LACKING),
]


@pytest.fixture(scope="module")
def sge(folder_of_servers):
    running = GridEngine(folder_of_servers("sge"))
    yield running
    running.close()


def test_a_build_that_is_to_be_suspended_puts_itself_into_the_queue_again(sge, undisturbed):
    store = sge.folder / "d.zarr"
    job = sge.submit(
        SCRIPTS / "distances.sge",
        *(undisturbed.points, store, *METRIC),
        options=ONE_SLOT,
        SILCHUNK_MEMORY=MEMORY,
    )
    sge.when(lambda: panels_recorded(store) >= 3, "three panels", job)
    sge.machine.run("qmod", "-sj", job)
    sge.ended(job, JOB_SECONDS)
    log = sge.log(job)
    assert f"job {job}, restarted 0: silchunk ended with code 75" in log, log
    assert f"job {job}, restarted 1: silchunk ended with code 0" in log, log
    [(done, of)] = pauses(log)
    assert 3 <= done < of
    # The second run has computed what the first one had left, no more.
    assert panels_recorded(store) == panels_recorded(undisturbed.store)
    assert content(store) == content(undisturbed.store)


def test_a_build_without_time_for_a_panel_does_not_come_back(sge, undisturbed):
    job = sge.submit(
        SCRIPTS / "distances.sge",
        *(undisturbed.points, sge.folder / "never.zarr", *METRIC),
        options=ONE_SLOT,
        SILCHUNK_MEMORY=MEMORY,
        SILCHUNK_TIME_LIMIT="0.1s",
    )
    sge.ended(job, JOB_SECONDS)
    # The first run has made the store, the second one nothing.
    assert sge.log(job).count("into the queue again") <= 1
    assert "not one panel was finished: give it more time" in sge.log(job)


def test_a_build_that_somebody_deletes_does_not_come_back(sge, undisturbed):
    store = sge.folder / "deleted.zarr"
    job = sge.submit(
        SCRIPTS / "distances.sge",
        *(undisturbed.points, store, *METRIC),
        options=ONE_SLOT,
        SILCHUNK_MEMORY=MEMORY,
    )
    sge.when(lambda: panels_recorded(store) >= 1, "a panel", job)
    sge.machine.run("qdel", job)
    sge.ended(job, JOB_SECONDS)
    # USR2, which comes before the kill, is passed on as one that silchunk knows.
    assert "silchunk ended with code 75" in sge.log(job)
    assert "into the queue again" not in sge.log(job)
    assert len(pauses(sge.log(job))) == 1


def test_a_bound_cut_off_by_its_time_limit_goes_on_when_submitted_again(sge, undisturbed):
    def run(limit):
        job = sge.submit(
            SCRIPTS / "bound.sge",
            *(undisturbed.points, *METRIC, *SIZES, "--json"),
            options=ONE_SLOT,
            SILCHUNK_MEMORY=MEMORY,
            SILCHUNK_TIME_LIMIT=limit,
        )
        sge.ended(job, JOB_SECONDS)
        return sge.log(job)

    checkpoint = sge.folder / "points.npy.checkpoint"
    log = submitted_until_done(run, checkpoint, undisturbed.bound_seconds)
    assert bounds_in(log) == undisturbed.bound["bounds"]
