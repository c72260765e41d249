"""The one look at all points before any work."""

from __future__ import annotations

import numpy as np
import pytest

from silchunk import InputError, engine
from silchunk.rows import ArrayRows
from silchunk.scan import COMPARED_VALUES, scan_points

# Fewer rows than are compared side by side, as many, and some more; features of which one row is
# as long as they are, or longer.
SHAPES = [
    (1, 1),
    (COMPARED_VALUES - 1, 1),
    (COMPARED_VALUES, 1),
    (5 * COMPARED_VALUES + 3, 1),
    (63, 32),
    (64, 32),
    (1000, 32),
    (9, 700),
    (7, COMPARED_VALUES // 2),
    (7, COMPARED_VALUES),
    (7, COMPARED_VALUES + 1),
]


def frame_of(X):
    return scan_points(
        ArrayRows(X),
        name="X",
        where=engine.executor("synchronous"),
        read_rows=4096,
        allow_missing=False,
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_range_of_each_feature(shape, order, dtype):
    rng = np.random.default_rng(sum(shape))
    X = np.asarray(rng.normal(size=shape) * rng.uniform(1, 9, shape[1]), dtype, order=order)
    found = frame_of(X)
    assert np.array_equal(found.low, X.min(axis=0).astype(float))
    assert np.array_equal(found.extent, np.ptp(X.astype(float), axis=0))
    # Each feature has its least and its largest value anywhere.
    for row in {0, shape[0] // 2, shape[0] - 1}:
        changed = X.copy(order=order)
        changed[row] = -50.0
        changed[row - 1] = 60.0
        found = frame_of(changed)
        assert (found.low == changed.min(axis=0)).all()
        assert (found.low + found.extent == changed.max(axis=0)).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_found_wherever_it_is(shape, bad):
    for row in {0, shape[0] // 2, shape[0] - 1}:
        X = np.ones(shape)
        X[row, -1] = bad
        with pytest.raises(InputError, match=f"X has {bad} at row {row}, column {shape[1] - 1} "):
            frame_of(X)
