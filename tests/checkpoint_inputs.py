"""What the tests of checkpoints build from."""

from __future__ import annotations

import hashlib
import json
from functools import partial

import numpy as np
import oracles
import pytest

from silchunk import (
    InputError,
    macro_silhouette_upper_bound,
    plan,
    silhouette_bounds,
    silhouette_upper_bound,
    silhouette_upper_bound_samples,
)
from silchunk.reduction import PickRows, ReduceRows
from silchunk.streaming import StreamRows

X = np.random.default_rng(0).standard_normal((300, 3))
D = oracles.distances(X, np.float64)
JOURNAL = "silchunk-checkpoint.jsonl"

CALLS = {
    "average": partial(silhouette_upper_bound, X),
    "several sizes": partial(silhouette_upper_bound, X, min_cluster_size=[1, 2, 90]),
    "many sizes": partial(silhouette_upper_bound, X, min_cluster_size=[1, 2, 3, 4, 90]),
    "samples": partial(silhouette_upper_bound_samples, X, n_clusters=3),
    "many samples": partial(silhouette_upper_bound_samples, X, min_cluster_size=[1, 2, 3, 4, 90]),
    "bounds": partial(silhouette_bounds, X),
    "bounds, certified": partial(silhouette_bounds, X, certify=True, n_clusters=3),
    "bounds and sizes": partial(silhouette_bounds, X, cluster_sizes=[150, 100, 50]),
    "bounds of a matrix": partial(silhouette_bounds, D, metric="precomputed"),
    "sizes": partial(silhouette_upper_bound, X, cluster_sizes=[150, 100, 50]),
    "macro": partial(macro_silhouette_upper_bound, X, [150, 100, 50], certify=True),
    "rearrangement": partial(macro_silhouette_upper_bound, X, [200, 100], method="rearrangement"),
    "sample": partial(silhouette_upper_bound, X, sample_size=290, random_state=3),
    "sample of a matrix": partial(
        silhouette_upper_bound,
        D,
        metric="precomputed",
        sample_size=290,
        random_state=3,
        certify=True,
    ),
}


def bits(result):
    """Everything that a result says, to the last bit."""
    if isinstance(result, (float, np.ndarray)):
        return np.asarray(result).tobytes()
    if hasattr(result, "curve"):
        return result.samples.tobytes(), result.curve().tobytes(), result.sized
    return np.array([result.estimate, result.standard_error, result.upper_limit]).tobytes()


def digest(folder):
    """Of every name and byte in a folder."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        found.update(str(path.relative_to(folder)).encode())
        found.update(path.read_bytes() if path.is_file() else b"/")
    return found.hexdigest()


def panel_files(folder):
    return sorted(folder.glob("panel-*.npz"))


def recorded(folder):
    """The panels that the journal tells of, read as one would by hand."""
    lines = (folder / JOURNAL).read_bytes().split(b"\n")[1:-1]
    return {json.loads(line[:-9])["panel"] for line in lines}


def recorded_or_none(folder):
    return recorded(folder) if folder.exists() else ()


@pytest.fixture(autouse=True)
def short_panels(monkeypatch):
    """Panels of 64 rows; of a sample of points, 32."""
    monkeypatch.setattr(plan, "PREFERRED_PANEL_ROWS", 16)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "job"


@pytest.fixture
def computed(monkeypatch):
    """The ranges of rows that are computed, in order; the one of index ``fail_at`` fails."""

    class Computed(list):
        fail_at = None

    panels = Computed()
    for task in (ReduceRows, PickRows, StreamRows):

        def counted(self, start, stop, run=task.__call__):
            if panels.fail_at == len(panels):
                raise InputError("this panel was to fail")
            panels.append((start, stop))
            return run(self, start, stop)

        monkeypatch.setattr(task, "__call__", counted)
    return panels


def run(name, **options):
    return bits(CALLS[name](scheduler="synchronous", **options))


def fail_after(done, computed, name, folder):
    """Run a job that fails once so many panels are done; all of its panels, as it had them."""
    computed.clear()
    computed.fail_at = done
    with pytest.raises(InputError, match="this panel was to fail"):
        run(name, checkpoint=folder)
    computed.fail_at = None
    assert len(computed) == done
    computed.clear()
