"""``silchunk cluster`` in a folder with points."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

from silchunk.cli.base import app

runner = CliRunner()
ALGORITHMS = {
    "ksil": "KSil",
    "spherical-ksil": "SphericalKSil",
    "kmeans": "KMeans",
    "lof-kmeans": "LOFKMeans",
    "ilof-kmeans": "ILOFKMeans",
    "ow-kmeans": "OWKMeans",
}
# Three groups that are apart by distance and by direction, of 100, 60 and 40 points.
TRUTH = np.repeat([0, 1, 2], [100, 60, 40])
X = np.array([[9.0, 0.0], [0.0, 9.0], [-9.0, -9.0]])[TRUTH] + np.random.default_rng(
    0
).standard_normal((200, 2))
# In which algorithms take several iterations.
CLOUD = np.random.default_rng(1).standard_normal((200, 3))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with points, which commands run in."""
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    np.save("cloud.npy", CLOUD)
    return tmp_path


def run(*arguments, code=0):
    result = runner.invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result


def cluster(*arguments, source="x.npy", k=3, output="labels.npy", code=0):
    return run("cluster", source, "-k", k, "-o", output, *arguments, code=code)
