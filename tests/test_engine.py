"""Running panels: order, schedulers, failures, and the same bits everywhere."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
import threading
import types

import dask
import dask.array as da
import numpy as np
import pytest
from threadpoolctl import threadpool_info

import silchunk
from silchunk import ClusterError, InputError, blas, engine, inbox, progress, silhouette_bounds
from silchunk.engine import executor, flight, map_panels, remote
from silchunk.sums import AlignedSum, Node

PANELS = [(i, i + 1) for i in range(50)]


def results(task, where, **options):
    seen = []
    map_panels(task, PANELS, lambda i, r: seen.append((i, r)), where=where, **options)
    return seen


def double(start, stop):
    return start + stop


@pytest.mark.parametrize("scheduler", ["threads", "synchronous", "sync", "single-threaded"])
def test_results_come_in_order(scheduler):
    assert results(double, executor(scheduler)) == [(i, 2 * i + 1) for i in range(50)]


@pytest.mark.parametrize("slow", [0, 7])
def test_results_that_come_early_are_few(slow, monkeypatch):
    most = 0
    put = inbox.Inbox.put

    def watched(self, index, result):
        nonlocal most
        put(self, index, result)
        most = max(most, len(self.waiting))

    def task(start, stop):
        threading.Event().wait(0.3 if start == slow else 0.001)
        return start

    monkeypatch.setattr(inbox.Inbox, "put", watched)
    panels = [(i, i + 1) for i in range(400)]
    seen = []
    with dask.config.set(num_workers=3):
        map_panels(task, panels, lambda i, r: seen.append(r), where=executor("threads"))
    assert seen == list(range(400))
    assert 0 < most <= inbox.LOOK_AHEAD * 3


def test_a_failure_wakes_those_who_wait():
    def task(start, stop):
        threading.Event().wait(0.2 if start == 0 else 0.001)
        if start == 0:
            raise InputError("the first panel is bad")

    with dask.config.set(num_workers=3), pytest.raises(InputError, match="the first panel is bad"):
        results(task, executor("threads"))


def test_tasks_at_once_are_bounded():
    running, most, lock = 0, 0, threading.Lock()

    def task(start, stop):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.002)
        with lock:
            running -= 1

    with dask.config.set(num_workers=4):
        results(task, executor("threads"), concurrency=2)
    assert most == 2


def test_one_blas_thread_in_tasks():
    def task(start, stop):
        return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]

    before = task(0, 1)
    for _, threads in results(task, executor("threads")):
        assert set(threads) <= {1}
    assert task(0, 1) == before


def test_libraries_are_looked_for_again_where_one_module_took_the_place_of_another(monkeypatch):
    monkeypatch.setitem(sys.modules, "one_module", types.ModuleType("one_module"))
    before = blas._controller()
    assert blas._controller() is before
    monkeypatch.delitem(sys.modules, "one_module")
    monkeypatch.setitem(sys.modules, "another_module", types.ModuleType("another_module"))
    assert blas._controller() is not before


def test_failed_reads_are_tried_again(caplog):
    failures = {3: 2, 7: 1}

    def task(start, stop):
        if failures.get(start, 0):
            failures[start] -= 1
            raise OSError("the network drive blinked")
        return start

    with caplog.at_level(logging.WARNING, "silchunk"):
        assert results(task, executor("threads")) == [(i, i) for i in range(50)]
    assert caplog.text.count("the network drive blinked") == 3


def test_reads_that_keep_failing_are_reported():
    def task(start, stop):
        raise OSError("the drive is gone")

    with pytest.raises(OSError, match="the drive is gone"):
        results(task, executor("threads"))


def test_errors_of_tasks_surface():
    def task(start, stop):
        raise InputError("row 7 is bad")

    with pytest.raises(InputError, match="row 7 is bad"):
        results(task, executor("threads"))


@pytest.mark.parametrize("scheduler", ["processes", "fastest", 7])
def test_unknown_schedulers(scheduler):
    with pytest.raises(InputError, match="scheduler"):
        executor(scheduler)


def test_dask_configuration_is_respected():
    with dask.config.set(scheduler="synchronous"):
        assert executor().scheduler == "synchronous"
    with dask.config.set(num_workers=3):
        assert executor().concurrency == 3
    assert executor().scheduler == "threads"


def test_progress_callable():
    steps = []
    results(double, executor("threads"), progress=lambda done, total: steps.append((done, total)))
    assert steps == [(i, 50) for i in range(1, 51)]


def test_progress_lines(monkeypatch):
    monkeypatch.setattr(progress, "QUIET_SECONDS", -1.0)
    stream = io.StringIO()
    with progress.reporting(True, "silhouette bound", stream) as advance:
        for done in range(1, 201):
            advance(done, 200)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 20
    assert lines[0].startswith("silhouette bound: 5% (10 of 200 panels, ")
    assert lines[-1].startswith("silhouette bound: 100% (200 of 200 panels, ")


def test_progress_bar(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(progress, "QUIET_SECONDS", -1.0)
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with progress.reporting(None, "silhouette bound", stream) as advance:
        for done in range(1, 11):
            advance(done, 10)
    assert "silhouette bound" in stream.getvalue()


def test_progress_is_silent_where_asked(capsys):
    with progress.reporting(False, "quiet") as advance:
        advance(1, 1)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("leaves", [1, 2, 3, 5, 8, 13, 64, 100])
def test_sums_do_not_depend_on_panel_length(leaves):
    vectors = np.random.default_rng(leaves).random((leaves, 3)) * 10.0 ** np.arange(-8, 1, 4)
    totals = []
    for step in (1, 2, 4, 8, 128):
        whole = AlignedSum()
        for start in range(0, leaves, step):
            part = AlignedSum()
            for vector in vectors[start : start + step]:
                part.add(Node(0, vector))
            for node in part.nodes:
                whole.add(node)
        totals.append(whole.total())
    for total in totals[1:]:
        assert np.array_equal(total, totals[0])
    np.testing.assert_allclose(totals[0], vectors.sum(axis=0), rtol=1e-14)


X = np.random.default_rng(5).standard_normal((1500, 9)).astype(np.float32)


def same(one, other):
    return np.array_equal(one.samples, other.samples) and np.array_equal(one.curve(), other.curve())


def test_budget_and_threads_do_not_change_a_bit():
    whole = silhouette_bounds(X)
    plans = set()
    for memory in ("235MiB", "240MiB", "4GiB"):
        for workers in (1, 2, 3):
            with dask.config.set(num_workers=workers):
                result = silhouette_bounds(X, memory=memory)
            plans.add((result.plan.panel_rows, result.plan.concurrency))
            assert same(result, whole)
    assert same(silhouette_bounds(X, scheduler="synchronous"), whole)
    assert len({rows for rows, _ in plans}) > 1, "the budgets were to give different plans"


@pytest.mark.cluster
def test_a_cluster_gives_the_same_bits(client, tmp_path):
    whole = silhouette_bounds(X)
    np.save(tmp_path / "x.npy", X)
    for given in (X, tmp_path / "x.npy", da.from_array(X, chunks=(400, 9))):
        assert same(silhouette_bounds(given, scheduler=client), whole)
    D = np.abs(X[:300, :1].astype(float) - X[:300, :1].T)
    one = silhouette_bounds(D, metric="precomputed", scheduler=client)
    assert same(one, silhouette_bounds(D, metric="precomputed"))


@pytest.mark.cluster
def test_the_active_client_is_used(client):
    with client.as_current():
        where = executor()
    assert where.client is client
    assert (where.processes, where.concurrency) == (2, 1)
    assert where.memory_bytes == 2 << 30
    assert engine.byte_budget(None, where) == int(0.6 * (2 << 30))
    assert executor("threads").client is None


@pytest.mark.cluster
def test_few_bytes_are_looked_at_here_and_many_by_workers(client):
    where = executor(client)
    assert not where.nearby(engine.NEARBY_BYTES).distributed
    assert where.nearby(engine.NEARBY_BYTES + 1) is where
    threads = executor("threads")
    assert threads.nearby(1) is threads


@pytest.mark.cluster
def test_errors_come_back_from_workers(client):
    bad = X.copy()
    bad[77, 3] = np.nan
    with pytest.raises(InputError, match="X has nan at row 77, column 3"):
        silhouette_bounds(bad, scheduler=client)
    assert results(double, executor(client)) == [(i, 2 * i + 1) for i in range(50)]


@pytest.mark.cluster
def test_dask_arrays_of_the_client_are_computed_there(client):
    array = client.persist(da.from_array(X, chunks=(400, 9)))
    assert same(silhouette_bounds(array, scheduler=client), silhouette_bounds(X))


@pytest.mark.cluster
@pytest.mark.slow
def test_a_closed_client_is_an_error():
    from distributed import Client, LocalCluster

    with LocalCluster(
        n_workers=1, host="127.0.0.1", dashboard_address="127.0.0.1:0", threads_per_worker=1
    ) as cluster:
        client = Client(cluster, set_as_default=False)
        client.close()
        with pytest.raises(ClusterError, match="client is closed"):
            executor(client)


@pytest.mark.cluster
@pytest.mark.slow
def test_a_cluster_that_loses_its_workers_does_not_hang(monkeypatch):
    from distributed import Client, LocalCluster

    monkeypatch.setattr(remote, "LOST_SECONDS", 2.0)
    monkeypatch.setattr(flight, "POLL_SECONDS", 0.5)
    with (
        LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
        pytest.raises(ClusterError, match="has had no worker for 2 seconds"),
    ):
        silhouette_bounds(X, scheduler=client)


def test_importing_starts_nothing_and_stays_light():
    code = (
        "import sys, silchunk, threading; silchunk.silhouette_bounds; "
        "heavy = {'distributed', 'matplotlib', 'pandas', 'sklearn'} & set(sys.modules); "
        "assert not heavy, heavy; assert threading.active_count() == 1"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert silchunk.__version__


def test_kernels_have_the_names_of_their_modules():
    from silchunk import kernels

    assert not hasattr(kernels, "_nothing")
    with pytest.raises(AttributeError, match=r"'silchunk.kernels' has no attribute 'nothing'"):
        kernels.nothing  # noqa: B018 (the access is what is tested)


LOADED_SIDE_BY_SIDE = """
import copy, pkgutil, threading
from silchunk import kernels
unloaded = [getattr(kernels, module.name) for module in pkgutil.iter_modules(kernels.__path__)]
copy.deepcopy(unloaded)
barrier, failed = threading.Barrier(len(unloaded)), []

def look(module):
    barrier.wait()
    try:
        module.annotations  # which every module imports from __future__
    except Exception as error:
        failed.append(error)

threads = [threading.Thread(target=look, args=[module]) for module in unloaded]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failed, failed
"""


def test_threads_may_load_kernels_side_by_side():
    for _ in range(3):
        subprocess.run([sys.executable, "-c", LOADED_SIDE_BY_SIDE], check=True, timeout=120)


@pytest.mark.parametrize(
    ("job", "compiled"),
    [
        ("silchunk.silhouette_table(X, labels, metric='manhattan')", False),
        ("silchunk.compare_labels(labels, labels[::-1])", False),
        ("silchunk.silhouette_table(X, labels)", True),
    ],
)
def test_what_needs_no_compiled_kernel_does_without_numba(job, compiled):
    code = (
        "import sys, numpy as np, silchunk; X = np.arange(40.0).reshape(20, 2) ** 2; "
        f"labels = np.arange(20) % 3; {job}; assert ('numba' in sys.modules) == {compiled}"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
