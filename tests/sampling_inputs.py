"""What the tests of sampled bounds build from."""

from __future__ import annotations

import math

import numpy as np
import pytest

from silchunk import bound_jobs, silhouette_upper_bound
from silchunk.confidence import upper_limit
from silchunk.draws import draw_rows


@pytest.fixture
def sampled_values(monkeypatch):
    """The values (s, sizes) of the sampled rows, as they were drawn, of every call so far."""
    seen = []
    reduce_all = bound_jobs.reduce_all

    def watched(*args):
        reduced = reduce_all(*args)
        seen.append(reduced.samples.copy())
        return reduced

    monkeypatch.setattr(bound_jobs, "reduce_all", watched)
    return seen


def points(n, d, dtype="f8", seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + 4 * rng.standard_normal((5, d))[rng.integers(0, 5, n)]
    return (X + 10).astype(dtype)  # away from 0 for cosine


def check_against_all_rows(X, full, sampled_values, *, s=60, seed=5, atol=1e-14, **options):
    """A sampled bound against the point bounds of all rows."""
    n = len(full)
    found = silhouette_upper_bound(X, sample_size=s, random_state=seed, **options)
    rows = draw_rows(s, seed, n)
    values = full.reshape(n, -1)[rows]
    np.testing.assert_allclose(sampled_values[-1], values, rtol=0, atol=atol)
    np.testing.assert_allclose(np.ravel(found.estimate), values.mean(axis=0), rtol=0, atol=atol)
    errors = values.std(axis=0, ddof=1) * math.sqrt((1 - s / n) / s)
    np.testing.assert_allclose(np.ravel(found.standard_error), errors, rtol=1e-9, atol=1e-14)
    limits = [upper_limit(column, n, found.confidence) for column in values.T]
    np.testing.assert_allclose(np.ravel(found.upper_limit), limits, rtol=0, atol=1e-12)
    assert (found.n, found.sample_size) == (n, s)
    return found
