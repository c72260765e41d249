"""What a cluster is to be given: plans that the planner makes, nodes that hold them, times."""

from __future__ import annotations

import heapq
import json

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import silchunk
from silchunk import InputError, OverBudgetError, machine
from silchunk.cli.base import BAD_INPUT, OVER_BUDGET, app
from silchunk.cluster_size import (
    PREFERRED_THREADS,
    RESULT_SECONDS,
    cluster_table,
    schedule_seconds,
)
from silchunk.estimate import Estimate, estimate_bounds, estimate_distances
from silchunk.plan import plan_panels

MIB, GIB = 1 << 20, 1 << 30
X = np.random.default_rng(0).standard_normal((700, 5)).astype(np.float32)


def made_up(n, row_seconds=1e-3, **sizes):
    """An estimate of points that do not exist."""
    sizes = {
        "n": n,
        "width": 32,
        "itemsize": 4,
        "from_points": True,
        "resident_bytes": 16 * n,
        "chunk_rows": 1,
        "outputs": 0,
        "row_results": 1,
        **sizes,
    }
    plan = plan_panels(**sizes, budget_bytes=1 << 50, concurrency=1)
    return Estimate(plan, n * row_seconds, 0, 0, row_seconds, _sizes=sizes, _in_order=True)


@settings(deadline=None)
@given(
    n=st.integers(2, 10_000_000),
    chunk_rows=st.sampled_from([1, 1000, 5000]),
    outputs=st.integers(0, 1),
    node_memory=st.integers(1 << 26, 1 << 42),
    cores=st.integers(1, 130),
    nodes=st.integers(1, 600),
)
def test_what_is_recommended_fits_its_node_and_is_what_the_planner_makes(
    n, chunk_rows, outputs, node_memory, cores, nodes
):
    estimate = made_up(n, chunk_rows=chunk_rows, outputs=outputs)
    try:
        (size,) = cluster_table(estimate, node_memory=node_memory, node_cores=cores, nodes=[nodes])
    except OverBudgetError:
        # Then one thread of one worker, with all of the node, cannot be planned either.
        budget = machine.default_budget(node_memory) // MIB * MIB
        with pytest.raises(OverBudgetError, match="points need at least"):
            estimate.plan_on_workers(budget, 1)
        return
    assert size.plan == estimate.plan_on_workers(size.memory_bytes, size.threads_per_worker)
    assert size.plan.concurrency == size.threads_per_worker
    assert size.plan.peak_bytes <= size.memory_bytes <= machine.default_budget(size.limit_bytes)
    assert size.workers_per_node * size.limit_bytes <= node_memory
    assert size.workers_per_node * size.threads_per_worker <= cores
    assert 0 < size.efficiency <= 1
    assert size.at_once == nodes * size.workers_per_node * size.threads_per_worker


def test_processes_have_few_threads_where_memory_allows():
    (size,) = cluster_table(made_up(100_000), node_memory=64 * GIB, node_cores=16, nodes=[1])
    assert (size.workers_per_node, size.threads_per_worker) == (4, PREFERRED_THREADS)
    # The interpreters of four processes would leave no room for all panels.
    (size,) = cluster_table(made_up(100_000), node_memory=2 * GIB, node_cores=16, nodes=[1])
    assert size.workers_per_node * size.threads_per_worker == 16
    assert size.threads_per_worker > PREFERRED_THREADS


def test_no_core_is_left_out_for_a_round_number_of_threads():
    for cores in (1, 2, 3, 6, 7, 12, 17):
        (size,) = cluster_table(made_up(50_000), node_memory="256GiB", node_cores=cores, nodes=[1])
        assert size.at_once == cores


def test_cores_that_memory_cannot_feed_are_left_idle():
    (size,) = cluster_table(made_up(2_000_000), node_memory="6GiB", node_cores=64, nodes=[1])
    assert 1 <= size.at_once < 64


def test_panels_are_shorter_where_threads_would_be_idle():
    # Chunks of 4,096 rows make for 25 panels, of which 64 nodes would have little.
    node = {"node_memory": "256GiB", "node_cores": 8, "nodes": [1, 64]}
    few, many = cluster_table(made_up(100_000, 0.1, chunk_rows=4096), **node)
    assert few.plan.panel_rows > many.plan.panel_rows == 256
    assert few.memory_bytes > many.memory_bytes
    # Where the driver could not take more results, long panels stay.
    few, many = cluster_table(made_up(100_000, 1e-4, chunk_rows=4096), **node)
    assert many.plan.panel_rows > 256


