"""Workers killed about every second: the same bits as undisturbed."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from drills import Begun, X, content, impatient, kills, local_cluster

import silchunk
from silchunk.engine import executor, map_panels

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

# Of which a bound, too, takes a while.
MORE = np.tile(X, (3, 1))
LABELS = np.random.default_rng(1).integers(0, 5, len(X))


def build(path, scheduler, folder):
    silchunk.build_distances(path, folder / "d.zarr", scheduler=scheduler)
    return content(folder / "d.zarr")


def bound(path, scheduler, folder):
    result = silchunk.silhouette_bounds(path, scheduler=scheduler)
    return result.samples.tobytes(), result.curve().tobytes()


def silhouette(path, scheduler, folder):
    return silchunk.silhouette_samples(
        path, LABELS, metric="canberra", scheduler=scheduler
    ).tobytes()


def fit(path, scheduler, folder):
    model = silchunk.KSil(6, random_state=0, tol=0, max_iter=8, scheduler=scheduler).fit(path)
    return model.cluster_centers_.tobytes(), model.labels_.tobytes(), model.history_


def checkpointed_fit(path, scheduler, folder):
    model = silchunk.KSil(
        6, random_state=0, tol=0, max_iter=8, scheduler=scheduler, checkpoint=folder / "fit"
    ).fit(path)
    return model.cluster_centers_.tobytes(), model.labels_.tobytes(), model.history_


@pytest.fixture(scope="module")
def drill(tmp_path_factory):
    begun = Begun(tmp_path_factory.mktemp("drill"), seconds=0.25)
    with local_cluster(begun) as (cluster, client):
        yield begun, cluster, client


@pytest.mark.parametrize("job", [build, bound, silhouette, fit, checkpointed_fit])
def test_a_job_whose_workers_are_killed_has_the_same_bits(job, drill, tmp_path, monkeypatch):
    begun, cluster, client = drill
    impatient(monkeypatch)
    np.save(tmp_path / "x.npy", MORE if job is bound else X)
    for name in ("undisturbed", "disturbed"):
        (tmp_path / name).mkdir()
    expected = job(tmp_path / "x.npy", "synchronous", tmp_path / "undisturbed")
    with kills(cluster, begun) as killed:
        found = job(tmp_path / "x.npy", client, tmp_path / "disturbed")
        during = len(killed)
    assert found == expected
    assert during >= 1


def echo(start, stop):
    return start


def test_results_that_wait_for_the_driver_may_die_with_their_worker(drill, monkeypatch):
    """They are held up at the driver while their holders are killed."""
    begun, cluster, client = drill
    impatient(monkeypatch)
    got = []
    with kills(cluster, begun, every=0.7, most=4) as killed:

        def consume(index, result):
            threading.Event().wait(0.1)
            got.append(result)

        panels = [(i, i + 1) for i in range(40)]
        map_panels(echo, panels, consume, where=executor(client))
        during = len(killed)
    assert got == list(range(40))
    assert during >= 1
