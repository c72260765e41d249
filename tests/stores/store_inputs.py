"""What the tests of stores build from."""

from __future__ import annotations

import numpy as np
import scipy.spatial.distance as ssd

X = np.random.default_rng(0).standard_normal((300, 5))
MATRIX = ssd.squareform(ssd.pdist(X))
CONDENSED = ssd.pdist(X)
CALLS = []


def whole(D):
    """The whole matrix of a store."""
    return D.rows(0, D.n)


def counted(x, y):
    """A callable metric that notes each call."""
    CALLS.append(1)
    return float(np.abs(x - y).max())


def content(path):
    """Every file that is part of the matrix, byte for byte."""
    return {
        str(p.relative_to(path)): p.read_bytes() for p in (path / "c").rglob("*") if p.is_file()
    }


def shards(path):
    """The files of the panels, in order of their names."""
    return sorted(p for p in (path / "c").rglob("0") if p.is_file())


def flip(file, position=None):
    """Flip one bit of a file."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2 if position is None else position] ^= 0x10
    file.write_bytes(data)


def swap(one, other):
    """Exchange the contents of two files."""
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
