"""Initial centres: what is read for them, and the same bits however points are stored."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import dask
import numpy as np
import pytest
import zarr
from scipy import stats
from seeding_inputs import blobs, centres_of, job_of

from silchunk.cluster import seeding
from silchunk.cluster.points import Points
from silchunk.cluster.seeding import INITS, ROUNDS, initial_centres
from silchunk.plan import GRID_ROWS
from silchunk.rows import ArrayRows

# Reading.


@dataclass(frozen=True)
class CountingRows:
    """Notes how many rows are read."""

    source: object
    counts: list = field(default_factory=list)
    chunk_rows: int = 1
    resident_bytes: int = 0

    @property
    def shape(self):
        return self.source.shape

    @property
    def dtype(self):
        return self.source.dtype

    def rows(self, start, stop, columns=slice(None)):
        self.counts.append(stop - start)
        return self.source.rows(start, stop, columns)


def rows_read(X, n_clusters, init):
    with job_of(X, n_clusters) as job:
        source = CountingRows(ArrayRows(X))
        initial_centres(job, Points(source), n_clusters, init, np.random.default_rng(0))
    return source.counts


def test_rounds_take_one_pass_each_and_one_for_weights():
    X, _ = blobs(3 * GRID_ROWS + 5, 2, 4)
    counts = rows_read(X, 4, "k-means||")
    assert sum(counts) == (ROUNDS + 1) * len(X) + 1  # the first candidate is read alone
    # Four points: a round finds the others, the next one that there are no more.
    few = np.repeat(np.arange(4.0)[:, None], 30, axis=0)
    assert sum(rows_read(few, 4, "k-means||")) == 2 * len(few) + 1


def test_random_reads_what_it_draws():
    X, _ = blobs(3000, 2, 4)
    assert rows_read(X, 4, "random") == [1] * 4


def test_plus_plus_reads_a_sample_in_stretches(monkeypatch, caplog):
    X, _ = blobs(30_000, 2, 4)
    monkeypatch.setattr(seeding, "SAMPLE_ROWS", 200)
    monkeypatch.setattr(seeding, "SAMPLE_READ_BYTES", 16 * 1000)
    with caplog.at_level(logging.INFO, logger="silchunk"):
        counts = rows_read(X, 4, "k-means++")
    assert len(counts) <= 30
    assert max(counts) <= 1000
    assert "k-means++ picks 4 of 200 points, of 30000" in caplog.text


@pytest.mark.parametrize("chunk_rows", [1, 7, 5000])
def test_samples_are_read_as_they_are(chunk_rows, monkeypatch):
    X, _ = blobs(3000, 2, 4)
    weights = np.random.default_rng(0).uniform(size=3000)
    index = np.sort(np.random.default_rng(1).choice(3000, 150, replace=False))
    monkeypatch.setattr(seeding, "SAMPLE_READ_BYTES", 16 * 40)
    source = CountingRows(ArrayRows(X), chunk_rows=chunk_rows)
    sample, sample_weights = seeding._read(Points(source, weights), index)
    assert np.array_equal(sample, X[index])
    assert np.array_equal(sample_weights, weights[index])
    assert sum(source.counts) <= 3000


def test_every_point_is_as_likely_in_a_sample():
    weights = np.array([5.0, 0.0, 1.0, 1e-300, 2.0, 1e300])
    points, random = Points(ArrayRows(np.zeros((6, 1))), weights), np.random.default_rng(0)
    draws = [seeding._drawn_rows(points, 2, random, equally=True) for _ in range(1500)]
    counts = np.bincount(np.concatenate(draws), minlength=6)
    assert counts[1] == 0
    pairs = [tuple(sorted(draw.tolist())) for draw in draws]
    observed = [pairs.count(pair) for pair in set(pairs)]
    assert len(observed) == 10  # of five rows
    assert stats.chisquare(observed).pvalue > 1e-4


# Same bits, however points are stored and whatever passes over them.

N = 3 * GRID_ROWS + 123


def stored(X, kind, folder):
    if kind == "array":
        return X
    if kind == "npy":
        np.save(folder / "x.npy", X)
        return str(folder / "x.npy")
    chunks = {"short chunks": (500, 3), "long chunks": (10_000, 2)}[kind]
    zarr.create_array(folder / "x.zarr", data=X, chunks=chunks)
    return str(folder / "x.zarr")


@pytest.fixture(params=[None, "weights"])
def case(request, monkeypatch):
    monkeypatch.setattr(seeding, "SAMPLE_ROWS", 600)
    X = blobs(N, 3, 6, noise=1.0)[0].astype(np.float32)
    weights = None
    if request.param:
        weights = np.random.default_rng(2).uniform(0.0, 2.0, N)
    expected = {
        init: centres_of(X, 11, init, seed=8, weights=weights, scheduler="synchronous")
        for init in INITS
    }
    return X, weights, expected


@pytest.mark.parametrize("kind", ["array", "npy", "short chunks", "long chunks"])
def test_same_bits_for_any_source_and_threads(case, kind, tmp_path):
    X, weights, expected = case
    source = stored(X, kind, tmp_path)
    for threads in (1, 3):
        with dask.config.set(num_workers=threads):
            for init in INITS:
                found = centres_of(source, 11, init, seed=8, weights=weights, scheduler="threads")
                assert np.array_equal(found, expected[init])


def test_same_bits_for_any_ranges_and_budget(case, monkeypatch):
    X, weights, expected = case
    cuts = [
        [(0, N)],
        [(0, GRID_ROWS), (GRID_ROWS, N)],
        [(first, min(N, first + GRID_ROWS)) for first in range(0, N, GRID_ROWS)],
    ]
    for ranges, memory in zip(cuts, ("240MiB", "400MiB", None), strict=True):
        monkeypatch.setattr(Points, "ranges_of", lambda points, job, cut=ranges: cut)
        for init in INITS:
            found = centres_of(X, 11, init, seed=8, weights=weights, memory=memory)
            assert np.array_equal(found, expected[init])


@pytest.mark.cluster
def test_same_bits_on_a_cluster(client, tmp_path):
    X = blobs(N, 3, 6, noise=1.0)[0]
    path = stored(X, "npy", tmp_path)
    for init in INITS:
        found = centres_of(path, 11, init, seed=8, scheduler=client)
        assert np.array_equal(found, centres_of(X, 11, init, seed=8, scheduler="synchronous"))
