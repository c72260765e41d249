"""What the tests of certified bounds build from."""

from __future__ import annotations

import numpy as np

SMALL_KINDS = ("uniform", "ties", "zeros", "spread", "tiny against huge", "thirds")


def small_matrix(n, kind, dtype):
    rng = np.random.default_rng([n, SMALL_KINDS.index(kind)])
    A = {
        "uniform": lambda: rng.random((n, n)),
        "ties": lambda: rng.integers(0, 4, (n, n)).astype(float),
        "zeros": lambda: rng.random((n, n)) * (rng.random((n, n)) < 0.4),
        "spread": lambda: rng.random((n, n)) ** 30,
        "tiny against huge": lambda: 10.0 ** rng.choice([-30, -7, 0, 30], (n, n)) * (1 / 3),
        "thirds": lambda: rng.integers(1, 4, (n, n)) / 3,
    }[kind]()
    D = np.triu(A, 1).astype(dtype)
    return D + D.T
