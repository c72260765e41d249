"""Sums of Euclidean distances both ways, against the definition in extended precision."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import numpy as np
import pytest

from silchunk.kernels.blocks import COLUMNS, ROWS
from silchunk.kernels.pair_sums import add_distances

EXACT = {np.float32: 1e-6, np.float64: 1e-13}
DTYPES = list(EXACT)
# Segments that end within blocks and at their ends, and several of them in one block.
EDGES = {
    "one": lambda n: [0, n],
    "halves": lambda n: [0, n // 2, n],
    "at blocks": lambda n: [0, *range(COLUMNS, n, COLUMNS), n],
    "short": lambda n: [*range(0, n, 3), n],
    "uneven": lambda n: [0, min(n, 1), min(n, 7), n - n // 3, n],
}
SHAPES = [(1, 1, 1), (5, 64, 3), (7, 129, 16), (130, 200, 33), (12, 70, 50)]


def padded(points, unit):
    n, d = points.shape
    whole = np.zeros((-(-n // unit) * unit, d), points.dtype)
    whole[:n] = points
    return whole


def sums(rows, columns, row_edges, column_edges, scale=1.0, before=0.0):
    by_row = np.full((len(column_edges) - 1, len(rows)), before)
    by_column = np.full((len(row_edges) - 1, len(columns)), before)
    factor = rows.dtype.type(scale)
    add_distances(
        padded(rows * factor, ROWS),
        np.ascontiguousarray(padded(columns * factor, COLUMNS).T),
        rows,
        columns,
        scale,
        np.array(row_edges),
        np.array(column_edges),
        by_row,
        by_column,
    )
    return by_row, by_column


def by_definition(rows, columns, row_edges, column_edges):
    apart = rows[:, None].astype(np.longdouble) - columns[None].astype(np.longdouble)
    distances = np.sqrt((apart**2).sum(axis=2))
    return (
        np.add.reduceat(distances, column_edges[:-1], axis=1).T.astype(float),
        np.add.reduceat(distances, row_edges[:-1], axis=0).astype(float),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("row_edges", EDGES)
@pytest.mark.parametrize("column_edges", EDGES)
def test_sums_are_those_of_the_definition(row_edges, column_edges, shape, dtype):
    r, c, d = shape
    rng = np.random.default_rng(r + c + d)
    rows, columns = (rng.normal(size=(n, d)).astype(dtype) for n in (r, c))
    same = min(r, c) // 2
    columns[:same] = rows[:same]  # at no distance
    edges = [sorted({*EDGES[row_edges](r)}), sorted({*EDGES[column_edges](c)})]
    for scale in (1.0, 0.25):
        found = sums(rows, columns, *edges, scale)
        for ours, plain in zip(found, by_definition(rows, columns, *edges), strict=True):
            np.testing.assert_allclose(ours, plain, rtol=EXACT[dtype])


def test_sums_are_added_to_what_is_there():
    rows, columns = np.ones((4, 2), np.float32), np.zeros((64, 2), np.float32)
    by_row, by_column = sums(rows, columns, [0, 4], [0, 40, 64], before=100.0)
    np.testing.assert_allclose(by_row[:, 0], 100 + np.sqrt(2) * np.array([40, 24]), rtol=1e-6)
    np.testing.assert_allclose(by_column, 100 + np.sqrt(2) * 4, rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_distances_whose_squares_underflow_are_not_lost(dtype):
    small = 1e-25 if dtype == np.float32 else 1e-200
    columns = (small * np.arange(1, 101)).reshape(-1, 1).astype(dtype)
    by_row, by_column = sums(np.zeros((4, 1), dtype), columns, [0, 4], [0, 100])
    exact = columns[:, 0].astype(float)
    np.testing.assert_allclose(by_row[0], exact.sum(), rtol=EXACT[dtype], atol=0)
    np.testing.assert_allclose(by_column[0], 4 * exact, rtol=EXACT[dtype], atol=0)


def test_a_root_is_within_a_unit_in_the_last_place():
    values = np.geomspace(1e-14, 1e14, 500 * COLUMNS).astype(np.float32).reshape(-1, 1)
    n = len(values)
    _, by_column = sums(np.zeros((ROWS, 1), np.float32), values, [0, ROWS], [0, n])
    exact = np.sqrt((values[:, 0] ** 2).astype(float))
    unit = np.spacing(exact.astype(np.float32))
    assert (np.abs(by_column[0] / ROWS - exact) < unit).all()


@pytest.mark.slow  # kernels are compiled for another processor
@pytest.mark.skipif(platform.machine() != "x86_64", reason="names a processor of that kind")
def test_sums_are_right_where_registers_are_narrower(tmp_path):
    environment = os.environ | {
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+bmi,+bmi2,+popcnt,+sse4.1,+sse4.2",
        "NUMBA_CACHE_DIR": str(tmp_path),
    }
    tests = [f"{__file__}::{test.__name__}" for test in NARROWER]
    script = (
        "import pytest, sys; from silchunk.kernels import blocks\n"
        "assert blocks.REGISTER_BYTES == 32\n"
        "sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', *sys.argv[1:]]))"
    )
    command = [sys.executable, "-c", script, *tests]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


NARROWER = (
    test_sums_are_those_of_the_definition,
    test_sums_are_added_to_what_is_there,
    test_distances_whose_squares_underflow_are_not_lost,
    test_a_root_is_within_a_unit_in_the_last_place,
)
