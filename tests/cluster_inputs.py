"""Points for centroid estimators."""

from __future__ import annotations

import numpy as np


def blobs(n, d, n_blobs, *, seed=0):
    """Points around random middles, half of the values zero, no row all of them."""
    rng = np.random.default_rng(seed)
    X = 4.0 * rng.normal(size=(n_blobs, d))[rng.integers(0, n_blobs, n)] + rng.normal(size=(n, d))
    X[rng.random((n, d)) < 0.5] = 0.0
    X[:, 0] += (X == 0).all(axis=1)
    return X
