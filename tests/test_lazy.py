"""Results as Dask arrays: nothing is computed before somebody asks, and then as ever."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
from sklearn.metrics import silhouette_samples as reference

import silchunk
from silchunk.engine import arrays
from silchunk.errors import InputError, OverBudgetError
from silchunk.machine import memory_limit

rng = np.random.default_rng(0)
X = rng.standard_normal((300, 4))
LABELS = rng.integers(0, 5, 300)
OTHERS = rng.integers(0, 3, 300)


def forbidden(*arguments, **keywords):
    raise AssertionError("something was computed")


@pytest.fixture
def stored(tmp_path):
    np.save(tmp_path / "x.npy", X)
    return str(tmp_path / "x.npy")


@pytest.fixture
def chunked():
    return da.from_array(X, chunks=(70, 3))


@pytest.mark.parametrize("kind", ["array", "path", "dask", "store"])
def test_nothing_is_computed_before_it_is_asked_for(kind, stored, chunked, tmp_path):
    given = {"array": X, "path": stored, "dask": chunked}.get(kind)
    if kind == "store":
        given = silchunk.build_distances(X, tmp_path / "d.zarr", dtype="float64", progress=False)
    labels = da.from_array(LABELS, chunks=100) if kind == "dask" else LABELS
    with dask.config.set(scheduler=forbidden):
        samples = silchunk.silhouette_samples(given, labels, compute=False)
    assert isinstance(samples, da.Array)
    assert (samples.shape, samples.dtype, samples.numblocks) == ((300,), np.float64, (1,))
    assert np.allclose(samples.compute(), reference(X, LABELS), rtol=0, atol=1e-12)


def test_it_is_computed_with_what_is_made_of_it_and_with_others(chunked):
    first = silchunk.silhouette_samples(chunked, LABELS, compute=False)
    second = silchunk.silhouette_samples(chunked, OTHERS, compute=False)
    mean, best, worst = dask.compute(first.mean(), da.maximum(first, second), second[:40].min())
    one, other = reference(X, LABELS), reference(X, OTHERS)
    assert mean == pytest.approx(one.mean(), abs=1e-12)
    assert np.allclose(best, np.maximum(one, other), rtol=0, atol=1e-12)
    assert worst == pytest.approx(other[:40].min(), abs=1e-12)


def test_parameters_go_with_it():
    weights = da.from_array(rng.random(300) + 0.5, chunks=50)
    keywords = {"metric": "minkowski", "metric_params": {"p": 3}, "sample_weight": weights}
    samples = silchunk.silhouette_samples(X, LABELS, compute=False, **keywords)
    at_once = silchunk.silhouette_samples(
        X, LABELS, **{**keywords, "sample_weight": weights.compute()}
    )
    assert np.array_equal(samples.compute(), at_once)


def test_its_budget_is_kept_to():
    samples = silchunk.silhouette_samples(X, LABELS, compute=False, memory="1MiB")
    with pytest.raises(OverBudgetError, match="Raise memory= to"):
        samples.compute()


def test_mistakes_are_told_when_it_is_computed():
    samples = silchunk.silhouette_samples(X, LABELS[:-1], compute=False)
    with pytest.raises(InputError, match="labels must have one entry for each of the 300 points"):
        samples.compute()


def test_lengths_that_are_not_known_are_refused(chunked):
    unknown = chunked[chunked[:, 0] > 0]
    with pytest.raises(InputError, match=r"call compute_chunk_sizes\(\)"):
        silchunk.silhouette_samples(unknown, LABELS, compute=False)


def test_where_it_runs_is_not_to_be_said_twice():
    with pytest.raises(InputError, match="leave out scheduler=, got 'synchronous'"):
        silchunk.silhouette_samples(X, LABELS, compute=False, scheduler="synchronous")
    samples = silchunk.silhouette_samples(X, LABELS, compute=False, scheduler="threads")
    assert samples.shape == (300,)


def test_dasks_own_scheduler_may_be_any(chunked):
    samples = silchunk.silhouette_samples(chunked, LABELS, compute=False)
    for scheduler in ("synchronous", "threads"):
        computed = samples.compute(scheduler=scheduler)
        assert np.allclose(computed, reference(X, LABELS), rtol=0, atol=1e-12)


def test_without_a_worker_the_budget_is_that_of_the_machine():
    assert arrays._default_memory() == int(0.6 * memory_limit())


def where(X, *, scheduler, memory):
    """What a function is given: a budget, a scheduler, and what of X could be read."""
    return np.array([memory, scheduler == "threads", float(X[0:1].compute()[0, 0])])


@pytest.mark.cluster
def test_more_results_than_threads_of_a_cluster_do_not_wait_for_each_other(client, chunked):
    several = [silchunk.silhouette_samples(chunked, LABELS, compute=False) for _ in range(5)]
    for computed in client.gather(client.compute(several), errors="raise"):
        assert np.allclose(computed, reference(X, LABELS), rtol=0, atol=1e-12)


@pytest.mark.cluster
def test_a_worker_keeps_to_its_own_limit(client, chunked):
    result = arrays.lazy_vector(where, lambda: len(chunked), chunked)
    memory, on_threads, first = client.compute(result).result(timeout=60)
    assert memory == int(0.6 * 2**31)
    assert on_threads
    assert first == X[0, 0]


@pytest.mark.cluster
def test_arrays_that_workers_keep_are_refused(client, chunked):
    kept = client.persist(chunked)
    with pytest.raises(InputError, match="kept by the workers of a cluster"):
        silchunk.silhouette_samples(kept, LABELS, compute=False)