def test_nodes_are_doubled_until_there_is_nothing_left_to_do():
    sizes = cluster_table(made_up(20_000), node_memory="64GiB", node_cores=16)
    assert [size.nodes for size in sizes] == [1, 2, 4, 8]  # 79 panels, 128 threads
    assert [size.plan.n_panels for size in sizes] == [79] * 4
    times = [size.seconds for size in sizes]
    assert times == sorted(times, reverse=True)


def test_waiting_results_of_a_curve_are_counted_for_the_driver():
    one, whole = (
        cluster_table(made_up(100_000, outputs=k), node_memory="64GiB", node_cores=16, nodes=[4])
        for k in (0, 1)
    )
    # Four for each of 64 threads, of which each holds a number for every point. Of small ones, more
    # may wait, yet no more than a mebibyte of them.
    more = whole[0].driver_bytes - one[0].driver_bytes
    assert 4 * 64 * 8 * 100_000 - (1 << 20) <= more <= 4 * 64 * 8 * 100_000


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"node_memory": "300MiB"}, OverBudgetError, "a node of 300 MiB is too small"),
        ({"node_memory": "much"}, InputError, "node_memory must be bytes"),
        ({"node_cores": 0}, InputError, "node_cores must be whole numbers of 1 or more"),
        ({"nodes": [1, 0]}, InputError, "nodes must be whole numbers of 1 or more; got 0"),
        ({"nodes": [2.5]}, InputError, "nodes must be whole numbers of 1 or more; got 2.5"),
    ],
)
def test_nodes_that_cannot_be(options, error, message):
    with pytest.raises(error, match=message):
        cluster_table(made_up(1_000_000), **options)


def played(n_panels, panel_seconds, at_once):
    """The end of a schedule in which whoever is free takes the next panel."""
    free = [0.0] * at_once
    for _ in range(n_panels):
        heapq.heapreplace(free, free[0] + panel_seconds)
    return max(free)


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(1, 64), st.integers(1, 70))
def test_times_are_those_of_a_schedule_that_is_played(n_panels, panel_seconds, at_once):
    free = {"round_trip_seconds": 0.0, "result_seconds": 0.0}
    expected = played(n_panels, panel_seconds, at_once)
    assert schedule_seconds(n_panels, panel_seconds, at_once, **free) == expected


def test_round_trips_and_the_driver_limit_what_short_panels_gain():
    costs = {"round_trip_seconds": 1.0, "result_seconds": 0.25}
    # Hidden behind a longer panel, but for the last one.
    assert schedule_seconds(8, 4.0, 2, **costs) == 4 * 4.0 + 1.0
    # Two are under way for a thread: one comes every half round trip and panel.
    assert schedule_seconds(8, 0.5, 2, **costs) == 4 * 0.75 + 1.0
    # However many threads there are, results are taken one by one.
    assert schedule_seconds(800, 4.0, 800, **costs) == 4.0 + 800 * 0.25 + 1.0
    assert schedule_seconds(1000, 0.0, 1000) >= 1000 * RESULT_SECONDS


def test_short_panels_share_a_message_and_its_costs():
    costs = {"round_trip_seconds": 0.0, "result_seconds": 0.25}
    # Sixteen of a 64th of a second are a quarter.
    assert schedule_seconds(1600, 1 / 64, 1, **costs) == 16 / 64 + 100 * 0.25
    # Where few are left, all threads have a part.
    assert schedule_seconds(64, 1 / 64, 8, **costs) == 8 / 64 + 8 * 0.25


def stored(kind, folder):
    if kind == "zarr":
        array = zarr.create_array(folder / "x.zarr", shape=X.shape, chunks=(300, 5), dtype=X.dtype)
        array[:] = X
        return folder / "x.zarr"
    if kind == "matrix":
        np.save(folder / "d.npy", np.abs(X[:, :1].astype(float) - X[:, 0]))
        return folder / "d.npy"
    np.save(folder / "x.npy", X)
    return folder / "x.npy"


