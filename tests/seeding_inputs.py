"""Points, and centres that are drawn of them as an estimator would."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

from silchunk.cluster.points import Points
from silchunk.cluster.seeding import INITS, initial_centres
from silchunk.points import as_rows
from silchunk.prepare import Arguments, Needs, prepared

DRAWN = pytest.mark.parametrize("init", INITS)
SPREAD = pytest.mark.parametrize("init", ["k-means++", "k-means||"])


def blobs(n, d, n_blobs, *, noise=0.1, seed=0):
    """Points, and which blob each is in; blobs are 10 apart at least."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, n_blobs, n)
    codes[:n_blobs] = np.arange(n_blobs)
    middles = rng.normal(size=(n_blobs, d))
    middles[:, 0] = 10.0 * rng.permutation(n_blobs)
    return middles[codes] + noise * rng.normal(size=(n, d)), codes


@contextmanager
def job_of(X, n_clusters, **arguments):
    needs = Needs(outputs=0, row_results=4, clusters=n_clusters)
    with prepared(X, Arguments(**arguments), needs_of=lambda n: needs) as job:
        yield job


def centres_of(X, n_clusters, init, *, seed=0, weights=None, directions=False, **arguments):
    """The points are read from where they lie, and not from a copy that the job may hold."""
    with job_of(X, n_clusters, **arguments) as job:
        points = Points(as_rows(X), weights, directions)
        return initial_centres(job, points, n_clusters, init, np.random.default_rng(seed))


def rows_of(centres, X):
    """Which row of X each centre is."""
    same = (centres[:, None] == X[None]).all(axis=2)
    assert same.any(axis=1).all(), "a centre is no point"
    return same.argmax(axis=1)