@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["npy", "zarr", "matrix"])
@pytest.mark.parametrize("curve", [False, True])
def test_bounds_on_a_cluster_are_planned_as_the_table_says(client, tmp_path, kind, curve):
    path = stored(kind, tmp_path)
    options = {"metric": "precomputed" if kind == "matrix" else "euclidean", "curve": curve}
    (size,) = cluster_table(
        estimate_bounds(path, **options), node_memory="2GiB", node_cores=1, nodes=[2]
    )
    there = estimate_bounds(path, **options, memory=size.memory_bytes, scheduler=client)
    assert there.plan == size.plan
    if curve:
        result = silchunk.silhouette_bounds(
            path, metric=options["metric"], memory=size.memory_bytes, scheduler=client
        )
        assert result.plan == size.plan


@pytest.mark.cluster
@pytest.mark.parametrize("metric", ["euclidean", "canberra"])
def test_stores_on_a_cluster_are_planned_as_the_table_says(client, tmp_path, metric):
    path = stored("npy", tmp_path)
    found = estimate_distances(path, metric=metric)
    assert found.seconds > 0
    (size,) = cluster_table(found, node_memory="2GiB", node_cores=1, nodes=[2])
    there = estimate_distances(path, metric=metric, memory=size.memory_bytes, scheduler=client)
    assert there.plan == size.plan
    built = silchunk.build_distances(
        path, tmp_path / "d.zarr", metric=metric, memory=size.memory_bytes, scheduler=client
    )
    assert built.layout.panel_rows == size.plan.panel_rows
    assert built.nbytes_stored <= found.stored_bytes


def test_a_matrix_is_not_stored_again(tmp_path):
    with pytest.raises(InputError, match="a matrix of distances already"):
        estimate_distances(stored("matrix", tmp_path), metric="precomputed")


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stored("npy", tmp_path)
    stored("matrix", tmp_path)

    def invoked(*arguments, code=0):
        result = CliRunner().invoke(app, ["estimate", *arguments])
        assert result.exit_code == code, result.output
        return result

    return invoked


NODE = ("--cluster", "--node-memory", "8GiB", "--node-cores", "2")


def test_the_command_prints_a_table_for_each_job(run):
    lines = run("x.npy", *NODE, "--nodes", "1,3").stdout.splitlines()
    for job in ("bound:", "distances:"):
        title = next(i for i, line in enumerate(lines) if line.startswith(job))
        assert [line.split()[:3] for line in lines[title + 1 : title + 3]] == [
            ["1", "1", "2"],
            ["3", "3", "2"],
        ]
    assert "more than 3 threads have nothing to do" in lines
    matrix = run("d.npy", "--metric", "precomputed", *NODE).stdout
    assert "bound:" in matrix
    assert "distances:" not in matrix


def test_the_command_prints_the_same_as_json(run):
    facts = json.loads(run("x.npy", *NODE, "--nodes", "1,3", "--json").stdout)
    assert facts["n"] == 700
    for job in ("bound", "distances"):
        assert [size["nodes"] for size in facts["cluster"][job]] == [1, 3]
        for size in facts["cluster"][job]:
            assert size["at_once"] == 2 * size["nodes"]
            assert size["plan"]["n_panels"] == 3
            assert size["plan"]["peak_bytes"] <= size["memory_bytes"]
    assert "cluster" not in json.loads(run("x.npy", "--json").stdout)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--nodes", "2"], BAD_INPUT, "go with --cluster"),
        (["--node-cores", "2"], BAD_INPUT, "go with --cluster"),
        (["--cluster", "--nodes", "1;2"], BAD_INPUT, "--nodes takes integers"),
        (["--cluster", "--nodes", "0"], BAD_INPUT, "whole numbers of 1 or more"),
        (["--cluster", "--node-memory", "lots"], BAD_INPUT, "memory must be bytes"),
        (["--cluster", "--node-memory", "200MiB"], OVER_BUDGET, "a node of 200 MiB is too small"),
    ],
)
def test_mistakes_on_the_command_line(run, arguments, code, message):
    assert message in run("x.npy", *arguments, code=code).stderr
